package napi

import (
	"time"

	"golang.org/x/sys/unix"
)

// shortest is the shortest time slice that Linux gives.
const shortest = 100 * time.Microsecond

// ShortSlice asks for the shortest time slice for the calling thread, which must be
// locked to its goroutine; undo gives back the former. Before Linux 6.12 there are no
// slices of single threads, and nothing changes; nor does it for a thread whose policy
// somebody has chosen.
//
// A loop that polls and yields needs it beside programs that it shares a CPU with. When
// the other CPU wakes such a program, the kernel may have it wait for the loop's
// next yield, which comes within 2 µs; or interrupt the loop at once, if the program had
// less of the CPU than the loop of late. Between virtual CPUs that takes 15 µs, and 6
// more of the waker's; the program waits meanwhile, which seems to entitle it to the next
// interrupt. So half round trips take 10 µs, or 20 for seconds, by chance. With the
// shortest slice that is rarer (5 of 24 runs of 0.4 s, 18 without).
func ShortSlice() (undo func()) {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime <= uint64(shortest) {
		return func() {}
	}
	former := attr.Runtime
	attr.Runtime = uint64(shortest)
	if unix.SchedSetAttr(0, attr, 0) != nil { // a sandbox may forbid it
		return func() {}
	}
	return func() {
		attr.Runtime = former
		_ = unix.SchedSetAttr(0, attr, 0)
	}
}
