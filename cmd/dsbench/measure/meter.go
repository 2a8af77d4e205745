package measure

import "sync/atomic"

// A Meter is what a half has done so far, for those who want to know while it runs: bytes that
// it has moved either way, or operations.
type Meter struct{ done atomic.Int64 }

// Done is how much it is.
func (m *Meter) Done() int64 { return m.done.Load() }

// Count adds to the meter of a half, if somebody looks at it.
func (s *Site) Count(n int64) {
	if s.meter != nil {
		s.meter.done.Add(n)
	}
}
