package napi

import (
	"fmt"
	"sync/atomic"
	"time"
)

// ITR is the interrupt throttling of one source: how many interrupts per second it may raise at
// most. The zero value does not throttle.
//
// Dynamic ITR adapts the rate to the traffic as the ixgbe driver does: many interrupts for latency
// in light traffic, few for throughput in heavy traffic.
//
//	            > 10 B/µs             > 20 B/µs
//	┌────────┐ ───────────► ┌───────┐ ───────────► ┌───────┐
//	│ lowest │              │  low  │              │ bulk  │
//	│ 100k/s │ ◄─────────── │ 20k/s │ ◄─────────── │  8k/s │
//	└────────┘   ≤ 10 B/µs  └───────┘   ≤ 20 B/µs  └───────┘
//	                        (initial)
//
// The state moves one step at a time, when a poll finishes. The rate moves by a tenth of the
// distance to the state's rate each time, so one odd interval changes little.
//
// ixgbe divides the bytes by the nominal gap, since its hardware never interrupts sooner. Here one
// interrupt may start a long stretch of polling. So the bytes are divided by the time that they
// really took, once that is as long as a gap. At the throttled rate both are the same.
type ITR struct {
	Policy ITRPolicy
	Rate   Rate          // for ITRStatic
	Link   BytesPerMicro // for ITRDynamic: the throughput of the link; 0 means ReferenceLink
}

// ITRPolicy selects how the gap between two interrupts is determined.
type ITRPolicy uint8

const (
	ITROff     ITRPolicy = iota // no gap
	ITRStatic                   // the gap of ITR.Rate
	ITRDynamic                  // the gap of the current traffic state
)

// Rate counts interrupts per second.
type Rate int64

// gap returns the time between two interrupts at this rate.
func (r Rate) gap() time.Duration { return time.Second / time.Duration(r) }

// The rates of the three states, from ixgbe: gaps of 10, 50 and 125 µs.
const (
	LowestRate Rate = 100_000
	LowRate    Rate = 20_000
	BulkRate   Rate = 8_000
)

// BytesPerMicro is a throughput in bytes per microsecond, that is MB/s.
type BytesPerMicro int64

const (
	// ReferenceLink is the link for which ixgbe's thresholds were found: 10 Gbit/s.
	ReferenceLink BytesPerMicro = 1250
	// referenceLow separates lowest from low on that link. Twice as much separates low from
	// bulk.
	referenceLow BytesPerMicro = 10
)

// thresholds scales ixgbe's 10 and 20 bytes/µs to the link.
func (c ITR) thresholds() (low, bulk BytesPerMicro) {
	link := c.Link
	if link == 0 {
		link = ReferenceLink
	}
	low = max(1, referenceLow*link/ReferenceLink)
	return low, 2 * low
}

func (c ITR) check() error {
	switch {
	case c.Policy > ITRDynamic:
		return fmt.Errorf("unknown ITR policy %d", c.Policy)
	case c.Policy == ITRStatic && (c.Rate < 1 || c.Rate > Rate(time.Second)):
		return fmt.Errorf("static ITR of %d interrupts/s: choose 1 to %d", c.Rate, time.Second)
	case c.Policy == ITRDynamic && (c.Link < 0 || c.Link > maxLink):
		return fmt.Errorf("dynamic ITR for a link of %d bytes/µs: choose 1 to %d, or 0 for %d", c.Link, maxLink, ReferenceLink)
	}
	return nil
}

// maxLink keeps the scaling far from overflow: 8 Pbit/s.
const maxLink BytesPerMicro = 1_000_000_000

// ITRState is the class of traffic that dynamic ITR sees.
type ITRState uint8

const (
	ITRLowest ITRState = iota // little traffic: lowest latency
	ITRLow                    // the initial state
	ITRBulk                   // much traffic: fewest interrupts
)

func (s ITRState) String() string {
	switch s {
	case ITRLowest:
		return "lowest"
	case ITRLow:
		return "low"
	case ITRBulk:
		return "bulk"
	}
	return fmt.Sprintf("ITRState(%d)", uint8(s))
}

func (s ITRState) rate() Rate {
	switch s {
	case ITRLowest:
		return LowestRate
	case ITRLow:
		return LowRate
	}
	return BulkRate
}

// next returns the state after an interval with this throughput.
func (s ITRState) next(t, low, bulk BytesPerMicro) ITRState {
	switch s {
	case ITRLowest:
		if t > low {
			return ITRLow
		}
	case ITRLow:
		switch {
		case t > bulk:
			return ITRBulk
		case t <= low:
			return ITRLowest
		}
	case ITRBulk:
		if t <= bulk {
			return ITRLow
		}
	}
	return s
}

// smoothing divides the distance to the state's rate; one interval moves the rate by the quotient.
// ixgbe weighs the old rate with 90 % and the new one with 10 %.
const smoothing = 10

// throttle is the ITR state of one source. The loop writes it. state and rate are atomic because
// Stats reads them.
type throttle struct {
	policy    ITRPolicy
	low, bulk BytesPerMicro
	gap       time.Duration

	bytes, packets int64
	since          time.Duration // start of the interval being measured

	state atomic.Uint32 // an ITRState
	rate  atomic.Int64  // a Rate; 0: no throttling
}

func (t *throttle) init(c ITR, now time.Duration) {
	t.policy = c.Policy
	t.low, t.bulk = c.thresholds()
	t.since = now
	t.state.Store(uint32(ITRLow))
	switch c.Policy {
	case ITRStatic:
		t.setRate(c.Rate)
	case ITRDynamic:
		t.setRate(LowRate)
	}
}

func (t *throttle) setRate(r Rate) {
	t.rate.Store(int64(r))
	t.gap = r.gap()
}

// add counts what a poll found.
func (t *throttle) add(packets, bytes int) {
	t.packets += int64(packets)
	t.bytes += int64(bytes)
}

// finish recomputes state and rate when a poll has left the poll list. An interval without packets
// tells nothing and goes on. So does one shorter than the gap, which would make single packets look
// like a high throughput.
func (t *throttle) finish(now time.Duration) {
	elapsed := now - t.since
	if t.policy != ITRDynamic || t.packets == 0 || elapsed < t.gap {
		return
	}
	// the gap is at least 10 µs, so this never divides by 0
	throughput := BytesPerMicro(t.bytes / elapsed.Microseconds())
	state := ITRState(t.state.Load()).next(throughput, t.low, t.bulk)
	t.state.Store(uint32(state))

	rate, target := Rate(t.rate.Load()), state.rate()
	if step := (target - rate) / smoothing; step != 0 {
		t.setRate(rate + step)
	} else if rate != target {
		t.setRate(target)
	}
	t.bytes, t.packets, t.since = 0, 0, now
}
