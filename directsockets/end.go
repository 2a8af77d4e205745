package directsockets

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/status"
)

// patience is how long the peer may take to answer when the connection must leave the lane.
const patience = time.Second

// reset aborts the connection: both ends see ECONNRESET. The caller may hold any locks or none, but
// must hold the lane; each store is safe by itself.
func (c *Conn) reset(why status.Reason) {
	if c.dead.Load() {
		return
	}
	c.reason.Store(uint32(why))
	c.err.Store(uint32(syscall.ECONNRESET))
	c.dead.Store(true)
	c.own.Closed.Store(1)
	if why == reasonPeerGone {
		// What arrived before the peer died stays readable.
		c.control(func(fd int) { unix.Shutdown(fd, unix.SHUT_RDWR) })
	} else {
		c.control(disconnect)
	}
	// clears it: our own error counts
	c.control(func(fd int) { unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) })
	c.ch.ring(c, &c.peer.RxWaiters)
	c.ch.ring(c, &c.peer.TxWaiters)
	c.rx.wake()
	c.tx.wake()
	log("%v to %v reset: %v", c.tuple.local, c.tuple.remote, why)
}

// ended handles the peer's FIN, which the kernel has received. A peer that neither closed nor shut
// down has died; if it had left bytes of ours unread, TCP would have reported a reset. The caller
// holds rx.mu, and tx.mu if held is set.
func (c *Conn) ended(held bool) {
	c.fin.Store(true)
	defer c.tx.wake()
	shut := c.peer.Shut.Load() != 0
	if c.out.shut.Load() && (c.in.shut || shut) {
		return // the kernel itself resets on further data, or both directions have ended
	}
	if c.dead.Load() || c.peer.Closed.Load() != 0 || shut && c.ch.live.Load() == alive {
		return
	}
	if !held {
		c.tx.take()
		defer c.tx.mu.Unlock()
	}
	if c.died() && shut {
		c.err.Store(uint32(syscall.EPIPE)) // a reset after FIN
	}
}

// died resets the connection if the peer, which is gone, left bytes of ours unread. The caller
// holds tx.mu.
func (c *Conn) died() bool {
	w := c.out.w
	left := w.HasAgain() || w.Unread() != 0
	if left {
		c.reset(reasonPeerGone)
	}
	return left
}

// look asks the kernel for events on the socket. After the peer's FIN the TCP socket no longer
// shows the peer's death; the control socket does.
func (c *Conn) look(events int16) (told int16) {
	if c.peer.Shut.Load() != 0 && c.peer.Closed.Load() == 0 && c.ch.live.Load() == alive {
		hungUp := false
		err := c.ch.ctl.raw.Control(func(fd uintptr) { hungUp = poll(int(fd), 0) != 0 })
		if err == nil && hungUp {
			c.home.mu.Lock()
			c.ch.kill(reasonPeerGone)
			c.home.mu.Unlock()
		}
	}
	c.control(func(fd int) { told = poll(fd, events) })
	return told
}

// probe asks the kernel whether the connection ended, and reports whether there is news. The caller
// holds rx.mu, and tx.mu if held is set.
func (c *Conn) probe(held bool) (news bool) {
	if !c.engaged() {
		return false
	}
	in := &c.in
	isLane := in.mode == onLane
	if isLane || in.eof {
		c.hint.Store(false)
	}
	if c.dead.Load() {
		return false
	}
	told := c.look(unix.POLLIN | unix.POLLRDHUP)
	if told&unix.POLLRDHUP != 0 && (!in.shut || c.finCame()) {
		news = !c.fin.Load()
		c.ended(held)
	} else if isLane && !c.fin.Load() && c.ch.live.Load() != alive && in.r.Look() == lane.Nothing {
		c.ended(held) // hung up: its last process is gone
		news = true
	}
	if isLane && !c.dead.Load() && !c.fin.Load() && told&unix.POLLIN != 0 && in.r.Look() == lane.Nothing {
		if more, _ := c.peekTCP(); more {
			if !in.r.Posted() {
				c.reset(reasonTripwire)
			}
			c.hint.Store(true)
			news = true
		}
	}
	return news || c.dead.Load()
}

// States of TCP, as the kernel numbers them.
const (
	tcpTimeWait = 6
	tcpClosed   = 7
	tcpLastAck  = 9
	tcpClosing  = 11
)

// tcpState returns the state of the connection's socket, or 0 if the kernel does not tell.
func (c *Conn) tcpState() (state uint8) {
	c.control(func(fd int) {
		if t, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = t.State
		}
	})
	return state
}

// finCame distinguishes the peer's FIN from our own CloseRead, which poll does not.
func (c *Conn) finCame() bool {
	s := c.tcpState() // the states after a FIN, including CLOSING
	return s == 0 || tcpTimeWait <= s && s <= tcpLastAck || s == tcpClosing
}

// CloseRead shuts down the reading side.
func (c *Conn) CloseRead() error {
	c.rx.take()
	defer c.rx.mu.Unlock()
	if c.engaged() {
		if c.closing.Load() {
			return c.opError("close", net.ErrClosed)
		}
		c.turn()
		c.probe(false)
		c.in.shut = true
	}
	return c.tcp.CloseRead()
}

