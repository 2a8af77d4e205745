package directsockets

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exnet/internal/late"
)

// A side is one direction of a connection: the right to use it, and how its
// user sleeps.
//
// As in package net one call at a time reads, and one writes; it holds mu, asleep
// too. Who else needs it (to engage, to close) says so in wanted and wakes the
// sleeper, which hands mu over and goes on when it has it again. Other calls wait until
// the one that was torn so is over: what one Write writes stays together.
//
// Before it is engaged, it sleeps in the netpoller inside a call of package net,
// and who needs it wakes it by a deadline that is over; then it sets that of the
// program again. Once engaged it takes naps, from which the channel's watcher wakes
// it for news of the lane, the sentry for news of the socket, and who needs mu.
//
// Lock order: rx.mu, tx.mu, rendezvous.mu, channel.mu, side.net.
type side struct {
	mu     sync.Mutex
	torn   bool        // who is in the middle of a call has handed mu over; guarded by it
	whole  sync.Mutex  // held by who has torn it, until it has mu again; others wait for it with no lock
	plain  atomic.Bool // Conn.begin
	wanted atomic.Int32
	limit  atomic.Int64 // the program's deadline, since start; 0: none

	net    sync.Mutex // guards what follows
	set    func(time.Time) error
	until  time.Time // the deadline as a time
	inside bool      // asleep in a call of package net, or about to
	rung   bool      // by wake, in this call

	nap   nap
	timer *time.Timer
	spin  spin
}

// over is a deadline that has passed; start has a monotonic reading.
var over, start = time.Unix(1, 0), time.Now()

// lock locks mu for a call of this direction, when no other is in the middle.
func (s *side) lock() {
	s.mu.Lock()
	for s.torn {
		s.mu.Unlock()
		s.whole.Lock()
		s.whole.Unlock() //lint:ignore SA2001 it is waited for
		s.mu.Lock()
	}
}

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
	s.torn = true
	s.whole.Lock()
	s.mu.Unlock()
	for s.wanted.Load() > 0 {
		late.Yield()
		runtime.Gosched()
	}
	s.mu.Lock()
	s.torn = false
	s.whole.Unlock()
}

// enter says that the holder of mu is about to sleep inside package net. It looks
// again after it: whoever changed something before looked in vain for a sleeper.
func (s *side) enter() {
	s.net.Lock()
	s.inside = true
	s.net.Unlock()
}

// leave is the end of that. It says whether wake has ended it.
func (s *side) leave() (rung bool) {
	s.net.Lock()
	defer s.net.Unlock()
	s.inside = false
	if rung = s.rung; rung {
		s.rung = false
		s.set(s.until)
	}
	return rung
}

// park waits in a nap, no longer than up to the deadline, and than most unless that is 0. A deadline
// that is set now wakes.
func (s *side) park(most time.Duration) {
	left := most
	if s.limit.Load() != 0 {
		s.net.Lock()
		left = time.Until(s.until)
		s.net.Unlock()
		if most > 0 {
			left = min(left, most)
		}
	} else if most == 0 {
		<-s.nap.bell
		s.nap.heard = true
		return
	}
	if s.timer == nil {
		s.timer = time.NewTimer(left)
	} else {
		s.timer.Reset(left)
	}
	select {
	case <-s.nap.bell:
		s.nap.heard = true
	case <-s.timer.C:
	}
	s.timer.Stop()
}

// wake ends the sleep of the holder, if it sleeps or is about to.
func (s *side) wake() {
	s.nap.wake()
	s.net.Lock()
	defer s.net.Unlock()
	if s.inside && !s.rung {
		s.rung = true
		s.set(over)
	}
}

// setDeadline sets that of the program.
func (s *side) setDeadline(t time.Time) error {
	s.net.Lock()
	defer s.net.Unlock()
	s.until = t
	s.limit.Store(0)
	if !t.IsZero() {
		s.limit.Store(max(int64(t.Sub(start)), 1))
	}
	s.nap.wake() // to sleep up to the new one
	if s.rung {
		return nil // who sleeps sets it when it is up
	}
	return s.set(t)
}

// expired says that the program's deadline has passed.
func (s *side) expired() bool {
	limit := s.limit.Load()
	return limit != 0 && int64(time.Since(start)) >= limit
}
