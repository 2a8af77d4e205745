package directsockets

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A side is one direction of a connection: the right to use it, and how its
// user sleeps.
//
// As in package net one call at a time reads, and one writes; it holds mu, asleep
// too. Who else needs it (to engage, to close) says so in wanted and wakes the
// sleeper, which hands mu over and goes on when it has it again.
//
// Before it is engaged, it sleeps in the netpoller inside a call of package net,
// and who needs it wakes it by a deadline that is over; then it sets that of the
// program again. Once engaged it sleeps on bell, which the channel's watcher rings
// for news of the lane, the sentry for news of the socket, and who needs mu.
//
// Lock order: rx.mu, tx.mu, rendezvous.mu, channel.mu, side.nap.
type side struct {
	mu     sync.Mutex
	wanted atomic.Int32
	limit  atomic.Int64 // the program's deadline, since start; 0: none

	nap    sync.Mutex // guards what follows
	set    func(time.Time) error
	until  time.Time // the deadline as a time
	asleep bool
	parked bool // asleep on bell
	rung   bool // by wake, in this sleep

	bell  chan struct{}
	timer *time.Timer

	waiter waiter
	spin   spin
}

// over is a deadline that has passed; start has a monotonic reading.
var over, start = time.Unix(1, 0), time.Now()

// take locks mu for somebody who is not in a call of this direction.
func (s *side) take() {
	s.wanted.Add(1)
	s.wake()
	s.mu.Lock()
	s.wanted.Add(-1)
}

// yield gives mu to who wants it; the caller holds it, and does again.
func (s *side) yield() {
	if s.wanted.Load() == 0 {
		return
	}
	s.mu.Unlock()
	for s.wanted.Load() > 0 {
		runtime.Gosched()
	}
	s.mu.Lock()
}

// lieDown says that the holder of mu is about to sleep, on bell if parked. It
// looks again after it: whoever changed something before looked in vain for a
// sleeper.
func (s *side) lieDown(parked bool) {
	s.nap.Lock()
	s.asleep, s.parked = true, parked
	s.nap.Unlock()
}

// park sleeps on bell, no longer than up to the deadline.
func (s *side) park() {
	s.nap.Lock()
	until := s.until
	s.nap.Unlock()
	if until.IsZero() {
		<-s.bell
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(time.Until(until))
	} else {
		s.timer.Reset(time.Until(until))
	}
	select {
	case <-s.bell:
	case <-s.timer.C:
	}
	s.timer.Stop()
}

// getUp is the end of a sleep. It says whether wake has ended it.
func (s *side) getUp() (rung bool) {
	s.nap.Lock()
	defer s.nap.Unlock()
	s.asleep = false
	if rung = s.rung; rung {
		s.rung = false
		if !s.parked {
			s.set(s.until)
			return rung
		}
		select {
		case <-s.bell:
		default: // park has taken it
		}
	}
	return rung
}

// wake ends the sleep of the holder, if it sleeps or is about to.
func (s *side) wake() {
	s.nap.Lock()
	defer s.nap.Unlock()
	s.wakeLocked()
}

func (s *side) wakeLocked() {
	if !s.asleep || s.rung {
		return
	}
	s.rung = true
	if s.parked {
		s.bell <- struct{}{} // empty: one for each sleep
	} else {
		s.set(over)
	}
}

// setDeadline sets that of the program.
func (s *side) setDeadline(t time.Time) error {
	s.nap.Lock()
	defer s.nap.Unlock()
	s.until = t
	s.limit.Store(0)
	if !t.IsZero() {
		s.limit.Store(max(int64(t.Sub(start)), 1))
	}
	if s.asleep && s.parked {
		s.wakeLocked() // to sleep up to the new one
	} else if s.rung {
		return nil // the sleeper sets it when it is up
	}
	return s.set(t)
}

// expired says that the program's deadline has passed.
func (s *side) expired() bool {
	limit := s.limit.Load()
	return limit != 0 && int64(time.Since(start)) >= limit
}

// A waiter is a side that sleeps on its lane; the channel's watcher wakes it.
// Guarded by channel.mu, but for what is constant.
type waiter struct {
	ready  func() bool // called with channel.mu
	side   *side
	asleep bool

	at int // a writer's place in channel.waiting

	// A reader's.
	asks  uint64 // how often it asked for a mark; written by its goroutine
	asked bool   // the last of these has not been seen
}
