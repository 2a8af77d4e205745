package napi

import (
	"time"

	"golang.org/x/sys/unix"
)

// slack is how late a timer of the loop may be.
const slack = time.Microsecond

// SharpTimers makes the calling thread, which must be locked to its goroutine, wake from a rest
// (see the package comment) on time. undo restores the former setting. By default Linux lets sleeps
// be 50 µs longer, which is more than a rest takes.
func SharpTimers() (undo func()) {
	former, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) != nil {
		return func() {}
	}
	return func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(former), 0, 0, 0) }
}
