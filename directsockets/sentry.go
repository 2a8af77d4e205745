package directsockets

import (
	"os"
	"sync"
	"weak"

	"golang.org/x/sys/unix"
)

// A sentry watches the TCP sockets of all engaged connections of a rendezvous. It has an epoll set
// of its own, and one goroutine that sleeps in the netpoller. So a call that sleeps on a lane need
// not ask the kernel. The sentry notes an end, a reset or bytes by TCP (hint, room), and wakes the
// sleepers. The set is edge-triggered and reports each event once; an event before a sleep is in
// the note by then, and a later one wakes the sleeper. Bytes that go back to TCP and found no room
// need no sleeper: the sentry has them sent when there is room (owes).
type sentry struct {
	set pollable

	mu    sync.Mutex
	conns map[int32]weak.Pointer[Conn]
	last  int32
}

func newSentry() (*sentry, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		// otherwise it does not join the netpoller
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &sentry{conns: map[int32]weak.Pointer[Conn]{}}
	if s.set, err = newPollable(fd, "exn-ds-sentry"); err != nil {
		return nil, err
	}
	go s.watch()
	return s, nil
}

func (s *sentry) watch() {
	var events [64]unix.EpollEvent
	s.set.raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events[:], 0)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return false // the netpoller reports the next edge
			}
			for _, e := range events[:n] {
				s.mu.Lock()
				w := s.conns[e.Fd]
				s.mu.Unlock()
				if c := w.Value(); c != nil {
					c.told(e.Events)
				}
			}
		}
	})
}

// told notes the events that the kernel reports for the socket.
func (c *Conn) told(events uint32) {
	if events&^unix.EPOLLOUT != 0 {
		c.hint.Store(true)
		c.news.Store(true)
		c.rx.wake()
	}
	c.room.Store(true)
	c.tx.wake()
	// A goroutine that found no room set owes before, and may still hold the lock.
	if c.owes.CompareAndSwap(true, false) {
		go c.pay()
	}
}

// add starts watching c.
func (s *sentry) add(c *Conn) (err error) {
	s.mu.Lock()
	for s.last++; s.conns[s.last] != (weak.Pointer[Conn]{}); s.last++ {
	}
	c.post = s.last
	s.conns[c.post] = c.self
	s.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: c.post}
	if !s.control(unix.EPOLL_CTL_ADD, c, &event, &err) {
		err = os.ErrClosed
	}
	if err != nil {
		s.remove(c)
	}
	return err
}

// remove stops watching c.
func (s *sentry) remove(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c.post)
	s.mu.Unlock()
	var ignored error // it is missing, or was removed when the socket closed
	s.control(unix.EPOLL_CTL_DEL, c, nil, &ignored)
}

func (s *sentry) control(op int, c *Conn, event *unix.EpollEvent, err *error) bool {
	ok := false
	s.set.raw.Control(func(set uintptr) {
		ok = c.control(func(fd int) { *err = unix.EpollCtl(int(set), op, fd, event) })
	})
	return ok
}
