package directsockets

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/status"
	"exnet/internal/late"
)

// The modes of a direction.
const (
	onTCP  = 0
	onLane = 1
)

// inbound is the direction that we read: TCP up to SWITCH, the lane up to BACK, TCP again, and each
// kind of end. turn and take implement the tables of ext-ds.md, section 1. Guarded by rx.mu.
type inbound struct {
	r         lane.Reader
	mode      int
	pending   bool   // SWITCH was taken, and we have not read up to its N yet
	switchAt  uint64 // N
	consented uint64
	frozen    bool // go_back is set: we take nothing until BACK
	eof       bool
	shut      bool          // CloseRead
	invited   bool          // we told the writer that it may advertise
	rings     int           // doorbell rings since bytes came
	slept     time.Duration // how long the last sleep took
}

// errAgain means that there is nothing to do now.
var errAgain error = syscall.EAGAIN

// Read reads as from a TCP connection, by whichever path the bytes come.
func (c *Conn) Read(b []byte) (int, error) {
	if c.begin(&c.rx) {
		n, err := c.tcp.Read(b)
		c.tcpRx.Add(uint64(max(n, 0)))
		return n, err
	}
	defer c.rx.mu.Unlock()
	for {
		if !c.engaged() {
			if n, err := c.readNative(b); n > 0 || err != errAgain {
				return n, err
			}
			continue
		}
		n, err := c.readEngaged(b)
		if err == errAgain {
			continue
		}
		return n, err
	}
}

// readNative reads by TCP, and may sleep there. It returns errAgain if somebody wanted the side;
// the connection may be engaged by then.
func (c *Conn) readNative(b []byte) (int, error) {
	c.count()
	c.rx.enter()
	if c.closing.Load() {
		c.rx.leave()
		return 0, c.opError("read", net.ErrClosed)
	}
	if c.rx.wanted.Load() > 0 {
		c.rx.leave()
		c.rx.yield()
		return 0, errAgain
	}
	n, err := c.tcp.Read(b)
	c.tcpRx.Add(uint64(max(n, 0)))
	rung := c.rx.leave()
	c.rx.yield()
	if rung && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.rx.expired() {
		return 0, errAgain
	}
	return n, err
}

