package directsockets

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exnet/internal/late"
)

// A side is one direction of a connection: the right to use it, and how its user sleeps.
//
// As in package net, one call at a time reads and one writes. The call holds mu, even asleep. A
// goroutine that needs mu for something else (to engage, to close) announces that in wanted and
// wakes the sleeper. The sleeper hands mu over and continues once it has it again. Other calls of
// the same direction wait until the interrupted one is over: the bytes of one Write stay together.
//
// Before the connection is engaged, the call sleeps in the netpoller inside package net. It is
// woken by setting a deadline that has passed, and then restores the deadline of the program. Once
// the connection is engaged, the call takes naps. The channel's watcher wakes it for news of the
// lane, the sentry for news of the socket, and a goroutine that needs mu wakes it, too.
//
// Lock order: rx.mu, tx.mu, rendezvous.mu, channel.mu, side.net.
type side struct {
	mu   sync.Mutex
	torn bool // a call has handed mu over in the middle; guarded by mu
	// held by that call until it has mu again; others wait on it without another lock
	whole  sync.Mutex
	plain  atomic.Bool  // see Conn.begin
	wanted atomic.Int32 // goroutines that want mu
	limit  atomic.Int64 // the program's deadline, as time since start; 0 if none

	net    sync.Mutex // guards what follows
	set    func(time.Time) error
	until  time.Time // the deadline as a time
	inside bool      // asleep in a call of package net, or about to be
	rung   bool      // wake has interrupted this call

	nap   nap
	timer *time.Timer
	spin  spin
}

// over is a deadline that has passed. start has a monotonic reading.
var over, start = time.Unix(1, 0), time.Now()

// lock locks mu for a call of this direction, once no other such call is interrupted.
func (s *side) lock() {
	s.mu.Lock()
	for s.torn {
		s.mu.Unlock()
		s.whole.Lock()
		s.whole.Unlock() //lint:ignore SA2001 locked only to wait
		s.mu.Lock()
	}
}

// take locks mu for a goroutine that is not in a call of this direction.
func (s *side) take() {
	s.wanted.Add(1)
	s.wake()
	s.mu.Lock()
	s.wanted.Add(-1)
}

// yield lets goroutines that want mu have it. The caller holds mu before and after.
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

// enter announces that the holder of mu is about to sleep inside package net. The caller looks at
// wanted again afterwards: a change before enter found no sleeper to wake.
func (s *side) enter() {
	s.net.Lock()
	s.inside = true
	s.net.Unlock()
}

// leave ends what enter announced, and reports whether wake interrupted the call.
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

// park waits in a nap until it is woken, until the deadline, or for most if that is not 0. Setting
// a new deadline wakes it.
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

// setDeadline sets the program's deadline.
func (s *side) setDeadline(t time.Time) error {
	s.net.Lock()
	defer s.net.Unlock()
	s.until = t
	s.limit.Store(0)
	if !t.IsZero() {
		s.limit.Store(max(int64(t.Sub(start)), 1))
	}
	s.nap.wake() // so that it sleeps up to the new one
	if s.rung {
		return nil // the sleeper sets it when it wakes
	}
	return s.set(t)
}

// expired reports whether the program's deadline has passed.
func (s *side) expired() bool {
	limit := s.limit.Load()
	return limit != 0 && int64(time.Since(start)) >= limit
}
