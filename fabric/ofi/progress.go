package ofi

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// Progress is made under Node.mu by whichever thread polls a port. The node's
// own thread does it while nobody polls: it sleeps on the provider's wait
// object, and on an eventfd by which others wake it.
//
// While owners poll, the thread keeps away from the lock for napTime at a time.
// An owner that goes to sleep wakes it, so that nothing waits for the nap to end.
const (
	napTime  = 200 * time.Microsecond
	tickTime = 20 * time.Millisecond  // while something is owed to a peer
	idleTime = 200 * time.Millisecond // else
	// pollTime is the rate at which a provider is polled that has no wait
	// object, or one that has refused an operation: it does not say when to
	// try again.
	pollTime = time.Millisecond
)

type progressThread struct {
	n      *Node
	polls  atomic.Uint64 // by owners
	asleep atomic.Bool   // napping: an owner that goes to sleep ends it
	long   atomic.Bool   // asleep on the provider's wait object
	wakeFD int
	events [64]libfabric.Event
	tickAt time.Time
	done   chan struct{}
}

// needed ends the thread's nap: somebody is about to sleep.
func (t *progressThread) needed() {
	if t.asleep.Load() {
		ringEventfd(t.wakeFD)
	}
}

// kick has the thread look again if it sleeps: something is due of which the
// provider need not wake it.
func (t *progressThread) kick() {
	if t.long.CompareAndSwap(true, false) {
		ringEventfd(t.wakeFD)
	}
}

// run is the thread.
func (t *progressThread) run() {
	defer close(t.done)
	n := t.n
	last := t.polls.Load()
	for {
		if now := t.polls.Load(); now != last {
			last = now
			t.asleep.Store(true)
			t.sleep(-1, napTime)
			t.asleep.Store(false)
			if t.polls.Load() != last { // their drives tick, too
				continue
			}
		}
		n.mu.Lock()
		if n.stopped {
			n.mu.Unlock()
			return
		}
		n.drive()
		wait, fd := n.mayWait()
		t.long.Store(wait > 0)
		n.mu.Unlock()
		if wait > 0 {
			t.sleep(fd, wait)
		}
		t.long.Store(false)
	}
}

// mayWait says how long the thread may sleep, and on what.
func (n *Node) mayWait() (time.Duration, int) {
	wait := min(max(time.Until(n.progress.tickAt), 0), idleTime)
	switch {
	case n.refused || n.waitFD < 0:
		return min(max(wait, pollTime/4), pollTime), -1
	case !n.engine.MayWait():
		return 0, -1
	}
	return max(wait, time.Millisecond), n.waitFD
}

func (t *progressThread) sleep(fd int, d time.Duration) {
	fds := []unix.PollFd{{Fd: int32(t.wakeFD), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	unix.Ppoll(fds, &ts, nil)
	if fds[0].Revents != 0 {
		drainEventfd(t.wakeFD)
	}
}

// drive takes what has come and sends what is due. Node.mu is held.
func (n *Node) drive() {
	n.refused = false
	n.now = time.Now()
	for {
		k := n.engine.Poll(n.progress.events[:])
		for _, ev := range n.progress.events[:k] {
			n.event(ev)
		}
		if k < len(n.progress.events) {
			break
		}
	}
	if !n.now.Before(n.progress.tickAt) {
		n.tick()
	}
	for len(n.busy) > 0 {
		p := n.busy[len(n.busy)-1]
		n.busy = n.busy[:len(n.busy)-1]
		p.busy = false
		n.flush(p)
	}
	for _, p := range n.list {
		if p.blocked {
			n.flush(p)
		}
	}
}

// touch has a peer's frames flushed at the end of the drive.
func (n *Node) touch(p *peer) {
	if !p.busy {
		p.busy = true
		n.busy = append(n.busy, p)
	}
}

// event handles a completion.
func (n *Node) event(ev libfabric.Event) {
	i := int(uint32(ev.Context))
	switch ev.Context & contextMask {
	case contextRecv:
		if i >= len(n.rx) {
			return
		}
		if ev.Errno == 0 {
			n.receive(n.rx[i][:min(max(ev.Length, 0), frameSize)])
		} else {
			n.count(fabric.RegLinkCRCErrors, 1)
		}
		n.repost(i)
	case contextSend:
		n.frames.completed(n, i, ev.Errno != 0)
	case contextRMA:
		if i < len(n.ops) {
			n.transferred(&n.ops[i], ev.Errno)
		}
	}
}

func (n *Node) repost(i int) {
	if err := n.engine.Recv(n.rx[i], n.slab, contextRecv|uint64(i)); err != nil {
		n.unposted = append(n.unposted, i)
	}
}

// tick does what is due by time.
func (n *Node) tick() {
	next := n.now.Add(idleTime)
	unposted := n.unposted
	n.unposted = n.unposted[:0]
	for _, i := range unposted {
		n.repost(i)
	}
	for _, p := range n.list {
		if at := n.attend(p); at.Before(next) {
			next = at
		}
	}
	n.progress.tickAt = next
}

// soon makes the next tick come early, for what is owed to a peer.
func (n *Node) soon() {
	if at := time.Now().Add(tickTime); at.Before(n.progress.tickAt) {
		n.progress.tickAt = at
		n.progress.kick()
	}
}
