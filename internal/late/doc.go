// Package late is where the product says that it wakes somebody, or yields its CPU, so
// that test builds can have both take long:
//
//	late.Wake()  // before a doorbell is rung or a signal sent
//	late.Yield() // before sched_yield or runtime.Gosched in a loop that waits
//
// On some virtual machines to wake a thread on another CPU takes half a millisecond, and
// a yield takes what other programs compute. Built with -tags slowwake, Wake takes 0.4 ms
// and Yield up to 2 ms, at random, so that what depends on the order or on the time shows
// everywhere (make test-adverse). Without it both are nothing, and the compiler removes
// them. The C library has the same by test/ds/ccode/slowwake.h.
package late
