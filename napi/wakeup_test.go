package napi

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestNoLostWakeup (NAP-1, the check in Arm) runs the engine against producers in every order in
// which their steps can fall between the steps of the loop. It checks whether the loop ever sleeps
// for good while work is waiting. The test must detect Lines that leave out the second check, or
// check too early.
//
// The steps interleave in one order that all agree on. What a CPU's store buffer adds to that is
// the business of the Line, which owns the fence.
func TestNoLostWakeup(t *testing.T) {
	configs := []struct {
		name string
		Config
		itr  ITR
		size int // of a message
	}{
		{name: "NAPI"},
		{name: "NAPI with a window", Config: Config{BusyPoll: 2 * tick}},
		{name: "NAPI with a gap", itr: ITR{Policy: ITRStatic, Rate: BulkRate}},
		{name: "NAPI with both", Config: Config{BusyPoll: 2 * tick}, itr: ITR{Policy: ITRStatic, Rate: BulkRate}},
		{name: "NAPI with a slice", Config: Config{Slice: tick}},
		{name: "NAPI with a slice and a window", Config: Config{Slice: tick, BusyPoll: 2 * tick}},
		{name: "NAPI with rests", Config: Config{BusyPoll: 10 * tick}, size: bulkBytes},
		{name: "interrupt", Config: Config{Mode: InterruptDriven}},
		{name: "interrupt with a gap", Config: Config{Mode: InterruptDriven}, itr: ITR{Policy: ITRStatic, Rate: BulkRate}},
	}
	loads := []struct {
		name     string
		messages [][]int // of each source: messages of each of its producers
		budget   int
	}{
		{"one producer", [][]int{{3}}, 2},
		{"two producers", [][]int{{2, 1}}, 2},
		{"two sources", [][]int{{2}, {1}}, 1},
	}
	for _, c := range configs {
		for _, load := range loads {
			t.Run(c.name+"/"+load.name, func(t *testing.T) {
				explore := func(arm armOrder) (int, error) {
					x := explorer{seen: map[string]bool{}}
					for {
						if err := runModel(&x, c.Config, c.itr, c.size, load.messages, load.budget, arm); err != nil {
							return len(x.seen), err
						}
						if !x.next() {
							return len(x.seen), nil
						}
					}
				}
				states, err := explore(unmaskThenLook)
				if err != nil {
					t.Errorf("after %d states: %v", states, err)
				}
				t.Logf("%d states", states)
				for _, broken := range []armOrder{unmaskOnly, lookThenUnmask} {
					if states, err := explore(broken); err == nil {
						t.Errorf("%v: no lost wake-up in %d states: the model is blind", broken, states)
					}
				}
			})
		}
	}
}

const tick = time.Microsecond

// armOrder is how a model line arms.
type armOrder string

const (
	unmaskThenLook armOrder = "unmask, then look"
	unmaskOnly     armOrder = "unmask without a look"
	lookThenUnmask armOrder = "look, then unmask"
)

// explorer enumerates the runs of a program that makes choices, depth first. A run ends early in a
// state that was seen before.
type explorer struct {
	path  []choice
	depth int
	seen  map[string]bool
	key   []byte // of the state, reused
}

type choice struct{ taken, of int }

// choose returns one of the choices 0 to of-1. false means that all runs through this state have
// been explored.
func (x *explorer) choose(of int, state func() string) (int, bool) {
	if x.depth == len(x.path) {
		key := state()
		if x.seen[key] {
			return 0, false
		}
		x.seen[key] = true
		x.path = append(x.path, choice{0, of})
	}
	x.depth++
	return x.path[x.depth-1].taken, true
}

// next prepares the next run; false means that there is none.
func (x *explorer) next() bool {
	x.depth = 0
	for n := len(x.path); n > 0; n = len(x.path) {
		if last := &x.path[n-1]; last.taken+1 < last.of {
			last.taken++
			return true
		}
		x.path = x.path[:n-1]
	}
	return false
}

// model is one run: the loop under test, and producers that may step at each point.
type model struct {
	x         *explorer
	clock     fakeClock
	eng       *Engine
	lines     []*modelLine
	producers []*producer
	woken     bool
	slice     time.Duration // which a poll with work uses up, if not 0

	at      []step // where the loop stands in this Turn: its steps so far
	history []step // all steps
	over    bool   // the rest of this run was explored before
}

// step is one atomic step of the loop or of a producer.
type step struct {
	what string
	n    int // the source, or the time to sleep
}

// point is called before each step of the loop. Producers may do any number of steps there.
func (m *model) point(what string, n int) {
	m.at = append(m.at, step{what, n})
	for m.produce(1) {
	}
	m.history = append(m.history, step{what, n})
}

// produce lets one producer do one step, or none if waysNotTo allows that, and reports whether one
// did.
func (m *model) produce(waysNotTo int) bool {
	n := len(m.producers)
	if n == 0 || m.over {
		return false
	}
	taken, ok := m.x.choose(waysNotTo+n, m.state)
	if !ok {
		m.over = true
		return false
	}
	i := taken - waysNotTo
	if i < 0 {
		return false
	}
	if p := m.producers[i]; !p.step() {
		m.producers = slices.Delete(m.producers, i, i+1)
	}
	return true
}

