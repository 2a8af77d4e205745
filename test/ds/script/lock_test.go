package script_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"exnet/test/ds"
)

// The lock of a connection is one of a process' threads until the process forks, and of processes then.
func TestLock(t *testing.T) {
	program := ds.Build(t, "locked", []string{"-I", ds.Headers()}, "locked.c", ds.Object(t))
	for _, part := range []string{"contend", "orphan", "deferred", "refused", "left", "waits", "lost"} {
		t.Run(part, func(t *testing.T) {
			if text, err := exec.Command(program, part).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// A handler that starts a program finds no lock taken by whom it has interrupted, or, if it handles a fault,
// waits a moment for it, not as often as there is time.
func TestHandlersStartPrograms(t *testing.T) {
	program := ds.Build(t, "starter", []string{"-pthread"}, "starter.c")
	for name, env := range map[string][]string{"plain": nil, "library": ds.Preload(ds.Library(t), ds.Fabric(t))} {
		for _, signal := range []string{"USR1", "FPE"} {
			t.Run(name+"/"+signal, func(t *testing.T) {
				cmd := exec.Command(program, signal)
				cmd.Env = append(os.Environ(), env...)
				if text, err := cmd.CombinedOutput(); err != nil { // it has set an alarm
					t.Errorf("%v\n%s", err, text)
				}
			})
		}
	}
}

// Calls after one that a handler has left by longjmp are as if it had not been made.
func TestJumps(t *testing.T) {
	program := ds.Build(t, "jumper", []string{"-pthread"}, "jumper.c")
	for name, env := range map[string][]string{"plain": nil, "library": ds.Preload(ds.Library(t), ds.Fabric(t))} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program)
			cmd.Env = append(os.Environ(), env...)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v (%v)\n%s", err, context.Cause(ctx), text)
			}
		})
	}
}
