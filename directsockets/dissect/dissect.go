// Package dissect breaks down the time of a message on a lane into steps, for dsbench breakdown.
// Tracepoints see nothing of a message that is written and read in shared memory.
//
// Two threads have a lane each way, in memory that both have mapped as two processes would. They
// send a message back and forth by the calls of internal/lane that package directsockets makes for
// its connections, in its order. So the result is the lane alone. A Conn adds locks, deadlines,
// counting and Go's scheduler; measuring one beside it shows them as the difference.
//
// # Milestones
//
//	writer    call ── posted ── rung ─ ─ ─ ─ (returns)
//	                     │        │
//	reader               │      awake ── seen ── copied ── returned ── call (of the answer)
//	                     └─────────────────┘
//
// Rung and awake occur only if the reader sleeps. The time from one milestone to the next is a
// [Step]. A step covers both directions together, so all steps add up to a round trip.
//
// # Stamps
//
// A stamp takes 20 to 50 ns, as long as some steps. So a round trip has only one stamp, at one of
// the milestones in turn, besides the one at its beginning; nothing before the stamp is slowed down
// by it. For each milestone, the mean of the middle half of its times since the beginning, less the
// cost of a stamp, is when it is passed. A step lies between two of these.
//
// Where readers sleep, a stamp is negligible beside a wake-up, and the lengths of wake-ups differ
// by more than the other steps take. There, each counted round trip has all stamps. Round trips
// without a stamp in between are made in turn with those. They give the whole, which the steps have
// to add up to although they are measured separately.
//
// The clock is CLOCK_MONOTONIC of one process, read by both threads. Go's scheduler and collector
// interrupt some round trips, which are not in the middle half.
package dissect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Config says what to send and how.
type Config struct {
	Size   int           // bytes of a message
	Rounds int           // round trips
	Asleep bool          // readers sleep; false: they poll
	Pause  time.Duration // before each message
	CPUs   [2]int        // of the two sides; negative: any

	slow     milestone // for tests: delay this milestone
	slowness time.Duration
}

// A milestone is a point that a message passes.
type milestone int

const (
	none     milestone = iota // write is called
	posted                    // the slot is visible
	rung                      // the writer knows that the reader sleeps, and is about to ring
	awake                     // the sleeper is back
	seen                      // the reader has found the slot
	copied                    // the reader has the bytes
	returned                  // the reader has returned credit, and its call returns
	milestones

	every   milestone = -1
	nothing milestone = -2
)

// A Step ends at a milestone.
type Step struct {
	Name, What string
	Time       float64 // ns, of both directions
}

var steps = [milestones]Step{
	posted:   {Name: "post", What: "from the call of write until the slot is posted: its payload, then its status"},
	rung:     {Name: "look", What: "until the writer has seen that the reader sleeps"},
	awake:    {Name: "wake", What: "until the reader is back from its sleep: the eventfd, the interrupt between CPUs, idle, the scheduler"},
	seen:     {Name: "way", What: "until the reader has found it: the cache line's way from CPU to CPU"},
	copied:   {Name: "copy", What: "until its bytes are copied out of the slot, which come the same way"},
	returned: {Name: "credit", What: "until credit is given, who waits for it is looked for, and read returns"},
}

// Steps returns all possible steps in order, without times.
func Steps() []Step { return slices.Clone(steps[posted:]) }

// ErrAwake means that the sides slept too rarely to measure. On one CPU the answer arrives before
// the side that waits for it has gone to sleep.
var ErrAwake = errors.New("in too few round trips both sides slept")

// A Result says where the time of a round trip goes, in ns.
type Result struct {
	Steps []Step
	Sum   float64 // of the steps
	Whole float64 // of round trips without stamps in between
}

// block is how many round trips are made without a stamp, and then with stamps. In that many, the
// beginning and end of a block are negligible.
const block = 64

// way returns the milestones of a round trip in order, each for both directions.
func (c Config) way() (way []milestone) {
	for m := posted; m < milestones; m++ {
		if c.Asleep || m != rung && m != awake {
			way = append(way, m)
		}
	}
	return slices.Concat(way, way)
}

// stamp returns the place in the way that gets a stamp in round trip i; -1 means none.
func (c Config) stamp(i, places int) int {
	switch {
	case c.Asleep && i%2 == 0, !c.Asleep && i/block%2 == 0:
		return -1
	case c.Asleep:
		return 0 // and at all others
	}
	return i % places
}

// index returns where the stamp of a milestone is stored: each round trip has room for all stamps,
// or for one.
func (c Config) index(i int, forth bool, m milestone) int {
	switch {
	case !c.Asleep:
		return i
	case forth:
		return (2*i)*int(milestones) + int(m)
	}
	return (2*i+1)*int(milestones) + int(m)
}

