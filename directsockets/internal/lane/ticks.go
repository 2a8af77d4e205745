//go:build amd64 || 386

package lane

// ticks is the clock of dates, which must be the same for all processes of the host: here the
// processor's cycle counter.
func ticks() uint64
