package script_test

import (
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// The lock of a connection is one of a process' threads until the process forks, and of processes then.
func TestLock(t *testing.T) {
	program := ds.Build(t, "locked", []string{"-I", ds.Headers()}, "locked.c", ds.Object(t))
	for _, part := range []string{"contend", "orphan", "refused", "left", "waits", "lost"} {
		t.Run(part, func(t *testing.T) {
			if text, err := exec.Command(program, part).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
