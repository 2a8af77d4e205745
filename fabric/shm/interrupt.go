package shm

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// An interrupt serves one sleeper. It consists of an epoch in the node region, odd while the
// sleeper sleeps, and an inner epoll instance that holds a doorbell for each channel. One doorbell
// for all peers would not do: each peer could swallow the rings of the others.
//
//	sleeper: epoch++ (odd); fence; look at every ring; sleep; epoch++ (even)
//	sender:  publish; fence; if epoch odd and not rung for it: ring
//
// If the sender looks before the epoch becomes odd, the fences put its message before the sleeper's
// look at the rings.
type interrupt struct {
	n     *Node
	index int
	epoch *uint64
	// sources are the port halves to look at. They are changed by copy.
	sources atomic.Pointer[[]source]
	woken   atomic.Bool // by Wake, not reported by Wait yet

	// mu guards what follows, and the descriptors against Close. The sleeper does not hold it;
	// waiting says that it uses epfd.
	mu      sync.Mutex
	closed  bool
	waiting bool
	armed   bool
	epfd    int
	wakefd  int
	rings   map[uint32]*ringAccount
}

// A source is a port half that can raise an interrupt.
type source interface {
	// ready reports whether there is work. The half's goroutine calls it.
	ready() bool
	// progress returns how many messages and credits have come from a channel, and how many may
	// be in flight.
	progress(ch *channel) (done, pending uint64)
}

// A ringAccount checks that a peer rings only for a reason. Each message, and each return of
// credit, permits one ring at most.
type ringAccount struct {
	ch      *channel
	edges   uint64
	allowed uint64 // when last computed
}

// ringSlack covers the edges that registration itself makes, and the rings for a new flow or
// channel.
const ringSlack = 16

func newInterrupt(n *Node, index int) (*interrupt, error) {
	i := &interrupt{n: n, index: index, epoch: n.region.epoch(index), rings: map[uint32]*ringAccount{}}
	i.sources.Store(new([]source))
	var err error
	if i.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("interrupt: %w", limitError(os.NewSyscallError("epoll_create1", err)))
	}
	if i.wakefd, err = newDoorbell(); err == nil {
		err = i.watch(i.wakefd, 0)
	}
	if err != nil {
		i.free()
		return nil, fmt.Errorf("interrupt: %w", err)
	}
	return i, nil
}

func (i *interrupt) watch(fd int, serial uint32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(serial)}
	if err := unix.EpollCtl(i.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return limitError(os.NewSyscallError("epoll_ctl", err))
	}
	// Adding a descriptor makes an edge. Consume it unless somebody sleeps or is about to:
	// while masked, rings mean nothing, and only a Wake must be kept.
	if !i.armed {
		var events [16]unix.EpollEvent
		epollWait(i.epfd, events[:], 0)
		if i.woken.Load() {
			ringEventfd(i.wakefd)
		}
	}
	return nil
}

// connect gives the peer of a channel a doorbell for this interrupt.
func (i *interrupt) connect(ch *channel) error {
	if ch.peer.conn == nil {
		return nil // to ourselves: raise does it
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	ch.doorMu.Lock()
	defer ch.doorMu.Unlock()
	if i.closed {
		return nil
	}
	fd := ch.bells[i.index]
	if fd == 0 {
		var err error
		if fd, err = newDoorbell(); err != nil {
			return err
		}
		ch.bells[i.index] = fd
		ch.peer.send(message{kind: msgDoorbell, a: uint32(i.index)}, fd)
	}
	i.rings[ch.serial] = &ringAccount{ch: ch, allowed: ringSlack}
	return i.watch(fd, ch.serial)
}

// disconnect stops listening to the peer of a channel. Closing the bell would not suffice: it stays
// in epfd as long as the peer has it open.
func (i *interrupt) disconnect(ch *channel) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.rings, ch.serial)
	ch.doorMu.Lock()
	defer ch.doorMu.Unlock()
	if fd := ch.bells[i.index]; fd != 0 && !i.closed {
		unix.EpollCtl(i.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// attach and detach change the set of halves. They reset the accounts, since progress is counted
// over the set. A closed interrupt accepts no halves.
func (i *interrupt) attach(s source) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return fmt.Errorf("open port: its interrupt: %w", fabric.ErrClosed)
	}
	next := append(slices.Clone(*i.sources.Load()), s)
	i.sources.Store(&next)
	i.resetRings()
	return nil
}

func (i *interrupt) detach(s source) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*i.sources.Load()), func(o source) bool { return o == s })
	i.sources.Store(&next)
	i.resetRings()
	i.giveIndex()
}

// giveIndex frees the index of a closed interrupt, once no port names it to senders. The caller
// holds mu.
func (i *interrupt) giveIndex() {
	if i.closed && len(*i.sources.Load()) == 0 {
		i.n.interrupts[i.index].CompareAndSwap(i, nil)
	}
}

func (i *interrupt) resetRings() {
	for _, a := range i.rings {
		a.edges, a.allowed = 0, ringSlack
	}
}

// Arm implements fabric.Interrupt.
func (i *interrupt) Arm() bool {
	if !i.setAsleep() {
		return false
	}
	if i.ready() {
		i.Mask()
		return false
	}
	return true
}

func (i *interrupt) ready() bool {
	for _, s := range *i.sources.Load() {
		if s.ready() {
			return true
		}
	}
	return false
}

