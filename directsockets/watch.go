package directsockets

import (
	"runtime"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
)

// The watcher of a channel is one goroutine that sleeps for all connections of
// the channel on one doorbell, and looks for those that are ready: a user of one
// waiter (of the eight that LANE.md allows). While there is traffic it looks between
// the runs of the goroutines that it woke, and no peer rings. When it has found
// nothing a few times it arms, looks again, and sleeps in the netpoller on the doorbell.
//
// It looks at no lane on which somebody reads: thousands cost as much as one. Who
// sleeps there asks the peer for a mark (LANE.md, section 5), and the watcher looks
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
			if ch.scan() {
				vain, rings = 0, 0
			} else if vain++; vain >= calm {
				ch.own.Arm(ourWaiter)
				if !ch.scan() {
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
	return leaving + ch.many*slots
}

// Two waiters of eight are used: that of the watcher, whose bit is in a mask while
// a call sleeps, and that of the night watch, whose bit always is.
const (
	ourWaiter   = 0
	nightWaiter = 1
	awakeMask   = 1 << nightWaiter
	asleepMask  = awakeMask | 1<<ourWaiter
)

// scan wakes those who are ready, and says whether there are any.
func (ch *channel) scan() (found bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.engaged == nil {
		return false
	}
	if ch.marks.Gather(func(number uint32) {
		if int(number) >= len(ch.engaged) || ch.engaged[number] == nil {
			return
		}
		w := &ch.engaged[number].rx.waiter
		w.asked = false // who sleeps asks again
		if w.asleep {
			found = found || w.ready() // who is not has been told of what he had seen
			ch.wakeLocked(w)
		}
	}) {
		found = ch.wakeAllLocked() || found
	}
	for i := 0; i < len(ch.waiting); {
		if w := ch.waiting[i]; w.ready() {
			ch.dropLocked(w)
			ch.wakeLocked(w)
			found = true
		} else {
			i++
		}
	}
	return found
}

func (ch *channel) wakeLocked(w *waiter) {
	w.asleep = false
	w.side.wake()
}

// wakeAllLocked has all look for themselves, and says whether any was ready.
func (ch *channel) wakeAllLocked() (found bool) {
	for _, c := range ch.engaged {
		if c == nil {
			continue
		}
		w := &c.rx.waiter
		w.asked = false
		if w.asleep {
			found = found || w.ready()
			ch.wakeLocked(w)
		}
	}
	for len(ch.waiting) > 0 {
		w := ch.waiting[0]
		found = found || w.ready()
		ch.dropLocked(w)
		ch.wakeLocked(w)
	}
	return found
}

// napsToTell are between two times that a sleeper says where it runs: a system call
// that is short, but not beside a thousand of sleepers.
const napsToTell = 8

// watchRx has the watcher wake the reader of c from now on; it looks again before it
// sleeps.
func (ch *channel) watchRx(c *Conn) {
	w := &c.rx.waiter
	ch.mu.Lock()
	w.asleep = true
	if !w.asked {
		w.asked = true
		w.asks++
	}
	word := asleepMask | lane.Ask(ourWaiter, w.asks)
	tell := ch.napLocked()
	ch.mu.Unlock()
	if tell {
		ch.ran() // or the peer does not spin for where we were long ago
	}
	c.own.RxWaiters.Store(word) // and a fence: sync/atomic
}

func (ch *channel) unwatchRx(c *Conn) {
	w := &c.rx.waiter
	c.own.RxWaiters.Store(awakeMask | lane.Ask(ourWaiter, w.asks))
	ch.mu.Lock()
	w.asleep = false
	ch.mu.Unlock()
}

// watchTx is watchRx for the writer.
func (ch *channel) watchTx(c *Conn) {
	w := &c.tx.waiter
	ch.mu.Lock()
	w.asleep, w.at = true, len(ch.waiting)
	ch.waiting = append(ch.waiting, w)
	tell := ch.napLocked()
	ch.mu.Unlock()
	if tell {
		ch.ran()
	}
	c.own.TxWaiters.Store(asleepMask)
}

func (ch *channel) unwatchTx(c *Conn) {
	c.own.TxWaiters.Store(awakeMask)
	ch.mu.Lock()
	if w := &c.tx.waiter; w.asleep {
		w.asleep = false
		ch.dropLocked(w)
	}
	ch.mu.Unlock()
}

func (ch *channel) napLocked() (tell bool) {
	ch.naps++
	return ch.naps%napsToTell == 0
}

// dropLocked takes a writer that is there off the list.
func (ch *channel) dropLocked(w *waiter) {
	last := len(ch.waiting) - 1
	ch.waiting[w.at] = ch.waiting[last]
	ch.waiting[w.at].at = w.at
	ch.waiting[last] = nil
	ch.waiting = ch.waiting[:last]
}

// nothing is what rings a doorbell: it adds 0 to an eventfd.
var nothing [8]byte

func ringBell(fd int) {
	// Adding 0 never blocks, whatever the peer has done to the eventfd.
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), nothingAt, uintptr(len(nothing)))
}