// CloseWrite shuts down the writing side. The peer reads the end of the stream after all bytes.
func (c *Conn) CloseWrite() error {
	c.rx.take()
	defer c.rx.mu.Unlock()
	c.tx.take()
	defer c.tx.mu.Unlock()
	if c.engaged() {
		if c.closing.Load() {
			return c.opError("close", net.ErrClosed)
		}
		c.turn() // the peer leaves its lane, which it can once we have taken SWITCH
		c.probe(true)
		if !c.dead.Load() && !c.out.shut.Load() {
			c.finish(lane.HowWrite)
		}
		if c.dead.Load() {
			return c.opError("shutdown", syscall.ENOTCONN)
		}
	}
	return c.tcp.CloseWrite()
}

// Close closes the connection. As with TCP, unread bytes reset it.
func (c *Conn) Close() error {
	if c.closing.Swap(true) {
		// TCP may end only after the lane, and the first caller ends both in order
		return c.opError("close", net.ErrClosed)
	}
	for {
		switch s := c.State(); s {
		case status.TCP:
			c.shown.State.Store(uint32(status.Closed))
			c.withdraw()
			return c.tcp.Close()
		case status.Lane:
			c.closeEngaged()
			return c.tcp.Close()
		default:
			if !c.move(s, status.Closed) {
				continue
			}
			c.home.mu.Lock()
			c.forget()
			c.home.mu.Unlock()
			c.worthNoted(0)
			return c.tcp.Close()
		}
	}
}

func (c *Conn) closeEngaged() {
	c.rx.take()
	defer c.rx.mu.Unlock()
	c.tx.take()
	defer c.tx.mu.Unlock()
	if !c.engaged() {
		return // it has gone back to TCP meanwhile
	}
	c.turn()
	// The kernel resets if bytes by TCP are unread, and the peer must not see another end
	// before.
	unread := c.in.mode == onLane && (c.in.r.Look() != lane.Nothing || c.in.r.AtAdvert()) && !c.in.eof
	c.control(func(fd int) {
		if n, err := unix.IoctlGetInt(fd, unix.SIOCINQ); err == nil && n > 0 {
			unread = true
		}
	})
	c.endAdvert()
	abort := unread || c.linger.Load() == 0
	if !c.dead.Load() && !abort && !c.out.shut.Load() {
		c.finish(lane.HowClose)
	}
	// A connection that both ends or a reset have closed already resets nothing.
	if !c.dead.Load() && abort && c.tcpState() != tcpClosed {
		c.out.w.Post(lane.Abort, 0, 0) // no room is needed: RST says the same
		c.tcp.SetLinger(0)
	}
	c.own.Closed.Store(1)
	c.ch.ring(c, &c.peer.RxWaiters)
	c.ch.ring(c, &c.peer.TxWaiters)
	c.move(status.Lane, status.Closed)
	c.worthNoted(c.in.r.Slots() + c.out.w.Slots())
	c.home.mu.Lock()
	c.leaveLane()
	c.home.mu.Unlock()
}

// stay returns the connection to TCP for good. The peer sends again what is unread on the lane. If
// the peer does not answer in time, or had ended before with bytes unread, the connection is lost.
func (c *Conn) stay(why status.Reason) error {
	for s := c.State(); s != status.TCP && s != status.Closed; s = c.State() {
		if s != status.Lane {
			c.home.mu.Lock()
			c.stayLocked(why)
			c.home.mu.Unlock()
			continue
		}
		if c.goBack(why) {
			continue
		}
		c.rx.take()
		if c.engaged() {
			c.reset(why)
		}
		c.rx.mu.Unlock()
		return c.opError("return to TCP", fmt.Errorf("the peer does not give back what is unread: %w", syscall.ECONNRESET))
	}
	return nil
}

// goBack takes steps until both directions are on TCP, or the peer had its time. That is counted in
// steps: on an overloaded machine, where each takes long, the peer needs as much more.
func (c *Conn) goBack(why status.Reason) bool {
	const pause = time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		done, never := c.stepBack(why)
		if done || never || waited >= patience {
			return done
		}
		time.Sleep(pause)
	}
}

func (c *Conn) stepBack(why status.Reason) (done, never bool) {
	c.rx.take()
	defer c.rx.mu.Unlock()
	c.tx.take()
	defer c.tx.mu.Unlock()
	if !c.engaged() {
		return true, false
	}
	c.out.off = true
	c.turnTx()
	out := c.dead.Load() || !c.out.w.HasAgain() && (c.out.mode.Load() == onTCP || c.out.shut.Load())
	in := &c.in
	c.freeze()
	if in.frozen {
		c.probe(true)
	}
	over := c.fin.Load() || c.peer.Closed.Load() != 0
	c.turn() // a peer that has ended posted everything before, and does not answer any more
	back := false
	switch {
	case c.dead.Load():
		return false, true
	case in.eof || in.mode == onTCP && !in.pending:
		back = true
	case !in.frozen || over && in.r.Look() != lane.Nothing:
		return false, true
	case over:
		back = true
	}
	if !out || !back {
		if c.ch.live.Load() != alive {
			return false, true
		}
		c.ch.ring(c, &c.peer.RxWaiters)
		c.ch.ring(c, &c.peer.TxWaiters)
		return false, false
	}
	c.reason.Store(uint32(why))
	c.move(status.Lane, status.TCP)
	c.home.mu.Lock()
	c.leaveLane()
	c.home.mu.Unlock()
	log("%v to %v is back on TCP: %v", c.tuple.local, c.tuple.remote, why)
	return true, false
}
