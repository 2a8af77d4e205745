//go:build amd64 || 386

package lane

// ticks is the clock of dates, which all processes of the host read alike: here the
// processor's cycle counter.
func ticks() uint64
