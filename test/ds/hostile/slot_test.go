package hostile_test

import (
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// A reader is not led round in circles by a slot that changes while it is read.
func TestSlotChangesWhileRead(t *testing.T) {
	program := ds.Build(t, "retracted", []string{"-I", ds.Headers()}, "retracted.c", ds.Object(t))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(cmd.Environ(), "EXN_DS=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// Nonsense that is found behind the last bytes of a peer whose death is known ends the
// connection, too.
func TestNonsenseAfterDeath(t *testing.T) {
	program := ds.Build(t, "forged", nil, "forged.c")
	for range 5 { // two processes may miss each other once
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(cmd.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t))...)
		text, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if cmd.ProcessState.ExitCode() != 77 {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	t.Error("there was no lane")
}
