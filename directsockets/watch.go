package directsockets

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/internal/late"
)

// The watcher of a channel is one goroutine that sleeps for all connections of
// the channel on one doorbell, and looks for those that are ready: a user of one
// waiter (of the eight that ext-ds.md allows). While there is traffic it looks between
// the runs of the goroutines that it woke, and no peer rings. When it has found
// nothing a few times it arms, looks again, and sleeps in the netpoller on the doorbell.
//
// It looks at no lane on which somebody reads: thousands cost as much as one. Who
// sleeps there asks the peer for a mark (ext-ds.md, section 5), and the watcher looks
// at the marks. Writers that sleep for room are few, and get none: it looks at each.
//
//	reader S                     watcher W                producer
//	  asleep; asked, for W         a new odd epoch          post, a fence (1)
//	  bit 0 and the request in     a fence (2)              asked once more: mark, a fence
//	  the mask, fence              look at all marks        mask has the bit, epoch is odd
//	  look again; sleep            sleep                    and not rung for it: ring
//
// No wake-up is lost (test/memmodel/channel, watcher, has it as a model). If the producer
// misses S's bit, its post was before S's look. If it sees it, it sees the request too,
// so the mark of that is made, or was made before. W has it seen when S is asleep, or
// will: if the producer sees the bit and no odd epoch, W is awake or about to arm, and
// looks at the marks after that. If it sees an epoch that was rung for already, W was
// woken by that ring, and again looks after the next epoch. W sleeps in one call of
// RawConn.Read for all of its life: an edge that comes while it looks is kept by the
// netpoller.
//
// S asks anew only when its last mark was seen, asleep or not: so no two of a lane are
// on their way. If two are nevertheless, of a connection that had the lane before, the
// bit is as it was; but they were counted, and W has all look for themselves.
//
// A reader is ready for other reasons too: those that the socket tells and those that
// this process makes wake it by themselves (Conn.told, Conn.reset, side.take, channel.kill).

// calm is how many looks in vain it takes to sleep. Between two of them every
// goroutine that can run has run, so under load the next find is near.
const calm = 4

// armsToTell are between two times that the watcher says where it runs: a system call
// that is short.
const armsToTell = 8

func (ch *channel) watchBell() {
	defer ch.release()
	rings := 0 // since the last that brought something
	arms := 0
	ch.bell.raw.Read(func(uintptr) bool {
		if rings++; rings > ch.mostRings() {
			ch.rungForNothing()
		}
		for vain := 0; ch.live.Load() == alive; {
			found, credit := ch.scan()
			if found || credit {
				rings = 0
			}
			if found {
				vain = 0
			} else if vain++; vain >= calm {
				if arms++; arms%armsToTell == 0 {
					ch.ran() // or the peer does not spin for where we were long ago
				}
				ch.own.Arm(ourWaiter)
				if found, credit = ch.scan(); credit {
					rings = 0
				}
				if !found {
					return false
				}
				ch.own.Disarm(ourWaiter)
				vain = 0
			}
			late.Yield()
			runtime.Gosched()
		}
		return true
	})
}

// mostRings is how often an honest peer rings at most and wakes nobody: for all slots
// of all lanes, both ways, where the sleepers got up by themselves; and to take lanes
// away, once a millisecond for a second. Credit that is not worth waking a writer is another
// thing: who reads byte by byte rings for each. Who only rings costs us time (TRU-1).
func (ch *channel) mostRings() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ringsLeaving + ch.many*ringsOfLane
}

const ringsLeaving, ringsOfLane = 4096, 2 * 1024

// rung is told of a ring that woke the reader of c on a perch, where it is again only after a
// long sleep.
func (c *Conn) rung() {
	if c.in.rings++; c.in.rings > ringsLeaving+ringsOfLane {
		c.ch.rungForNothing()
	}
}

// rungForNothing ends the channel of a peer that only rings.
func (ch *channel) rungForNothing() {
	ch.home.mu.Lock()
	ch.kill(reasonHostile)
	ch.home.mu.Unlock()
}

// Of eight waiters those of perches are used by one reader each (perch.go), one by the
// watcher, whose bit is in a mask while a call sleeps that it wakes, and one by the night
// watch, whose bit always is.
const (
	ourWaiter   = 0
	nightWaiter = 1
	awakeMask   = 1 << nightWaiter
	asleepMask  = awakeMask | 1<<ourWaiter
)

