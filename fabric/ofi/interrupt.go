package ofi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// An interrupt is an eventfd. Its state is under Node.mu: raise and Arm see one
// another, so no wake-up is lost. A nil interrupt is one that nobody listens to.
type interrupt struct {
	n       *Node
	sources []source
	armed   bool
	raised  bool // since it was armed
	woken   bool // by Wake, until the next Wait
	closed  bool
	rung    bool // the eventfd is readable
	waiting int  // threads that sleep on fd
	fd      int
}

var _ fabric.Interrupt = (*interrupt)(nil)

// A source is a half of a port.
type source interface {
	work() bool // is there something to do?
}

// NewInterrupt implements fabric.Node.
func (n *Node) NewInterrupt() (fabric.Interrupt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, n.errClosed("new interrupt")
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("new interrupt: %w: %w; raise the limit of open files (ulimit -n)", fabric.ErrMemory, os.NewSyscallError("eventfd", err))
	}
	i := &interrupt{n: n, fd: fd}
	n.interrupts[i] = true
	return i, nil
}

// raise raises the interrupt if it is armed and has not been raised yet; it
// counts what it did.
func (i *interrupt) raise() {
	if i == nil {
		return
	}
	if !i.armed || i.raised {
		i.n.count(fabric.RegInterruptsSuppressed, 1)
		return
	}
	i.n.count(fabric.RegInterrupts, 1)
	i.raised = true
	i.ring()
}

// tell is raise for what is no message and is not counted.
func (i *interrupt) tell() {
	if i != nil && i.armed && !i.raised {
		i.raised = true
		i.ring()
	}
}

func (i *interrupt) ring() {
	if !i.rung && i.fd >= 0 {
		i.rung = true
		ringEventfd(i.fd)
	}
}

func (i *interrupt) quiet() {
	if i.rung {
		i.rung = false
		drainEventfd(i.fd)
	}
}

func (i *interrupt) attach(s source) {
	if i != nil {
		i.sources = append(i.sources, s)
	}
}

func (i *interrupt) detach(s source) {
	if i != nil {
		i.sources = slices.DeleteFunc(i.sources, func(o source) bool { return o == s })
	}
}

// Arm implements fabric.Interrupt.
func (i *interrupt) Arm() bool {
	n := i.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if i.closed {
		return false
	}
	i.armed, i.raised = true, false
	if !i.woken {
		i.quiet()
	}
	if !n.closed {
		n.drive() // what has come is work, too
	}
	for _, s := range i.sources {
		if s.work() {
			i.armed, i.raised = false, false
			i.quietUnlessWoken()
			return false
		}
	}
	return true
}

func (i *interrupt) quietUnlessWoken() {
	if !i.woken && !i.closed {
		i.quiet()
	}
}

// Mask implements fabric.Interrupt.
func (i *interrupt) Mask() {
	i.n.mu.Lock()
	defer i.n.mu.Unlock()
	i.armed, i.raised = false, false
	i.quietUnlessWoken()
}

// Wait implements fabric.Interrupt.
func (i *interrupt) Wait(timeout time.Duration) bool {
	n := i.n
	var end time.Time
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	expired := timeout == 0
	for {
		n.mu.Lock()
		woken := i.raised || i.woken || i.closed
		if woken || !i.armed || expired {
			i.armed, i.raised, i.woken = false, false, false
			i.quietUnlessWoken()
			n.mu.Unlock()
			return woken
		}
		i.waiting++
		fd := i.fd
		n.mu.Unlock()
		n.progress.needed()
		left := -1
		if timeout > 0 {
			left = int(max(time.Until(end), 0)/time.Millisecond) + 1
		}
		k, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, left)
		expired = k == 0 && err == nil
		n.mu.Lock()
		i.waiting--
		i.free()
		n.mu.Unlock()
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// FD implements fabric.Interrupt.
func (i *interrupt) FD() int { return i.fd }

// Wake implements fabric.Interrupt.
func (i *interrupt) Wake() {
	i.n.mu.Lock()
	defer i.n.mu.Unlock()
	i.woken = true
	i.ring()
}

// Close implements fabric.Interrupt.
func (i *interrupt) Close() error {
	i.n.mu.Lock()
	defer i.n.mu.Unlock()
	i.close()
	delete(i.n.interrupts, i)
	i.free()
	return nil
}

// close makes Wait return from now on; Node.mu is held.
func (i *interrupt) close() {
	i.closed = true
	i.ring()
}

// free gives the descriptor back once no thread sleeps on it and the node does
// not know it any more; Node.mu is held.
func (i *interrupt) free() {
	if i.closed && i.waiting == 0 && !i.n.interrupts[i] && i.fd >= 0 {
		unix.Close(i.fd)
		i.fd = -1
	}
}

func ringEventfd(fd int) {
	one := [8]byte{1}
	unix.Write(fd, one[:]) // fails only when it is rung already
}

func drainEventfd(fd int) {
	var b [8]byte
	unix.Read(fd, b[:])
}