// setAsleep makes the epoch odd, with a full fence. It returns false when closed.
func (i *interrupt) setAsleep() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	if !i.armed {
		i.armed = true
		atomic.AddUint64(i.epoch, 1)
	}
	return true
}

// Mask implements fabric.Interrupt. It consumes a ring for the sleep that does not happen, which
// would otherwise cut the next sleep short.
func (i *interrupt) Mask() {
	i.mu.Lock()
	if i.closed || !i.armed {
		i.mu.Unlock()
		return
	}
	i.maskLocked()
	var events [16]unix.EpollEvent
	suspects := i.account(events[:epollWait(i.epfd, events[:], 0)])
	if i.woken.Load() {
		ringEventfd(i.wakefd)
	}
	i.mu.Unlock()
	i.judge(suspects)
}

func (i *interrupt) maskLocked() {
	if i.armed && !i.closed {
		i.armed = false
		atomic.AddUint64(i.epoch, 1)
	}
}

// Wait implements fabric.Interrupt. If a ring has nothing behind it, because it was meant for an
// earlier sleep, Wait arms and sleeps again.
func (i *interrupt) Wait(timeout time.Duration) bool {
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	for {
		over, rang := i.sleep(timeout)
		if over {
			return true
		}
		if !rang {
			return false
		}
		if i.ready() || !i.Arm() {
			return true
		}
		if timeout > 0 {
			timeout = max(time.Until(end), 0)
		}
	}
}

// sleep waits once, and masks. over means that Wait ends: the interrupt is closed, masked, or woken
// by Wake. rang means that a doorbell was rung.
func (i *interrupt) sleep(timeout time.Duration) (over, rang bool) {
	i.mu.Lock()
	if i.closed || !i.armed {
		i.mu.Unlock()
		return true, false
	}
	i.waiting = true
	epfd := i.epfd
	i.mu.Unlock()

	var events [16]unix.EpollEvent
	n := epollWait(epfd, events[:], timeout)

	i.mu.Lock()
	i.waiting = false
	if i.closed {
		i.free()
		i.mu.Unlock()
		return true, false
	}
	i.maskLocked()
	suspects := i.account(events[:n])
	i.mu.Unlock()
	i.judge(suspects)
	return i.woken.Swap(false), n > 0
}

// account counts the rings of channels. It returns, for judge, those that rang more often than is
// known to be allowed. The caller holds mu.
func (i *interrupt) account(events []unix.EpollEvent) (suspects []*ringAccount) {
	for _, ev := range events {
		a := i.rings[uint32(ev.Fd)] // none for wakefd
		if a == nil {
			continue
		}
		if a.edges++; a.edges > a.allowed {
			suspects = append(suspects, a)
		}
	}
	return suspects
}

// judge drops the channels that rang more often than they can have had reason to. The caller must
// not hold mu: it is taken under Node.mu, and the holder of that may be waiting for one of our
// halves, which it has paused.
func (i *interrupt) judge(suspects []*ringAccount) {
	for _, a := range suspects {
		allowed := uint64(ringSlack)
		for _, s := range *i.sources.Load() {
			done, pending := s.progress(a.ch)
			allowed += done + pending
		}
		i.mu.Lock()
		a.allowed = allowed
		if a.edges > allowed && !i.closed {
			a.ch.drop(fabric.RegDroppedDoorbell)
		}
		i.mu.Unlock()
	}
}

// FD implements fabric.Interrupt.
func (i *interrupt) FD() int { return i.epfd }

// Wake implements fabric.Interrupt.
func (i *interrupt) Wake() {
	i.woken.Store(true)
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		ringEventfd(i.wakefd)
	}
}

// nudge makes a sleeper look at its sources, from within this process. A goroutine that is not
// armed looks before it sleeps anyway.
func (i *interrupt) nudge() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed && i.armed {
		ringEventfd(i.wakefd)
	}
}

// Close implements fabric.Interrupt.
func (i *interrupt) Close() error {
	i.shut()
	return nil
}

func (i *interrupt) shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	i.maskLocked()
	i.closed = true
	i.giveIndex()
	if i.waiting {
		ringEventfd(i.wakefd) // then Wait frees it
	} else {
		i.free()
	}
}

func (i *interrupt) free() {
	unix.Close(i.epfd)
	if i.wakefd > 0 {
		unix.Close(i.wakefd)
	}
}

// epollWait sleeps with the precision of the clock if the kernel can.
func epollWait(epfd int, events []unix.EpollEvent, timeout time.Duration) int {
	if timeout == 0 { // it never sleeps, so do not notify the scheduler
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if e != 0 {
			return 0
		}
		return int(n)
	}
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	for {
		var ts *unix.Timespec
		ms := -1
		if timeout > 0 {
			t := unix.NsecToTimespec(int64(timeout))
			ts, ms = &t, int((timeout+time.Millisecond-1)/time.Millisecond)
		}
		r, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(ts)), 0, 0)
		n := int(r)
		if e == unix.ENOSYS || e == unix.EPERM {
			// before Linux 5.11, or a sandbox that does not know the call
			var err error
			n, err = unix.EpollWait(epfd, events, ms)
			e, _ = err.(unix.Errno)
		}
		if e == 0 {
			return n
		}
		if timeout > 0 {
			timeout = time.Until(end)
		}
		if e != unix.EINTR || timeout == 0 || timeout < 0 && !end.IsZero() {
			return 0
		}
	}
}
