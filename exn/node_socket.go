package exn

import (
	"net"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A socket is the common part of all sockets of a [Node]: an endpoint of netstack, and the means to
// wait for it.
//
// An endpoint never blocks: it returns ErrWouldBlock and notifies later. Each direction has a
// channel that holds one notification. Its lock lets one caller at a time wait, and that caller
// gets the notification. The next caller tries first, so it misses nothing.
type socket struct {
	ep      tcpip.Endpoint
	network string // as given to Dial or Listen
	local   net.Addr

	read, write half
	closed      chan struct{} // closed by Close
	node        chan struct{} // closed when the node ends
	once        sync.Once
}

// A half is one direction of a socket.
type half struct {
	mu       sync.Mutex
	entry    waiter.Entry
	ready    chan struct{}
	deadline deadline
	moved    chan struct{} // holds a token after the deadline was changed
}

func (h *half) init(queue *waiter.Queue, mask waiter.EventMask) {
	h.entry, h.ready = waiter.NewChannelEntry(mask)
	h.moved = make(chan struct{}, 1)
	queue.EventRegister(&h.entry)
}

func (h *half) setDeadline(t time.Time) {
	h.deadline.set(t)
	select {
	case h.moved <- struct{}{}:
	default:
	}
}

// open prepares a socket for use.
func (s *socket) open(ep tcpip.Endpoint, queue *waiter.Queue, network string, node chan struct{}) {
	s.ep, s.network, s.node, s.closed = ep, network, node, make(chan struct{})
	s.read.init(queue, waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr)
	s.write.init(queue, waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
}

// do calls try, which does not block, until it returns anything but ErrWouldBlock. The caller has
// locked h.
func (s *socket) do(h *half, try func() tcpip.Error) (tcpip.Error, error) {
	for {
		past := h.deadline.wait()
		select {
		case <-s.closed:
			return nil, net.ErrClosed
		case <-s.node:
			return nil, net.ErrClosed
		case <-past:
			return nil, os.ErrDeadlineExceeded
		default:
		}
		err := try()
		if _, wait := err.(*tcpip.ErrWouldBlock); !wait {
			return err, nil
		}
		select {
		case <-h.ready:
		case <-h.moved:
		case <-past:
		case <-s.closed:
		case <-s.node:
		}
	}
}

// Close implements net.Conn. A second call returns net.ErrClosed, as in package net.
func (s *socket) Close() error {
	first := false
	s.once.Do(func() {
		first = true
		close(s.closed)
		s.ep.Close()
	})
	if !first {
		return s.opError("close", nil, net.ErrClosed)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (s *socket) LocalAddr() net.Addr { return s.local }

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(t time.Time) error {
	s.read.setDeadline(t)
	s.write.setDeadline(t)
	return s.usable("set")
}

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.read.setDeadline(t)
	return s.usable("set")
}

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.write.setDeadline(t)
	return s.usable("set")
}

func (s *socket) usable(op string) error {
	select {
	case <-s.closed:
		return s.opError(op, nil, net.ErrClosed)
	default:
		return nil
	}
}
