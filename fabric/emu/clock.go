package emu

import (
	"container/heap"
	"time"
)

// Instants are durations since the network was made.

// An event happens at an instant. Events of one instant are ordered by rank and then by the order
// of scheduling. The rank names a link, and the order on one link does not depend on other links.
// So equal inputs give equal orders.
type event struct {
	at   time.Duration
	rank uint64
	seq  uint64
	fire func() // with the network locked
}

// rankScript orders the scenario before the links.
const rankScript = 0

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	a, b := &e[i], &e[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.seq < b.seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// A clock is the event queue of a network. It has no goroutine of its own. One timer is set to the
// next event and runs all events that are due. It holds the network's lock meanwhile, so nobody
// sees half an instant.
type clock struct {
	start    time.Time
	timer    *time.Timer
	queue    events
	seq      uint64
	stepping bool          // events are being run
	at       time.Duration // instant of the present event, while stepping
}

// now returns the present instant. For consequences of an event that is the event's own instant,
// however late the timer was.
func (c *clock) now() time.Duration {
	if c.stepping {
		return c.at
	}
	return time.Since(c.start)
}

// schedule makes fire happen at an instant.
func (n *Network) schedule(at time.Duration, rank uint64, fire func()) {
	c := &n.clock
	if n.closed {
		return
	}
	c.seq++
	heap.Push(&c.queue, event{at, rank, c.seq, fire})
	if !c.stepping && c.queue[0].seq == c.seq {
		n.setTimer()
	}
}

// soon returns the earliest instant at which a consequence of the present one may happen. It is
// never the same instant. Under synctest, time moves only when every goroutine sleeps. By then
// everything that happens at one instant is known, and its order no longer depends on the
// scheduler.
func (n *Network) soon() time.Duration { return n.clock.now() + 1 }

func (n *Network) setTimer() {
	c := &n.clock
	if n.closed || len(c.queue) == 0 {
		return
	}
	d := c.queue[0].at - time.Since(c.start)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, n.step)
	} else {
		c.timer.Reset(d)
	}
}

// step runs the events that are due.
func (n *Network) step() {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.clock
	if c.stepping {
		return // a scenario function is running outside the lock
	}
	c.stepping = true
	for !n.closed && len(c.queue) > 0 && c.queue[0].at <= time.Since(c.start) {
		e := heap.Pop(&c.queue).(event)
		c.at = max(c.at, e.at)
		e.fire()
	}
	c.stepping = false
	n.setTimer()
}
