package script_test

import (
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// The library's own descriptors are beyond the program's limit, however many threads make some, and
// a forked child keeps no copy of a socket open that its parent closes.
func TestOwnDescriptors(t *testing.T) {
	program := ds.Build(t, "copied", []string{"-I", ds.Headers()}, "copied.c", ds.Object(t))
	if said, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
