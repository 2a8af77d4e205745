package script_test

import (
	"os"
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

// A handler that starts a program waits a moment for the locks of whom it has interrupted, not as often as there is time.
func TestHandlersStartPrograms(t *testing.T) {
	program := ds.Build(t, "starter", []string{"-pthread"}, "starter.c")
	for name, env := range map[string][]string{"plain": nil, "library": ds.Preload(ds.Library(t), ds.Fabric(t))} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), env...)
			if text, err := cmd.CombinedOutput(); err != nil { // it has set an alarm
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