// A wish is what the reader of a connection wants of the watcher. The reader goes from
// any state to wishAsleep, the watcher from any to wishNone when it sees a mark, and a
// reader that gets up by itself from wishAsleep to wishAwake. Each is one exchange: it
// takes no lock that a thousand others want.
type wish struct {
	state atomic.Uint32
	asks  uint64 // how often a mark was asked for; the reader's
}

const (
	wishNone   = 0 // no mark is to come
	wishAwake  = 1 // one is, and nobody sleeps
	wishAsleep = 2
)

// grant wakes the reader of c, if it sleeps; it asks anew when it sleeps again.
func (c *Conn) grant() (woken bool) {
	if woken = c.wish.state.Swap(wishNone) == wishAsleep; woken {
		c.rx.nap.wake()
	}
	return woken
}

// scan wakes those who are ready, and says whether there are any; and whether there is credit
// for writers, who sleep until it is worth while.
func (ch *channel) scan() (found, credit bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.engaged == nil {
		return false, false
	}
	if ch.marks.Gather(func(number uint32) {
		if int(number) < len(ch.engaged) {
			if c := ch.engaged[number].Value(); c != nil && c.grant() {
				found = true
			}
		}
	}) {
		ch.wakeAllLocked() // a peer may lie about it: nothing is found
	}
	for i := 0; i < len(ch.waiting); {
		c := ch.waiting[i]
		if has := c.out.w.Credit(); has > c.credit {
			c.credit, credit = has, true
		}
		if c.txReady() {
			ch.dropLocked(c)
			c.tx.nap.wake()
			found = true
		} else {
			i++
		}
	}
	return found, credit
}

// wakeAllLocked has all look for themselves.
func (ch *channel) wakeAllLocked() {
	for _, w := range ch.engaged {
		if c := w.Value(); c != nil {
			c.grant()
			c.rx.nap.wake() // who is on a perch
		}
	}
	for len(ch.waiting) > 0 {
		c := ch.waiting[0]
		ch.dropLocked(c)
		c.tx.nap.wake()
	}
}

// watchRx has the watcher wake the reader of c from now on; it looks again before it
// sleeps.
func (ch *channel) watchRx(c *Conn) {
	if c.wish.state.Swap(wishAsleep) == wishNone {
		c.wish.asks++
	}
	c.own.RxWaiters.Store(asleepMask | lane.Ask(ourWaiter, c.wish.asks)) // and a fence: sync/atomic
}

func (ch *channel) unwatchRx(c *Conn) {
	c.own.RxWaiters.Store(awakeMask | lane.Ask(ourWaiter, c.wish.asks))
	if c.wish.state.Load() == wishAsleep {
		c.wish.state.CompareAndSwap(wishAsleep, wishAwake)
	}
}

// watchTx is watchRx for the writer.
func (ch *channel) watchTx(c *Conn) {
	ch.mu.Lock()
	c.at, c.credit = len(ch.waiting), c.out.w.Credit()
	ch.waiting = append(ch.waiting, c)
	ch.mu.Unlock()
	c.out.w.Ask()
	c.own.TxWaiters.Store(asleepMask)
}

func (ch *channel) unwatchTx(c *Conn) {
	c.own.TxWaiters.Store(awakeMask)
	ch.mu.Lock()
	if c.at < len(ch.waiting) && ch.waiting[c.at] == c {
		ch.dropLocked(c)
	}
	ch.mu.Unlock()
}

// dropLocked takes a writer that is there off the list.
func (ch *channel) dropLocked(c *Conn) {
	last := len(ch.waiting) - 1
	ch.waiting[c.at] = ch.waiting[last]
	ch.waiting[c.at].at = c.at
	ch.waiting[last] = nil
	ch.waiting = ch.waiting[:last]
}

// nothing is what rings a doorbell: it adds 0 to an eventfd.
var nothing [8]byte

func ringBell(fd int) {
	late.Wake()
	// Adding 0 never blocks, whatever the peer has done to the eventfd.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), nothingAt, uintptr(len(nothing)))
}
