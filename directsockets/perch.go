package directsockets

import (
	"math/bits"
	"sync/atomic"
	"time"

	"exnet/directsockets/internal/lane"
)

// A perch is a waiter with a doorbell on which one reader at a time sleeps, directly in the
// netpoller. If the watcher woke the reader instead, that would take a second goroutine, for which
// the scheduler starts another thread. On two CPUs that thread is in the way of the peer and takes
// half of the time of a message. So the first few readers that slept long the last time get
// perches. The watcher serves the rest: many at once, and under load without a ring.
//
//	reader                                   producer
//	  the bit of the perch in the mask         post, a fence (1)
//	  in the netpoller: a new odd epoch,       mask has the bit, epoch is odd
//	    a fence (2), look                      and not rung for it: ring
//	  sleep up to an edge of the doorbell
//
// The netpoller forgets earlier edges when the call that looks begins, so edges between two sleeps
// wake nobody. Whoever wakes the reader for another reason rings the doorbell, too (nap.go).
type perch struct {
	bell   pollable
	fd     int
	waiter int
	own    *lane.Memory
	// the argument of RawConn.Read, always the same, so that nothing is allocated
	look func(uintptr) bool

	c     *Conn // the connection whose reader sleeps here
	again bool  // look has been called
}

const (
	firstPerch = 2 // of the waiters; see watch.go
	perches    = 4
)

// longSleep is longer than a peer that is awake takes to answer.
const longSleep = 100 * time.Microsecond

// A roost is the set of perches of a channel.
type roost struct {
	perch [perches]perch
	taken atomic.Uint32 // one bit for each
}

// open makes the perches. The caller must call close whether it succeeds or not.
func (r *roost) open(own *lane.Memory) (err error) {
	for i := range r.perch {
		p := &r.perch[i]
		if p.bell, p.fd, err = newBell(); err != nil {
			return err
		}
		p.own, p.waiter = own, firstPerch+i
		p.look = p.arm
	}
	return nil
}

func (r *roost) close() {
	for i := range r.perch {
		if p := &r.perch[i]; p.bell.file != nil {
			p.bell.file.Close()
		}
	}
}

// take gives a perch to the reader of c. It returns nil if there is none to have.
func (r *roost) take(c *Conn) *perch {
	for c.in.slept >= longSleep {
		was := r.taken.Load()
		i := bits.TrailingZeros32(^was)
		if i >= perches {
			return nil
		}
		if r.taken.CompareAndSwap(was, was|1<<i) {
			r.perch[i].c = c
			return &r.perch[i]
		}
	}
	return nil
}

func (r *roost) give(p *perch) {
	p.c = nil
	for {
		was := r.taken.Load()
		if r.taken.CompareAndSwap(was, was&^(1<<(p.waiter-firstPerch))) {
			return
		}
	}
}

// arm looks once its sleeper is armed. It returns true to end the sleep, as at every edge after
// that.
func (p *perch) arm(uintptr) bool {
	if p.again {
		return true
	}
	p.again = true
	p.own.Arm(p.waiter)
	c := p.c
	return c.rxReady() || c.rxStop() || c.rx.nap.state.Load() == woken
}

// sleep lets the reader of c sleep here, at most until its deadline. It reports whether only the
// peer can have woken it.
func (p *perch) sleep(c *Conn) (rung bool) {
	s := &c.rx
	s.nap.door = p.fd
	s.nap.begin()
	limited := s.limit.Load() != 0
	if limited {
		s.net.Lock()
		p.bell.file.SetReadDeadline(s.until)
		s.net.Unlock()
	}
	ask := lane.Ask(ourWaiter, c.wish.asks) // without asks, the mask stays as it was
	c.own.RxWaiters.Store(awakeMask | 1<<p.waiter | ask)
	p.again = false
	err := p.bell.raw.Read(p.look)
	rung = err == nil && s.nap.state.Load() == asleep
	c.own.RxWaiters.Store(awakeMask | ask)
	p.own.Disarm(p.waiter)
	if limited {
		p.bell.file.SetReadDeadline(time.Time{})
	}
	s.nap.end()
	s.nap.door = 0
	return rung
}
