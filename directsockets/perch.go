package directsockets

import (
	"math/bits"
	"sync/atomic"
	"time"

	"exnet/directsockets/internal/lane"
)

// A perch is a waiter with a doorbell that one reader at a time sleeps on, in the netpoller
// itself. To be woken by the watcher instead takes a second goroutine, for which the
// scheduler starts another thread, which on two CPUs is in the way of the peer: half of the
// time of a message. So of the readers that slept long the last time the first few have perches.
// The watcher serves the rest: many at once, and under load without a ring.
//
//	reader                                   producer
//	  the bit of the perch in the mask         post, a fence (1)
//	  in the netpoller: a new odd epoch,       mask has the bit, epoch is odd
//	    a fence (2), look                      and not rung for it: ring
//	  sleep up to an edge of the doorbell
//
// The netpoller forgets edges when the call begins that looks, so those between two sleeps
// wake nobody. Who wakes the reader for other reasons rings, too (nap.go).
type perch struct {
	bell   pollable
	fd     int
	waiter int
	own    *lane.Memory
	look   func(uintptr) bool // what RawConn.Read calls, the same each time: nothing is allocated

	c     *Conn // who sleeps here
	again bool  // it has looked
}

const (
	firstPerch = 2 // of the waiters; see watch.go
	perches    = 4
)

// longSleep is more than a peer takes that is awake.
const longSleep = 100 * time.Microsecond

// A roost is the perches of a channel.
type roost struct {
	perch [perches]perch
	taken atomic.Uint32 // a bit for each
}

// open makes them; close is to be called whether it succeeds or not.
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

// take gives a perch to the reader of c; nil: it has none.
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

// arm looks when its sleeper is armed: true ends the sleep, as every edge after it does.
func (p *perch) arm(uintptr) bool {
	if p.again {
		return true
	}
	p.again = true
	p.own.Arm(p.waiter)
	c := p.c
	return c.rxReady() || c.rxStop() || c.rx.nap.state.Load() == woken
}

// sleep has the reader of c sleep here, no longer than up to its deadline. It says whether
// only the peer can have woken it.
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
	ask := lane.Ask(ourWaiter, c.wish.asks) // none: as it was
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
