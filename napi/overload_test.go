package napi

import (
	"testing"
	"time"
)

// machine is a computer with one CPU, in virtual time. Packets arrive at a steady rate in a ring of
// the NIC, whatever the CPU does. The CPU runs either the loop or the user's program, which gets it
// when the loop yields or sleeps.
type machine struct {
	clock   fakeClock
	rings   []*ring
	slice   time.Duration // how long the program runs at a yield
	program time.Duration // CPU time that the user's program has had
}

const (
	irqCost    = 2 * time.Microsecond   // to enter and leave the handler
	packetCost = time.Microsecond       // to take one packet through the stack
	timeslice  = 500 * time.Microsecond // what the OS gives the program at a yield: with CFS ...
	longSlice  = 3 * time.Millisecond   // ... and with EEVDF
	span       = 200 * time.Millisecond // of a test, in virtual time
)

// ring is a receive ring that drops what does not fit, at no cost to the CPU.
type ring struct {
	mailbox
	m         *machine
	slots     int
	every     time.Duration // between two packets
	due       time.Duration // time of the next one
	fired     bool          // the doorbell rang and was not checked yet
	dropped   int
	delivered int
	arrivals  []time.Duration // of the packets in the ring
	longest   time.Duration   // the longest time between arrival and delivery
}

func (m *machine) add(t *testing.T, e *Engine, every time.Duration, itr ITR) *ring {
	r := &ring{m: m, slots: 1024, every: every, due: every}
	src, err := e.Add(Spec{Poller: r, Line: r, ITR: itr})
	if err != nil {
		t.Fatal(err)
	}
	r.src = src
	m.rings = append(m.rings, r)
	return r
}

// pass lets time pass, and packets arrive.
func (m *machine) pass(d time.Duration) {
	m.clock.now += d
	for _, r := range m.rings {
		for ; r.due <= m.clock.now; r.due += r.every {
			if r.n == r.slots {
				r.dropped++
				continue
			}
			r.arrivals = append(r.arrivals, r.due)
			r.n++
			r.fired = r.fired || r.enabled
			r.enabled = false
		}
	}
}

func (r *ring) Poll(budget int) Result {
	work := min(r.n, budget)
	for range work {
		r.n--
		r.m.pass(packetCost)
		r.longest = max(r.longest, r.m.clock.now-r.arrivals[0])
		r.arrivals = r.arrivals[1:]
	}
	r.delivered += work
	return Result{Work: work}
}

// run runs the loop until the clock reaches end.
func (m *machine) run(e *Engine, end time.Duration) {
	taken := func() (n uint64) {
		for _, r := range m.rings {
			n += r.src.Stats().Interrupts
		}
		return n
	}
	program := func(d time.Duration) {
		m.program += d
		m.pass(d)
	}
	for interrupts := taken(); m.clock.now < end; {
		next := e.Turn()
		m.pass(time.Duration(taken()-interrupts) * irqCost)
		interrupts = taken()
		switch {
		case next.Do == Yield:
			program(m.slice)
		case next.Do == Sleep && next.For > 0:
			for begin := m.clock.now; m.clock.now-begin < next.For && m.clock.now < end && !m.look(); {
				program(time.Microsecond)
			}
		case next.Do == Sleep:
			m.look()
		}
	}
}

// look does what ppoll does: it raises the sources whose doorbells rang.
func (m *machine) look() (raised bool) {
	for _, r := range m.rings {
		if r.fired {
			r.fired, raised = false, true
			r.src.Raise()
		}
	}
	return raised
}

