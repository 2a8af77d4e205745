package napi

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fakeClock moves only when a test moves it.
type fakeClock struct{ now time.Duration }

func (c *fakeClock) read() time.Duration { return c.now }

// mailbox is a receive queue with an interrupt, as in a NIC: a packet that arrives while the
// interrupt is enabled raises it, once.
type mailbox struct {
	name    string
	src     *Source
	n       int // packets waiting
	size    int // bytes of each
	enabled bool
	blocked bool           // Poll takes nothing and says so
	drained bool           // Poll reports the queue as drained, whatever it took
	yields  bool           // Poll asks for a yield
	log     *[]string      // of events, if set
	polling func(work int) // called by Poll, if set
}

func (m *mailbox) Poll(budget int) Result {
	r := Result{Work: min(m.n, budget), Blocked: m.blocked}
	r.Drained = m.drained
	if m.blocked {
		r.Work = 0
	}
	r.Yield = m.yields && r.Work > 0
	r.Bytes = r.Work * m.size
	m.n -= r.Work
	if m.log != nil {
		*m.log = append(*m.log, fmt.Sprintf("poll %s %d/%d", m.name, r.Work, budget))
	}
	if m.polling != nil {
		m.polling(r.Work)
	}
	return r
}

func (m *mailbox) Mask() {
	m.enabled = false
	m.note("mask")
}

func (m *mailbox) Arm() bool {
	if m.n > 0 && !m.blocked {
		m.note("pending")
		return false
	}
	m.enabled = true
	m.note("arm")
	return true
}

// arrive puts packets into the mailbox: steps (1) and (2).
func (m *mailbox) arrive(n int) {
	m.n += n
	if m.enabled && n > 0 {
		m.enabled = false
		m.note("irq")
		m.src.Raise()
	}
}

func (m *mailbox) note(event string) {
	if m.log != nil {
		*m.log = append(*m.log, event+" "+m.name)
	}
}

// rig is an engine with mailboxes on a fake clock.
type rig struct {
	t     testing.TB
	clock fakeClock
	eng   *Engine
	log   []string
	boxes map[string]*mailbox
}

// newRig makes an engine. Its clock moves when a script says so, and uses up no slice unless the
// test is about slices.
func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	c.Slice = cmp.Or(c.Slice, time.Second)
	r := &rig{t: t, boxes: map[string]*mailbox{}}
	c.Clock = r.clock.read
	eng, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.eng = eng
	return r
}

func (r *rig) add(name string, budget int, itr ITR) *mailbox {
	r.t.Helper()
	m := &mailbox{name: name, size: 100, log: &r.log}
	src, err := r.eng.Add(Spec{Name: name, Poller: m, Line: m, Budget: budget, ITR: itr})
	if err != nil {
		r.t.Fatal(err)
	}
	m.src = src
	r.boxes[name] = m
	return m
}

// turn does one Turn and logs its result.
func (r *rig) turn() Next {
	next := r.eng.Turn()
	switch {
	case next.Do == Sleep && next.For == 0:
		r.log = append(r.log, "look")
	case next.Do == Sleep && next.For != Forever:
		r.log = append(r.log, fmt.Sprintf("sleep %v", next.For))
	default:
		r.log = append(r.log, next.Do.String())
	}
	return next
}

// run executes a script: "velo+3" makes three packets arrive, "velo!" raises the interrupt, "+20µs"
// moves the clock, "turn" does a Turn, and "idle" does Turns without moving the clock until one
// sleeps. It returns the log of the last word, or of the last Turn.
func (r *rig) run(script string) string {
	r.t.Helper()
	for _, word := range strings.Fields(script) {
		r.log = nil
		if word == "turn" {
			r.turn()
			continue
		}
		if word == "idle" {
			for next := (Next{}); next.Do != Sleep || next.For == 0; {
				r.log = nil
				next = r.turn()
			}
			continue
		}
		if strings.HasPrefix(word, "+") {
			d, err := time.ParseDuration(word[1:])
			if err != nil {
				r.t.Fatal(err)
			}
			r.clock.now += d
			continue
		}
		if name, ok := strings.CutSuffix(word, "!"); ok {
			r.boxes[name].src.Raise()
			continue
		}
		name, count, _ := strings.Cut(word, "+")
		var n int
		if _, err := fmt.Sscan(count, &n); err != nil {
			r.t.Fatalf("word %q: %v", word, err)
		}
		r.boxes[name].arrive(n)
	}
	return strings.Join(r.log, ", ")
}