// Run makes the round trips. It needs two CPUs, one for each side.
func Run(ctx context.Context, c Config) (r Result, err error) {
	c.Rounds = (c.Rounds + 2*block - 1) / (2 * block) * (2 * block)
	if c.Size < 1 || c.Size > largest || c.Rounds < 1 || c.Pause < 0 {
		return r, fmt.Errorf("dissect: no round trips: %+v", c)
	}
	var over atomic.Bool
	sides, err := makeSides(&c, &over)
	if err != nil {
		return r, fmt.Errorf("dissect: %w", err)
	}
	defer sides[0].close()
	defer sides[1].close()
	stop := func() {
		over.Store(true)
		sides[0].wake()
		sides[1].wake()
	}
	defer context.AfterFunc(ctx, stop)()
	var both sync.WaitGroup
	var errs [2]error
	for i, do := range []func() error{sides[0].lead, sides[1].follow} {
		both.Go(func() {
			// not unlocked: the thread is pinned, so it ends with the goroutine
			runtime.LockOSThread()
			if errs[i] = pin(c.CPUs[i]); errs[i] == nil {
				errs[i] = do()
			}
			if errs[i] != nil {
				stop()
			}
		})
	}
	both.Wait()
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("dissect: %w", err)
	}
	if r, err = c.result(sides); err != nil {
		return r, fmt.Errorf("dissect: %w", err)
	}
	return r, nil
}

// result computes the steps from the stamps.
func (c Config) result(sides [2]*side) (r Result, err error) {
	from := c.Rounds / 10 / (2 * block) * (2 * block) // the first tenth is a warm-up
	cost := clockCost()
	took := steps
	var wholes []float64
	if c.Asleep {
		wholes, err = c.sleepers(sides, from, &took)
	} else {
		wholes, err = c.pollers(sides, from, cost, &took)
	}
	if err != nil {
		return r, err
	}
	for i := range wholes {
		wholes[i] -= cost
		if !c.Asleep {
			wholes[i] /= block
		}
	}
	r.Whole = middle(wholes)
	for _, s := range took {
		if s.Name != "" && s.Time != 0 {
			r.Steps = append(r.Steps, s)
			r.Sum += s.Time
		}
	}
	return r, nil
}

// pollers: a milestone is passed at the middle of the times in its own round trips.
func (c Config) pollers(sides [2]*side, from int, cost float64, took *[milestones]Step) (wholes []float64, err error) {
	way := c.way()
	since := make([][]float64, len(way))
	for i := from; i < c.Rounds; i++ {
		place := c.stamp(i, len(way))
		switch {
		case place >= 0:
			at := sides[0].stamps[i] + sides[1].stamps[i] // one of them is 0
			since[place] = append(since[place], float64(at-sides[0].begins[i])-cost)
		case i%block == 0:
			wholes = append(wholes, float64(sides[0].ends[i+block-1]-sides[0].begins[i]))
		}
	}
	before := 0.0
	for place, m := range way {
		at := middle(since[place])
		took[m].Time += at - before
		before = at
	}
	return wholes, nil
}

// sleepers: each round trip has all stamps, which are negligible beside a wake-up. Those count in
// which both sides slept, and of these the middle half by their duration.
func (c Config) sleepers(sides [2]*side, from int, took *[milestones]Step) (wholes []float64, err error) {
	type trip struct {
		steps [milestones]float64
		all   int64
	}
	var trips []trip
	way := c.way()
each:
	for i := from; i < c.Rounds; i++ {
		begin := sides[0].begins[i]
		if c.stamp(i, len(way)) < 0 {
			wholes = append(wholes, float64(sides[0].ends[i]-begin))
			continue
		}
		var t trip
		before := begin
		for place, m := range way {
			at := c.index(i, place < len(way)/2, m)
			now := sides[0].stamps[at] + sides[1].stamps[at] // one of them is 0
			if now == 0 {
				continue each
			}
			t.steps[m] += float64(now - before)
			before = now
		}
		t.all = before - begin
		trips = append(trips, t)
	}
	if len(trips) < fewest {
		return nil, fmt.Errorf("%w: in %d of %d", ErrAwake, len(trips), len(trips)+len(wholes))
	}
	slices.SortFunc(trips, func(a, b trip) int { return cmp.Compare(a.all, b.all) })
	trips = trips[len(trips)/4 : len(trips)-len(trips)/4]
	for _, t := range trips {
		for m := range took {
			took[m].Time += t.steps[m] / float64(len(trips))
		}
	}
	return wholes, nil
}

// fewest is how many round trips are needed.
const fewest = 20

// middle returns the mean of the middle half.
func middle(v []float64) (mean float64) {
	slices.Sort(v)
	v = v[len(v)/4 : len(v)-len(v)/4]
	for _, each := range v {
		mean += each / float64(len(v))
	}
	return mean
}

var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// clockCost returns the time between two stamps with nothing between them.
func clockCost() float64 {
	const times = 1000
	each := make([]float64, times)
	for i := range each {
		a := now()
		each[i] = float64(now() - a)
	}
	return middle(each)
}

func pin(cpu int) error {
	if cpu < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}