// TestLivelock (NAP-2): a flood of four times what the CPU can serve.
func TestLivelock(t *testing.T) {
	flood := func(c Config, slice time.Duration, itr ITR) (*machine, *ring) {
		m := &machine{slice: slice}
		c.Clock = m.clock.read
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		r := m.add(t, e, packetCost/4, itr)
		m.run(e, span)
		if got := r.delivered + r.n + r.dropped; got != int(m.clock.now/r.every) {
			t.Errorf("%d packets accounted for, %d came", got, m.clock.now/r.every)
		}
		t.Logf("%v %+v: program %v, delivered %d, dropped at the NIC %d", c.Mode, itr, m.program, r.delivered, r.dropped)
		return m, r
	}
	for _, c := range []struct{ slice, share time.Duration }{
		{timeslice, 50}, // as much as the loop itself
		{longSlice, 60}, // after each 2 ms of work
	} {
		for _, window := range []time.Duration{0, DefaultBusyPoll} {
			m, r := flood(Config{BusyPoll: window}, c.slice, ITR{})
			if m.program < span*(c.share-2)/100 || m.program > span*(c.share+2)/100 {
				t.Errorf("NAP-2: window %v: the program, %v at a time, had %v of %v, want %d %%", window, c.slice, m.program, span, c.share)
			}
			if time.Duration(r.delivered)*packetCost < span*(98-c.share)/100 {
				t.Errorf("NAP-2: window %v: %d packets delivered, want nearly all that fit in the rest", window, r.delivered)
			}
			if n := r.src.Stats().Interrupts; n != 1 {
				t.Errorf("NAP-2: window %v: %d interrupts, want the first only", window, n)
			}
		}
	}
	// Interrupt mode shows the livelock that NAPI was invented against ...
	if m, _ := flood(Config{Mode: InterruptDriven}, timeslice, ITR{}); m.program > time.Millisecond {
		t.Errorf("DRV-2: interrupt mode: the program had %v of %v: this is not the livelock we know", m.program, span)
	}
	// ... and ITR cures it: 8000 interrupts/s × (2 µs + 64 packets) leave nearly half.
	if m, _ := flood(Config{Mode: InterruptDriven}, timeslice, ITR{Policy: ITRStatic, Rate: BulkRate}); m.program < span*40/100 {
		t.Errorf("ITR-1: interrupt mode with static ITR: the program had %v of %v", m.program, span)
	}
}

// TestFairness (NAP-1/8): a light source beside a flooding one loses nothing. A packet that comes
// just after a Turn began waits longest: for the other's poll, a pause, the other's poll before the
// loop checks the doorbells, another pause, and the other's poll again, since it is ahead in the
// list.
func TestFairness(t *testing.T) {
	for _, window := range []time.Duration{0, DefaultBusyPoll} {
		for _, floodFirst := range []bool{true, false} {
			m := &machine{slice: timeslice}
			e, err := New(Config{BusyPoll: window, Clock: m.clock.read})
			if err != nil {
				t.Fatal(err)
			}
			var flood, light *ring
			if floodFirst {
				flood = m.add(t, e, packetCost/4, ITR{})
			}
			light = m.add(t, e, 97*time.Microsecond, ITR{})
			if !floodFirst {
				flood = m.add(t, e, packetCost/4, ITR{})
			}
			m.run(e, span)

			const bound = 3*DefaultBudget*packetCost + 2*timeslice + irqCost + packetCost
			if light.longest > bound || light.dropped > 0 || light.delivered < int(span/light.every)-6 {
				t.Errorf("window %v, flood first %v: light source: longest wait %v (bound %v), delivered %d, dropped %d",
					window, floodFirst, light.longest, bound, light.delivered, light.dropped)
			}
			if time.Duration(flood.delivered)*packetCost < span*48/100 {
				t.Errorf("window %v, flood first %v: the flooding source got %d packets through", window, floodFirst, flood.delivered)
			}
		}
	}
}

// TestFairShares: sources that all flood share the CPU by their budgets.
func TestFairShares(t *testing.T) {
	m := &machine{slice: timeslice}
	e, err := New(Config{Clock: m.clock.read})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.add(t, e, packetCost/2, ITR{})
	}
	m.run(e, span)
	for _, r := range m.rings {
		if d := r.delivered - m.rings[0].delivered; d < -DefaultBudget || d > DefaultBudget {
			t.Errorf("delivered %d and %d packets", m.rings[0].delivered, r.delivered)
		}
	}
}
