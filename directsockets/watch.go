package directsockets

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/internal/late"
)

// The watcher of a channel is one goroutine that sleeps for all connections of the channel on one
// doorbell, and looks for those that are ready. It uses one of the eight waiters that ext-ds.md
// allows. While there is traffic, it looks again each time the goroutines that it woke have run,
// and no peer rings. When it has found nothing a few times, it arms its waiter, looks again, and
// sleeps in the netpoller on the doorbell.
//
// The watcher does not look at each lane on which somebody reads, so thousands cost as much as one.
// A reader that sleeps there asks the peer for a mark (ext-ds.md, section 5), and the watcher looks
// at the marks. Writers that sleep for room are few and get no marks: the watcher looks at each of
// them.
//
//	reader S                     watcher W                producer
//	  asleep; asked, for W         a new odd epoch          post, a fence (1)
//	  bit 0 and the request in     a fence (2)              asked once more: mark, a fence
//	  the mask, fence              look at all marks        mask has the bit, epoch is odd
//	  look again; sleep            sleep                    and not rung for it: ring
//
// No wake-up is lost (test/memmodel/channel models the watcher). If the producer misses S's bit, it
// posted before S looked. If it sees the bit, it also sees the request, so it makes the mark, or
// made it before. W has seen the mark when S was asleep, or will see it. If the producer sees the
// bit and no odd epoch, W is awake or about to arm, and looks at the marks after that. If the
// producer sees an epoch for which it has rung already, that ring woke W, and W looks again after
// the next epoch. W spends all of its life in one call of RawConn.Read, so the netpoller keeps an
// edge that comes while W looks.
//
// S makes a new request only when its last mark was seen, whether it slept then or not. So there
// are never two marks for one lane at a time. If there are two nevertheless, because another
// connection had the lane before, the bit is back at its old value. But marks are counted, and W
// then wakes all readers to look for themselves.
//
// A reader may also become ready for other reasons. What the socket reports or this process causes
// wakes it directly (Conn.told, Conn.reset, side.take, channel.kill).

// calm is the number of looks in vain before the watcher sleeps. Between two of them every
// goroutine that can run has run, so under load the next find is near.
const calm = 4

// armsToTell is how often the watcher arms before it tells the peer again on which CPU it runs,
// which takes a short system call.
const armsToTell = 8

func (ch *channel) watchBell() {
	defer ch.release()
	rings := 0 // since the last one that brought something
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
					ch.ran() // otherwise the peer does not spin because of where we ran long ago
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

// mostRings is how often an honest peer rings at most without waking anybody: for all slots of all
// lanes, in both directions, if the sleepers woke by themselves, and to take lanes away, once a
// millisecond for a second. Credit that is not worth waking a writer does not count, since a peer
// that reads byte by byte rings for each. A peer that only rings costs us time (TRU-1).
func (ch *channel) mostRings() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ringsLeaving + ch.many*ringsOfLane
}

const ringsLeaving, ringsOfLane = 4096, 2 * 1024

// rung counts a ring that woke the reader of c on a perch. The reader is there again only after a
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

// Of the eight waiters, one reader each uses those of perches (perch.go). The watcher uses one,
// whose bit is in a mask while a call sleeps that it is to wake. The night watch uses one, whose
// bit is always in the masks.
const (
	ourWaiter   = 0
	nightWaiter = 1
	awakeMask   = 1 << nightWaiter
	asleepMask  = awakeMask | 1<<ourWaiter
)

// A wish is what the reader of a connection wants of the watcher. The reader goes from any state to
// wishAsleep. The watcher goes from any state to wishNone when it sees a mark. A reader that wakes
// by itself goes from wishAsleep to wishAwake. Each transition is one atomic exchange, without a
// lock for which a thousand others compete.
type wish struct {
	state atomic.Uint32
	asks  uint64 // how often the reader has asked for a mark
}

const (
	wishNone   = 0 // no mark will come
	wishAwake  = 1 // a mark will come, and nobody sleeps
	wishAsleep = 2 // a mark will come, and the reader sleeps
)

// grant wakes the reader of c if it sleeps. The reader asks again when it sleeps again.
func (c *Conn) grant() (woken bool) {
	if woken = c.wish.state.Swap(wishNone) == wishAsleep; woken {
		c.rx.nap.wake()
	}
	return woken
}

// scan wakes the calls that are ready. It reports whether there were any, and whether there is
// credit for writers that sleep until more is worth while.
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
		ch.wakeAllLocked() // a peer may lie about it, so this does not count as found
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

// wakeAllLocked wakes all readers and waiting writers to look for themselves.
func (ch *channel) wakeAllLocked() {
	for _, w := range ch.engaged {
		if c := w.Value(); c != nil {
			c.grant()
			c.rx.nap.wake() // wakes a reader on a perch
		}
	}
	for len(ch.waiting) > 0 {
		c := ch.waiting[0]
		ch.dropLocked(c)
		c.tx.nap.wake()
	}
}

// watchRx makes the watcher wake the reader of c from now on. The reader looks again before it
// sleeps.
func (ch *channel) watchRx(c *Conn) {
	if c.wish.state.Swap(wishAsleep) == wishNone {
		c.wish.asks++
	}
	// also a fence: sync/atomic
	c.own.RxWaiters.Store(asleepMask | lane.Ask(ourWaiter, c.wish.asks))
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

// dropLocked takes a writer off the list, on which it must be.
func (ch *channel) dropLocked(c *Conn) {
	last := len(ch.waiting) - 1
	ch.waiting[c.at] = ch.waiting[last]
	ch.waiting[c.at].at = c.at
	ch.waiting[last] = nil
	ch.waiting = ch.waiting[:last]
}

// nothing is what rings a doorbell: adding 0 to an eventfd.
var nothing [8]byte

func ringBell(fd int) {
	late.Wake()
	// Adding 0 never blocks, whatever the peer has done to the eventfd.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), nothingAt, uintptr(len(nothing)))
}
