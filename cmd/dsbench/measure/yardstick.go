package measure

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// A Yardstick is the noise detector: a loop of arithmetic that takes the same
// time whenever a processor does nothing else. It is run beside what is measured,
// before and after; when it takes longer than it can, something has taken the
// processor away or slowed it down, and the run in between is not to be trusted.
//
// It looks from one processor and for a moment, and so misses what is short or
// elsewhere: [Watch] sees that.
type Yardstick struct {
	best time.Duration
}

// Each look is a few short loops. Their median counts, so that one interrupt in one of
// them does not.
const (
	looks     = 5
	loopSteps = 100_000 // a step is a cycle or a few: some 100 µs
)

// Slower takes a look and says how much slower the processor is than it was at
// best so far: 0 for as fast, 0.1 for 10 % slower.
func (y *Yardstick) Slower() float64 {
	took := make([]time.Duration, 0, looks)
	for range looks {
		start := time.Now()
		spin(loopSteps)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	now := took[looks/2]
	if y.best == 0 || took[0] < y.best {
		y.best = took[0]
	}
	return float64(now)/float64(y.best) - 1
}

// look is Slower, after a few looks at first for what the best is.
func (y *Yardstick) look() float64 {
	if y.best == 0 {
		for range 3 {
			y.Slower()
		}
	}
	return y.Slower()
}

// patient looks again for a while if the processor is slower: the other side of a session
// looks at the same time, which may be on the other half of the same core. 0 without a yardstick.
func (y *Yardstick) patient() (slower float64) {
	if y == nil {
		return 0
	}
	const tries, apart = 10, 3 * time.Millisecond
	for i := range tries {
		if slower = y.look(); slower <= mostSlower {
			break
		}
		if i < tries-1 {
			time.Sleep(time.Duration(1+rand.IntN(2)) * apart)
		}
	}
	return slower
}

var spun atomic.Uint64 // keeps the compiler from leaving the loop out

// spin is a chain of multiplications: each waits for the one before.
func spin(steps int) {
	x := spun.Load() | 1
	for range steps {
		x *= 0x9e3779b97f4a7c15
	}
	spun.Store(x)
}