// state returns everything that decides how the run goes on. Times matter as far as the engine
// compares them.
func (m *model) state() string {
	e, now := m.eng, m.clock.now
	key := m.x.key[:0]
	add := func(values ...int) {
		for _, v := range values {
			key = binary.AppendVarint(key, int64(v))
		}
	}
	for _, at := range m.at {
		key = append(key, at.what...)
		add(at.n)
	}
	window := e.windowNow()
	add(bit(e.rested), int(e.flow), int(e.moved), int(min(now-e.halved, bulkTime)))
	add(bit(m.woken), bit(e.polled), bit(e.worked), bit(e.paused), bit(e.idled), bit(e.gave), bit(e.asked), e.armed, e.blocked)
	add(int(min(now-e.lastWork, window)), int(min(now-e.resumed, e.slice)), int(e.lent), e.list.n)
	for s := e.list.head; s != nil; s = s.next {
		add(slices.Index(e.sources, s))
	}
	for i, s := range e.sources {
		add(int(s.state), bit(s.raised.Load()), int(min(now-s.lastIRQ, s.itr.gap)))
		add(m.lines[i].n, bit(m.lines[i].enabled))
	}
	for _, p := range m.producers {
		add(p.line.id, p.messages, p.pc)
	}
	m.x.key = key
	return string(key)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// producer publishes messages, and rings if the line is armed.
type producer struct {
	m        *model
	line     *modelLine
	messages int
	pc       int
}

// step does one atomic step and reports whether there are more.
func (p *producer) step() bool {
	var did string
	switch p.pc {
	case 0:
		did = "producer: publish"
		p.line.n++
		p.messages--
		p.pc = 1
	case 1:
		did = "producer: swap the armed flag"
		p.pc = 0
		if p.line.enabled {
			p.line.enabled = false
			p.pc = 2
		}
	case 2:
		did = "producer: raise"
		p.line.src.Raise()
		p.pc = 3
	case 3:
		did = "producer: wake"
		p.m.woken = true
		p.pc = 0
	}
	p.m.history = append(p.m.history, step{did, p.line.id})
	return p.pc != 0 || p.messages > 0
}

// modelLine is a queue and its interrupt, with a point before each atomic step.
type modelLine struct {
	m       *model
	id      int
	src     *Source
	arm     armOrder
	size    int // bytes of a message
	n       int
	enabled bool
}

func (l *modelLine) Poll(budget int) Result {
	l.m.point("poll", l.id)
	work := min(l.n, budget)
	l.n -= work
	if work > 0 {
		l.m.clock.now += l.m.slice
	}
	return Result{Work: work, Bytes: work * l.size}
}

func (l *modelLine) Mask() {
	l.m.point("mask", l.id)
	l.enabled = false
}

func (l *modelLine) Arm() bool {
	if l.arm == lookThenUnmask {
		l.m.point("look", l.id)
		if l.n > 0 {
			return false
		}
	}
	l.m.point("unmask", l.id)
	l.enabled = true
	if l.arm == unmaskThenLook {
		l.m.point("look", l.id)
		if l.n > 0 {
			l.m.point("mask again", l.id)
			l.enabled = false
			return false
		}
	}
	return true
}

func runModel(x *explorer, c Config, itr ITR, size int, messages [][]int, budget int, arm armOrder) error {
	m := &model{x: x, slice: c.Slice}
	c.Clock = m.clock.read
	eng, err := New(c)
	if err != nil {
		return err
	}
	m.eng = eng
	for id, producers := range messages {
		l := &modelLine{m: m, id: id, arm: arm, size: size}
		if l.src, err = eng.Add(Spec{Poller: l, Line: l, Budget: budget, ITR: itr}); err != nil {
			return err
		}
		m.lines = append(m.lines, l)
		for _, n := range producers {
			m.producers = append(m.producers, &producer{m: m, line: l, messages: n})
		}
	}
	for turns := 0; !m.over; turns++ {
		if turns == 1000 {
			return fmt.Errorf("the loop does not come to rest: %v", m.history)
		}
		m.at = m.at[:0]
		m.point("turn", 0)
		next := eng.Turn()
		switch {
		case next.Do == Yield:
			m.clock.now += tick
		case next.Do == Sleep && next.For == Forever:
			m.point("sleep", 0)
			for !m.woken && m.produce(0) {
			}
			if !m.woken && !m.over { // and nobody is left to wake it
				for _, l := range m.lines {
					if l.n > 0 {
						return fmt.Errorf("source %d sleeps for good with %d messages waiting: %v", l.id, l.n, m.history)
					}
				}
				return nil
			}
			m.woken = false
		case next.Do == Sleep, next.Do == Rest:
			m.point(next.Do.String(), int(next.For))
			m.clock.now += next.For
			m.woken = false
		}
	}
	return nil
}
