package emu

import (
	"slices"
	"time"

	"exnet/fabric"
)

var _ fabric.Interrupt = (*interrupt)(nil)

// An interrupt wakes through a channel, so synctest counts a sleeper as durably blocked. A nil
// interrupt has no listener.
type interrupt struct {
	node    *node
	sources []source
	armed   bool
	raised  bool // since it was armed
	woken   bool // by Wake, until the next Wait
	closed  bool
	signal  chan struct{} // one of the three became true
}

// A source is one half of a port.
type source interface {
	work() bool // is there something to do?
}

// raise raises the interrupt if it is armed and has not been raised yet.
func (i *interrupt) raise() bool {
	if i == nil || !i.armed || i.raised {
		return false
	}
	i.raised = true
	i.notify()
	return true
}

func (i *interrupt) notify() {
	select {
	case i.signal <- struct{}{}:
	default:
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

func (i *interrupt) Arm() bool {
	i.node.net.mu.Lock()
	defer i.node.net.mu.Unlock()
	work := false
	for _, s := range i.sources {
		work = s.work() || work
	}
	i.armed, i.raised = !work, false
	return !work
}

func (i *interrupt) Mask() {
	i.node.net.mu.Lock()
	defer i.node.net.mu.Unlock()
	i.armed, i.raised = false, false
}

func (i *interrupt) Wait(timeout time.Duration) bool {
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for {
		if done, woken := i.wake(timeout == 0); done {
			return woken
		}
		select {
		case <-i.signal:
		case <-expired:
			timeout = 0
		}
	}
}

// wake reports whether a Wait is over, and whether it was woken.
func (i *interrupt) wake(expired bool) (done, woken bool) {
	i.node.net.mu.Lock()
	defer i.node.net.mu.Unlock()
	woken = i.raised || i.woken || i.closed
	if !woken && i.armed && !expired {
		return false, false
	}
	i.armed, i.raised, i.woken = false, false, false
	return true, woken
}

func (i *interrupt) FD() int { return -1 }

func (i *interrupt) Wake() {
	i.node.net.mu.Lock()
	defer i.node.net.mu.Unlock()
	i.woken = true
	i.notify()
}

func (i *interrupt) Close() error {
	i.node.net.mu.Lock()
	defer i.node.net.mu.Unlock()
	i.close()
	i.node.interrupts = slices.DeleteFunc(i.node.interrupts, func(o *interrupt) bool { return o == i })
	return nil
}

func (i *interrupt) close() {
	i.closed = true
	i.notify()
}