func (c *Conn) readEngaged(b []byte) (int, error) {
	switch {
	case c.closing.Load():
		return 0, c.opError("read", net.ErrClosed)
	case c.rx.expired():
		return 0, c.opError("read", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return 0, nil
	}
	c.invite(len(b))
	n, err := c.take(b)
	switch {
	case n > 0:
		// Bytes read by TCP free no room on the lane. The writer need not know about an
		// advert before its end.
		if c.in.mode == onLane && c.in.r.Advert() == 0 && c.in.r.Due() {
			c.ch.ring(c, &c.peer.TxWaiters)
		}
		c.in.rings = 0
		received()
		return n, nil
	case err == errAgain:
		c.sleepRx()
		return 0, errAgain
	case err == io.EOF:
		return 0, io.EOF
	}
	return 0, c.opError("read", err)
}

// sleepRx waits until there may be something to read.
func (c *Conn) sleepRx() {
	s := &c.rx
	c.heedTx()
	if c.in.mode == onLane && s.spin.look(c.ch, c.rxReady, c.rxStop) {
		s.yield()
		return
	}
	began := time.Now()
	if p := c.ch.roost.take(c); p != nil {
		rung := p.sleep(c)
		c.ch.roost.give(p)
		if rung {
			c.rung()
		}
	} else {
		s.nap.begin()
		c.ch.watchRx(c)
		if !c.rxReady() && !c.rxStop() {
			s.park(0)
		}
		c.ch.unwatchRx(c)
		s.nap.end()
	}
	c.in.slept = time.Since(began)
	s.yield()
}

func (c *Conn) rxStop() bool { return c.rx.wanted.Load() > 0 || c.closing.Load() }

// rxReady reports whether a read may make progress. The holder of rx.mu calls it.
func (c *Conn) rxReady() bool {
	in := &c.in
	return !in.pending && !in.frozen && in.r.Posted() || c.hint.Load() || c.dead.Load() ||
		in.mode == onLane && c.ch.live.Load() != alive ||
		c.out.mode.Load() == onLane && !c.out.shut.Load() && c.peer.GoBack.Load() != 0
}

// heedTx gives back what a peer that returns to TCP asks for, if no writer is there to do it.
func (c *Conn) heedTx() {
	if c.out.mode.Load() != onLane || c.peer.GoBack.Load() == 0 {
		return
	}
	if c.tx.mu.TryLock() {
		c.turnTx()
		c.tx.mu.Unlock()
	} else {
		c.tx.wake()
		late.Yield()
		runtime.Gosched()
	}
}

// left reports whether bytes may remain that came before a reset.
func (c *Conn) left() bool {
	return !c.dead.Load() || status.Reason(c.reason.Load()) == reasonPeerGone
}

// nonsense resets a connection because of invalid data in the peer's memory. If the peer's death
// has ended the connection already, nothing more is read.
func (c *Conn) nonsense() {
	c.reset(reasonHostile)
	c.reason.Store(uint32(reasonHostile))
}

// readBy sets the mode.
func (c *Conn) readBy(mode int) {
	c.in.mode = mode
	c.shown.ReadMode.Store(uint32(mode))
}

// turn takes the control messages that are due.
func (c *Conn) turn() {
	in := &c.in
	took := false
	for c.left() && !in.eof {
		if in.frozen {
			if in.mode == onTCP && !in.pending && in.r.Look() == lane.Nothing {
				in.frozen = false // there was no SWITCH, and none follows
				break
			}
			if (in.mode == onLane || in.pending) && !c.thaw() {
				break
			}
		}
		if in.mode == onTCP && in.pending {
			if c.tcpRx.Load() != in.switchAt {
				break
			}
			in.pending = false
			c.readBy(onLane)
		}
		if in.mode == onLane && in.r.Meet() {
			took = true
		}
		look := in.r.Look()
		if look == lane.Nothing || look == lane.Data && in.mode == onLane {
			break
		}
		if look != lane.Command {
			c.nonsense()
			break
		}
		tag, a, b := in.r.Take()
		took = true
		isLane := in.mode == onLane
		asked := c.own.GoBack.Load() != 0
		taken, _ := in.r.Bytes()
		switch {
		case tag == lane.Switch && !isLane && a >= c.tcpRx.Load() && in.consented > 0:
			in.pending, in.switchAt = true, a
		case asked && !isLane && (tag == lane.Switch || tag == lane.Back && a == taken):
			// It crossed our go_back, and the lane carried nothing.
		case tag == lane.Back && isLane && a == taken:
			c.readBy(onTCP)
			c.hint.Store(true)
			in.r.Give() // before consent: no more than four control slots are ever in use
			if !asked {
				in.consented++
				c.own.Consent.Store(in.consented)
			}
		case tag == lane.Shutdown && isLane && b == taken:
			in.eof = true
		case tag == lane.Abort:
			c.hint.Store(true) // RST will follow
		default:
			c.nonsense()
		}
	}
	if took {
		in.r.Give()
		c.ch.ring(c, &c.peer.TxWaiters) // the writer may wait for us to take SWITCH
	}
}

// freeze asks the writer to go back to TCP. From now on we take nothing.
func (c *Conn) freeze() {
	c.turn()
	if c.dead.Load() || c.in.eof || c.own.GoBack.Load() != 0 {
		return
	}
	c.in.frozen = true
	taken, _ := c.in.r.Bytes()
	c.own.GoBack.Store(taken + 1) // also a fence: look for SWITCH afterwards; see turnTx
	c.turn()
}

// thaw checks whether the writer has answered go_back. It returns true if the caller should look at
// the lane.
func (c *Conn) thaw() bool {
	in := &c.in
	switch in.r.Skip() {
	case lane.Nothing:
		return false
	case lane.Hostile:
		c.nonsense()
		return false
	case lane.Command: // what we have not taken comes by TCP
		in.pending, in.frozen = false, false
		c.readBy(onTCP)
		c.hint.Store(true)
		in.r.Give()
	case lane.Data: // the writer had left the lane before it saw go_back
		in.frozen = false
	}
	return true
}

// laneFirst reports whether the lane holds bytes that come before the end, even if we know of the
// end already.
func (c *Conn) laneFirst() bool {
	return c.in.mode == onLane && !c.in.frozen && c.left() && c.in.r.Look() == lane.Data
}

// failedRx returns the pending error, io.EOF at the end of the stream, or errAgain.
func (c *Conn) failedRx() error {
	if c.in.eof || c.dead.Load() && status.Reason(c.reason.Load()) == reasonPeerGone && c.peer.Shut.Load() != 0 {
		return io.EOF
	}
	if e := syscall.Errno(c.err.Swap(0)); e != 0 {
		return e
	}
	if c.dead.Load() {
		return io.EOF
	}
	return errAgain
}

// take takes what is there: it returns bytes, an error, or errAgain.
func (c *Conn) take(b []byte) (n int, err error) {
	in := &c.in
	for {
		c.turn()
		none := c.dead.Load() && in.mode == onLane && !c.laneFirst()
		if n > 0 && (none || !c.left() || in.eof) {
			return n, nil
		}
		if none {
			return 0, c.failedRx()
		}
		if in.mode == onLane {
			if in.frozen {
				return n, errAgain
			}
			k, hostile := in.r.Read(b[n:])
			for !hostile && n+k < len(b) && in.r.AtAdvert() {
				var m int
				if m, hostile = c.pull(b[n+k:]); m == 0 {
					break
				}
				k += m
				m, hostile = in.r.Read(b[n+k:])
				k += m
			}
			c.showRead()
			n += k
			in.r.Give()
			if hostile {
				c.nonsense()
			}
			if k > 0 && n < len(b) && c.left() && in.r.Look() == lane.Command {
				continue // BACK or SHUTDOWN: continue after it
			}
			if n > 0 {
				return n, nil
			}
			if in.eof {
				return 0, io.EOF
			}
			if c.dead.Load() || in.r.Look() != lane.Nothing {
				continue
			}
			if in.shut && !c.fin.Load() { // the end, unless there is an error
				if _, err := c.peekTCP(); err != nil && err != errAgain {
					return 0, err
				}
				return 0, io.EOF
			}
			if !c.fin.Load() && (c.hint.Load() || c.ch.live.Load() != alive) && c.probe(false) {
				continue
			}
			if !c.fin.Load() || in.r.Look() != lane.Nothing {
				if c.err.Load() != 0 {
					return 0, c.failedRx()
				}
				return 0, errAgain
			}
			// End or error: ask the kernel.
			more, err := c.peekTCP()
			switch {
			case err != nil && err != errAgain:
				return 0, err
			case more:
				c.reset(reasonTripwire)
			default:
				in.eof = true
			}
			continue
		}
		if in.eof {
			return n, eofUnless(n)
		}
		limit := len(b) - n
		if in.pending {
			limit = int(min(uint64(limit), in.switchAt-c.tcpRx.Load()))
		}
		if limit == 0 { // frozen at N
			return n, errAgain
		}
		c.hint.Store(false)
		k, err := c.recvTCP(b[n : n+limit])
		if k > 0 {
			c.hint.Store(true)
			n += k
			if n < len(b) && in.pending && c.tcpRx.Load() == in.switchAt {
				continue
			}
			return n, nil
		}
		if n > 0 {
			if err != nil && err != errAgain {
				c.err.Store(uint32(err.(syscall.Errno)))
			}
			return n, nil
		}
		if c.dead.Load() || c.err.Load() != 0 {
			return 0, c.failedRx()
		}
		if err != nil && err != errAgain {
			c.fin.Store(true) // the writer cannot find out any more
			c.tx.wake()
			return 0, err
		}
		if !in.pending && in.r.Posted() {
			continue // SWITCH was posted before FIN, or meanwhile
		}
		if err == errAgain {
			return 0, errAgain
		}
		// The end of what comes by TCP.
		if in.shut && !c.finCame() {
			return 0, io.EOF
		}
		c.ended(false)
		if in.pending {
			c.reset(reasonPeerGone) // FIN before N
		}
		if !c.dead.Load() {
			in.eof = true
		}
	}
}

func eofUnless(n int) error {
	if n > 0 {
		return nil
	}
	return io.EOF
}

// recvTCP reads by TCP without sleeping. It returns 0 and nil at the end of the stream.
func (c *Conn) recvTCP(b []byte) (n int, err error) {
	if !c.control(func(fd int) {
		for {
			if n, _, err = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT); err != unix.EINTR {
				return
			}
		}
	}) {
		return 0, syscall.EBADF
	}
	if err != nil {
		return 0, err
	}
	c.tcpRx.Add(uint64(n))
	return n, nil
}

// peekTCP reports whether TCP has bytes for us. At the end it returns false and nil.
func (c *Conn) peekTCP() (more bool, err error) {
	var one [1]byte
	n := 0
	if !c.control(func(fd int) { n, _, err = unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) }) {
		return false, syscall.EBADF
	}
	return err == nil && n > 0, err
}
