package napi

import (
	"sync/atomic"
	"time"
)

// DefaultBudget is the most work that one poll may do, in packets. Linux gives a NAPI instance the
// same weight. It is the thesis' default for VELO and for RMA, and the best of 4, 16, 64 and 256 in
// the measured frame-plane loop.
const DefaultBudget = 64

// A Poller takes work from one receive queue.
type Poller interface {
	// Poll does at most budget units of work and returns without waiting. If it does fewer, it
	// has seen its queue empty or is blocked.
	Poll(budget int) Result
}

// Result is what one poll did.
type Result struct {
	Work  int // packets, messages or notifications; equal to budget when there may be more
	Bytes int // their payload: the throughput for dynamic ITR

	// Drained says that the poller saw its queue empty after the last of the work, so an
	// immediate poll would be useless. It is ignored when Work is the whole budget.
	Drained bool

	// Blocked says that the queue may hold more but the poller cannot go on until its Line
	// raises an interrupt, for example because it is out of credit. It is ignored when Work is
	// the whole budget.
	Blocked bool

	// Yield says that other threads should have the CPU now, even if the loop has had it only
	// briefly: the work that they were given fills their queue. They get it unless such yields
	// recently gave them more time than the loop has itself.
	Yield bool
}

// A Line is the interrupt of one source.
type Line interface {
	// Mask disables the interrupt. Masking a masked line does nothing.
	Mask()
	// Arm enables the interrupt and then checks whether there is something that a Poll would
	// act upon. If so, it masks again and returns false. If it returns true, work that comes
	// later wakes the Sleeper and leads to Raise.
	Arm() bool
}

// Spec describes a source to [Engine.Add].
type Spec struct {
	Name   string // for errors and statistics
	Poller Poller
	Line   Line
	Budget int // per poll; 0 means DefaultBudget
	ITR    ITR
}

// Source is a registered source of work.
type Source struct {
	name   string
	poller Poller
	line   Line
	budget int

	raised atomic.Bool // set by Raise, cleared by the loop
	stats  sourceCounters

	// The fields below belong to the loop.
	state   state
	next    *Source // in the poll list
	blocked bool    // its last poll was blocked
	byIRQ   bool    // interrupted and not yet polled
	held    bool    // ITR has delayed arming since the last poll
	empty   uint64  // Engine.looked when its last poll saw nothing left
	lastIRQ time.Duration
	itr     throttle
}

// Name returns the name given in the Spec.
func (s *Source) Name() string { return s.name }

// Budget returns the most work one poll may do.
func (s *Source) Budget() int { return s.budget }

// Raise reports that the source's interrupt fired: step (2). The loop takes it at its next Turn;
// Raise alone does not end a Sleep. A Sleeper calls it for what woke it. Others call it and then
// Wake (see [Doorbell.Ring]). Raising a masked source is harmless.
func (s *Source) Raise() { s.raised.Store(true) }

// takeRaised consumes a raised interrupt. The plain load avoids a locked instruction in the common
// case of no interrupt.
func (s *Source) takeRaised() bool { return s.raised.Load() && s.raised.Swap(false) }

// state of a source; see the picture in the package comment.
type state uint8

const (
	quiet  state = iota // masked, off the list; also before the first Turn
	listed              // masked, on the poll list
	armed               // unmasked, off the list
)

// pollList is the FIFO of step (3). A source is in it at most once.
type pollList struct {
	head, tail *Source
	n          int
}

func (l *pollList) push(s *Source) {
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
	l.n++
}

func (l *pollList) pop() *Source {
	s := l.head
	l.head = s.next
	if l.head == nil {
		l.tail = nil
	}
	s.next = nil
	l.n--
	return s
}
