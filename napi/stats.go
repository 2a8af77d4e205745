package napi

import "sync/atomic"

// SourceStats are the counters of one source. They are read one by one while the loop runs. Each is
// exact, but together they may be a poll apart.
type SourceStats struct {
	Interrupts uint64 // taken: steps (2) and (3)
	Spurious   uint64 // raised while the source was masked; ignored
	Suppressed uint64 // polls that found work without an interrupt: each saved one
	Rechecks   uint64 // times that Arm found work waiting: each would have been a lost wake-up
	Throttled  uint64 // times that ITR delayed arming

	Polls     uint64
	Exhausted uint64 // polls that used all of their budget
	Blocked   uint64 // polls that could not go on
	Work      uint64
	Bytes     uint64

	ITRState ITRState // meaningful only for ITRDynamic
	ITRRate  Rate     // interrupts/s allowed now; 0: no limit
}

// sourceCounters are written only by the loop.
type sourceCounters struct {
	interrupts, spurious, suppressed, rechecks, throttled atomic.Uint64
	polls, exhausted, blocked, work, bytes                atomic.Uint64
}

// Stats returns the source's counters.
func (s *Source) Stats() SourceStats {
	c := &s.stats
	return SourceStats{
		Interrupts: c.interrupts.Load(),
		Spurious:   c.spurious.Load(),
		Suppressed: c.suppressed.Load(),
		Rechecks:   c.rechecks.Load(),
		Throttled:  c.throttled.Load(),
		Polls:      c.polls.Load(),
		Exhausted:  c.exhausted.Load(),
		Blocked:    c.blocked.Load(),
		Work:       c.work.Load(),
		Bytes:      c.bytes.Load(),
		ITRState:   ITRState(s.itr.state.Load()),
		ITRRate:    Rate(s.itr.rate.Load()),
	}
}

// Stats are the counters of the loop.
type Stats struct {
	Turns  uint64
	Yields uint64 // Turns that asked for a yield
	Looks  uint64 // Turns that asked to check the interrupts without sleeping
	Sleeps uint64 // Turns that asked for a sleep
	Rests  uint64 // Turns that asked for a rest
	Losses uint64 // yields that took so long that busy polling ended for a while
}

type counters struct {
	turns, yields, looks, sleeps, rests, losses atomic.Uint64
}

// Stats returns the loop's counters.
func (e *Engine) Stats() Stats {
	return Stats{
		Turns:  e.stats.turns.Load(),
		Yields: e.stats.yields.Load(),
		Looks:  e.stats.looks.Load(),
		Sleeps: e.stats.sleeps.Load(),
		Rests:  e.stats.rests.Load(),
		Losses: e.stats.losses.Load(),
	}
}
