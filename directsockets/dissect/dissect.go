// Package dissect takes the time of a message on a lane apart, for dsbench breakdown:
// tracepoints see nothing of one that is written and read in shared memory.
//
// Two threads have a lane each way, in memory that both have mapped as two processes
// have it, and send a message to and fro by the calls of internal/lane that package
// directsockets makes for its connections, in its order. So what is seen is the lane
// itself; a Conn adds locks, deadlines, counting and the scheduler of Go, which who
// measures one beside it sees as the rest.
//
// # Milestones
//
//	writer    call ── posted ── rung ─ ─ ─ ─ (returns)
//	                     │        │
//	reader               │      awake ── seen ── copied ── returned ── call (of the answer)
//	                     └─────────────────┘
//
// Rung and awake are only there if the reader sleeps. The time from one to the next is a
// [Step]; a step is that of both directions together, so that all add up to a round trip.
//
// # Stamps
//
// A stamp takes 20 to 50 ns, as long as some steps. So a round trip has one, at one of the
// milestones in turn, beside that of its beginning: nothing that comes before it is slower for
// it. The mean of the middle half of each milestone's times since the beginning, less what a
// stamp takes, is when it is passed, and what lies between two of them a step. Where
// readers sleep a stamp is nothing beside a wake-up, whose length differs by more than the
// other steps take: there each round trip that counts has all stamps. Round
// trips without any stamp between them are made in turn with those: they are the whole
// which the steps have to add up to, and do not by their making.
//
// The clock is CLOCK_MONOTONIC of one process, read by both threads. Go's scheduler and
// its collector interrupt some round trips, which are not among the middle half.
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

// A Config is what to send and how.
type Config struct {
	Size   int           // bytes of a message
	Rounds int           // round trips
	Asleep bool          // readers sleep, else they poll
	Pause  time.Duration // before each message
	CPUs   [2]int        // of the sides; negative: any

	slow     milestone // for tests: before this one
	slowness time.Duration
}

// A milestone is something that a message passes.
type milestone int

const (
	none     milestone = iota // the call of write
	posted                    // its slot can be seen
	rung                      // the writer knows that somebody sleeps, and is about to ring
	awake                     // who slept is back
	seen                      // the reader has found the slot
	copied                    // it has the bytes
	returned                  // it has given credit, and its call returns
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

// Steps are all there may be, in their order, without times.
func Steps() []Step { return slices.Clone(steps[posted:]) }

// ErrAwake is wrapped when there is too little to see of sides that sleep. On one CPU the
// answer is there before who waits for it has gone to sleep.
var ErrAwake = errors.New("in too few round trips both sides slept")

// A Result is where the time of a round trip goes, in ns.
type Result struct {
	Steps []Step
	Sum   float64 // of the steps
	Whole float64 // of round trips without stamps between
}

// block is how many round trips are made without a stamp, and then with them, where none is
// worth mentioning to begin and end a block.
const block = 64

// way are the milestones of a round trip in their order, each of both directions.
func (c Config) way() (way []milestone) {
	for m := posted; m < milestones; m++ {
		if c.Asleep || m != rung && m != awake {
			way = append(way, m)
		}
	}
	return slices.Concat(way, way)
}

// stamp is the place in the way that has one in round trip i; -1: none.
func (c Config) stamp(i, places int) int {
	switch {
	case c.Asleep && i%2 == 0, !c.Asleep && i/block%2 == 0:
		return -1
	case c.Asleep:
		return 0 // and at all others
	}
	return i % places
}

// index is where the stamp of a milestone is: each round trip has room for all, or for one.
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
			runtime.LockOSThread() // and the thread ends with us: it is pinned
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

// result takes the stamps apart.
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

// pollers: when each milestone is passed is the middle of its own round trips.
func (c Config) pollers(sides [2]*side, from int, cost float64, took *[milestones]Step) (wholes []float64, err error) {
	way := c.way()
	since := make([][]float64, len(way))
	for i := from; i < c.Rounds; i++ {
		place := c.stamp(i, len(way))
		switch {
		case place >= 0:
			at := sides[0].stamps[i] + sides[1].stamps[i] // one of them
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

// sleepers: each round trip has all stamps, which are nothing beside a wake-up; those
// count in which both slept, and of these the middle half by how long they take.
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
			now := sides[0].stamps[at] + sides[1].stamps[at] // one of them
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

// fewest is how many round trips have to be seen.
const fewest = 20

// middle is the mean of the middle half.
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

// clockCost is what lies between two stamps with nothing between them.
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
