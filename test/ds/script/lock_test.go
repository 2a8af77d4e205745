package script_test

import (
	"os/exec"
	"testing"

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
	for _, signal := range []string{"USR1", "FPE"} {
		t.Run(signal, func(t *testing.T) { bothEnd(t, []string{program, signal}) })
	}
}

// Calls after one that a handler has left by longjmp are as if it had not been made.
func TestJumps(t *testing.T) {
	bothEnd(t, []string{ds.Build(t, "jumper", []string{"-pthread"}, "jumper.c")})
}

// A handler that has interrupted a call forks, and the call goes on in both processes.
func TestHandlersFork(t *testing.T) {
	program := ds.Build(t, "forker", nil, "forker.c")
	for _, call := range []string{"read", "poll", "epoll"} {
		t.Run(call, func(t *testing.T) { bothEnd(t, []string{program, call}) })
	}
}
