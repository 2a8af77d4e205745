package napi

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// With SharpTimers timers may be late by a microsecond, and after undo by as much as before.
func TestSharpTimers(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := now()
	undo := SharpTimers()
	if got := now(); got != 1000 {
		t.Errorf("timers may be %d ns late, want 1000", got)
	}
	undo()
	if got := now(); got != was {
		t.Errorf("after undo %d ns, it was %d", got, was)
	}
}
