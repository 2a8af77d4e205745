//go:build !amd64 && !386

package lane

import _ "unsafe" // for go:linkname

// ticks is the clock of dates, which must be the same for all processes of the host: here
// CLOCK_MONOTONIC in nanoseconds.
func ticks() uint64 { return uint64(nanotime()) }

//go:linkname nanotime runtime.nanotime
func nanotime() int64
