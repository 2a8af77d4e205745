package hostile_test

import (
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// A reader is not led round in circles by a slot that changes while it is read.
func TestSlotChangesWhileRead(t *testing.T) {
	program := ds.Build(t, "retracted", []string{"-I", ds.Headers()}, append([]string{"retracted.c"}, ds.Sources(t)...)...)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(cmd.Environ(), "EXN_DS=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
