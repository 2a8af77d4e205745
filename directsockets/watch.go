package directsockets

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// The watcher of a channel is one goroutine that sleeps for all connections of
// the channel on one doorbell, and looks for those that are ready: a user of one
// waiter (of the eight that LANE.md allows). While there is traffic it looks at
// the lanes of all sleepers in turn, between the runs of the goroutines that it
// woke, and no peer rings. When it has found nothing a few times it arms, looks
// again, and sleeps in the netpoller on the doorbell.
//
//	sleeper S                  watcher W                producer
//	  into the list              a new odd epoch          post (or credit), a fence (1)
//	  bit 0 of the mask, fence   a fence (2)              read mask, then epoch
//	  look again; sleep          look at all of the list  odd and not rung for it: ring
//	                             sleep
//
// No wake-up is lost (test/memmodel/channel, watcher, has it as a model). If the producer misses S's bit, its post was before S's look.
// If it sees the bit and no odd epoch, W is awake or about to arm, and looks at
// the list, with S in it, after that. If it sees an epoch that was rung for
// already, W was woken by that ring, and again looks at the list after the next
// epoch. W sleeps in one call of RawConn.Read for all of its life: an edge that
// comes while it looks is kept by the netpoller.

// calm is how many looks in vain it takes to sleep. Between two of them every
// goroutine that can run has run, so under load the next find is near.
const calm = 4

func (ch *channel) watchBell() {
	defer ch.release()
	rings := 0 // since the last that brought something
	ch.bell.raw.Read(func(uintptr) bool {
		if rings++; rings > ch.mostRings() {
			ch.home.mu.Lock()
			ch.kill(reasonHostile)
			ch.home.mu.Unlock()
		}
		for vain := 0; ch.live.Load() == alive; {
			if ch.scan() > 0 {
				vain, rings = 0, 0
			} else if vain++; vain >= calm {
				ch.own.Arm(ourWaiter)
				if ch.scan() == 0 {
					return false
				}
				ch.own.Disarm(ourWaiter)
				vain = 0
			}
			runtime.Gosched()
		}
		return true
	})
}

// mostRings is how often an honest peer rings at most and wakes nobody: for all slots
// of all lanes, both ways, where the sleepers got up by themselves; and to take lanes
// away, once a millisecond for a second. Who only rings costs us time (DESIGN 2).
func (ch *channel) mostRings() int {
	const leaving, slots = 4096, 2 * 1024
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return leaving + len(ch.engaged)*slots
}

// Two waiters of eight are used: that of the watcher, whose bit is in a mask while
// a call sleeps, and that of the night watch, whose bit always is.
const (
	ourWaiter   = 0
	nightWaiter = 1
	awakeMask   = 1 << nightWaiter
	asleepMask  = awakeMask | 1<<ourWaiter
)

// scan wakes those who are ready and counts them.
func (ch *channel) scan() (found int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i := 0; i < len(ch.waiting); {
		if w := ch.waiting[i]; w.ready() {
			ch.dropLocked(w)
			w.side.wake()
			found++
		} else {
			i++
		}
	}
	return found
}

// napsToTell are between two times that a sleeper says where it runs: a system call
// that is short, but not beside a thousand of sleepers.
const napsToTell = 8

// watch has the watcher look at w from now on; the caller looks again before it
// sleeps.
func (ch *channel) watch(w *waiter, c *Conn) {
	ch.mu.Lock()
	w.at = len(ch.waiting)
	ch.waiting = append(ch.waiting, w)
	ch.naps++
	tell := ch.naps%napsToTell == 0
	ch.mu.Unlock()
	if tell {
		ch.ran() // or the peer does not spin for where we were long ago
	}
	w.mask(c.own).Store(asleepMask) // and a fence: sync/atomic
}

func (ch *channel) unwatch(w *waiter, c *Conn) {
	w.mask(c.own).Store(awakeMask)
	ch.mu.Lock()
	ch.dropLocked(w)
	ch.mu.Unlock()
}

func (ch *channel) dropLocked(w *waiter) {
	if w.at < 0 {
		return
	}
	last := len(ch.waiting) - 1
	ch.waiting[w.at] = ch.waiting[last]
	ch.waiting[w.at].at = w.at
	ch.waiting[last] = nil
	ch.waiting = ch.waiting[:last]
	w.at = -1
}

// nothing is what rings a doorbell: it adds 0 to an eventfd.
var nothing [8]byte

func ringBell(fd int) {
	// Adding 0 never blocks, whatever the peer has done to the eventfd.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), nothingAt, uintptr(len(nothing)))
}
