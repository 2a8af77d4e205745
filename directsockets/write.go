package directsockets

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/internal/late"
)

// outbound is the direction that we write: TCP, SWITCH, the lane, BACK, TCP again.
//
// A reader that returns to TCP states in go_back which bytes it has taken, and has stopped there.
// We still have the rest, since nobody overwrites bytes for which no credit was given. So we send
// the rest by TCP, and then post BACK at the reader's position. Bytes that TCP does not take at
// once go before all later bytes. Guarded by tx.mu.
type outbound struct {
	w        lane.Writer
	mode     atomic.Int32
	switches uint64
	shut     atomic.Bool // the program has shut it down
	off      bool        // it has to stay on TCP
	full     fullness
	lent     []byte // the memory of the current advert
}

// A fullness is what we know about a reader that takes nothing. A lane holds less than TCP, and
// some programs need what TCP holds: both ends write before they read, or one does and its peer is
// itself. So a writer that finds no room for env.stuck, while the reader took nothing, continues by
// TCP: for a second at first, and for twice as long each time.
type fullness struct {
	// when a write first found no room since the reader took bytes; zero if there is room
	since  time.Time
	credit uint64    // the reader's credit at that time
	until  time.Time // we write by TCP until then
	times  uint
}

const (
	mostStuck = 6
	kickEach  = time.Second / 16 // pause between signals to a reader that has not taken SWITCH
)

// starve notes that there was no room.
func (c *Conn) starve() {
	f := &c.out.full
	if credit := c.out.w.Credit(); f.since.IsZero() || credit != f.credit {
		f.since, f.credit = time.Now(), credit
	}
}

// stuck reports whether TCP should carry what follows.
func (c *Conn) stuck() bool {
	f := &c.out.full
	if !f.until.IsZero() {
		if time.Now().Before(f.until) {
			return true
		}
		f.until = time.Time{}
		c.reason.Store(uint32(reasonNone))
	}
	if f.since.IsZero() || env.stuck == 0 || c.out.mode.Load() != onLane {
		return false
	}
	now := time.Now()
	if now.Sub(f.since) < env.stuck {
		return false
	}
	switch credit := c.out.w.Credit(); {
	case c.out.w.Writable():
		f.since = time.Time{}
		return false
	case credit != f.credit:
		f.since, f.credit = now, credit
		return false
	case !c.out.w.Joined():
		if c.ch.pid > 0 { // 0: it has no pid in this namespace
			kick(c.ch.pid)
		}
		f.since = now.Add(min(kickEach, env.stuck) - env.stuck)
		return false
	}
	f.since, f.until = now, now.Add(time.Second<<f.times)
	f.times = min(f.times+1, mostStuck)
	c.reason.Store(uint32(reasonUnread))
	return true
}

// testSwitch, if n > 0, makes one in n writes go back to TCP, in tests.
var testSwitch atomic.Uint32

// Write writes as to a TCP connection, by whichever path the bytes go.
func (c *Conn) Write(b []byte) (int, error) {
	if c.begin(&c.tx) {
		n, err := c.tcp.Write(b)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	defer c.tx.mu.Unlock()
	return c.writeAll(b)
}

// writeAll is Write for a caller that holds tx.mu.
func (c *Conn) writeAll(b []byte) (int, error) {
	done := 0
	var z advert
	for {
		done += c.tally(&z)
		n, err := 0, error(nil)
		switch {
		case done > 0 && done == len(b):
		case c.engaged():
			n, err = c.writeEngaged(b[done:], &z)
		default: // here no advert is out
			n, err = c.writeNative(b[done:])
		}
		if done += n; err != errAgain && z.out && err != nil {
			done += c.cutShort(b[done:], &z)
		}
		if err != errAgain {
			return done, err
		}
	}
}

// writeNative writes by TCP, and may sleep there. It returns errAgain if somebody wanted the side;
// the connection may be engaged by then.
func (c *Conn) writeNative(b []byte) (int, error) {
	c.count()
	c.tx.enter()
	if c.closing.Load() { // Close has announced on the lane how many bytes there are
		c.tx.leave()
		return 0, c.opError("write", net.ErrClosed)
	}
	if c.tx.wanted.Load() > 0 {
		c.tx.leave()
		c.tx.yield()
		return 0, errAgain
	}
	n, err := c.tcp.Write(b)
	c.tcpTx.Add(uint64(max(n, 0)))
	rung := c.tx.leave()
	c.tx.yield()
	if rung && errors.Is(err, os.ErrDeadlineExceeded) && !c.tx.expired() {
		return n, errAgain
	}
	return n, err
}

func (c *Conn) writeEngaged(b []byte, z *advert) (done int, err error) {
	switch {
	case c.closing.Load():
		return 0, c.opError("write", net.ErrClosed)
	case c.tx.expired():
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return c.tcp.Write(b) // the kernel reports an end or an error
	}
	if c.news.Load() && c.out.mode.Load() == onLane {
		c.probeTx()
	}
	sent()
	for done < len(b) {
		n, err := c.put(b[done:], z)
		if done += n; n > 0 {
			continue
		}
		if z.out && !c.stays() {
			return done + c.cutShort(b[done:], z), errAgain
		}
		if err == errAgain {
			c.sleepTx()
			return done, errAgain
		}
		return done, c.opError("write", err)
	}
	return done, nil
}

// sleepTx waits until a write may make progress.
func (c *Conn) sleepTx() {
	s := &c.tx
	if c.rx.mu.TryLock() {
		c.turn() // the peer may wait for us to take SWITCH
		c.rx.mu.Unlock()
	}
	if c.out.mode.Load() == onLane && s.spin.look(c.ch, c.txReady, c.txStop) {
		s.yield()
		return
	}
	s.nap.begin()
	c.ch.watchTx(c)
	if !c.txReady() && !c.txStop() {
		s.park(c.toStuck())
	}
	c.ch.unwatchTx(c)
	s.nap.end()
	s.yield()
}

// toStuck returns how long a writer may sleep before it checks whether it is stuck; 0 means for
// ever.
func (c *Conn) toStuck() time.Duration {
	if c.out.full.since.IsZero() || c.out.mode.Load() != onLane {
		return 0
	}
	return env.stuck
}

func (c *Conn) txStop() bool { return c.tx.wanted.Load() > 0 || c.closing.Load() }

// txReady reports whether a write may make progress. The holder of tx.mu calls it, and while that
// one sleeps, the watcher does; so it changes nothing.
func (c *Conn) txReady() bool {
	if c.dead.Load() {
		return true
	}
	if c.out.mode.Load() != onLane {
		return c.room.Load()
	}
	w := c.out.w
	return w.Writable() || c.peer.Closed.Load() != 0 || c.peer.GoBack.Load() != 0 || c.ch.live.Load() != alive ||
		(c.fin.Load() || w.Poor()) && w.Joined() || c.news.Load() // by TCP
}

// probeTx asks the kernel about the peer's end, unless a reader does so: the reader has the hint
// then, or takes it when it wakes.
func (c *Conn) probeTx() {
	switch {
	case c.rx.mu.TryLock():
		c.news.Store(false)
		c.probe(true)
		c.rx.mu.Unlock()
	case c.hint.Load():
		c.rx.wake()
		late.Yield()
		runtime.Gosched()
	default:
		c.news.Store(false)
	}
}

// settled reports whether we write by the lane and nothing speaks against it.
func (c *Conn) settled() bool {
	return c.out.mode.Load() == onLane && !c.out.off && !c.out.w.Poor() && c.out.full.since.IsZero() && !c.fin.Load() && !c.dead.Load() && !c.out.shut.Load() &&
		c.peer.Closed.Load() == 0 && c.peer.Shut.Load() == 0 && c.peer.GoBack.Load() == 0 &&
		c.ch.live.Load() == alive && testSwitch.Load() == 0
}

// writeBy sets the mode.
func (c *Conn) writeBy(mode int32) {
	c.out.mode.Store(mode)
	c.shown.WriteMode.Store(uint32(mode))
}

// poor reports whether large writes find no window. Slots hold so little that a program that writes
// much before anybody reads would wait. TCP holds more.
func (c *Conn) poor() bool {
	if !c.out.w.Poor() {
		return false
	}
	if c.out.w.Rich() {
		c.reason.Store(uint32(reasonNone))
		return false
	}
	c.reason.Store(uint32(reasonMemory))
	return true
}

// turnTx changes the mode if that is due.
func (c *Conn) turnTx() {
	out := &c.out
	if out.w.HasAgain() && !c.again() {
		return
	}
	if c.dead.Load() || out.shut.Load() || c.own == nil {
		return
	}
	gone := c.peer.Closed.Load() != 0 || c.ch.live.Load() != alive
	if (gone || c.fin.Load()) && c.peer.Closed.Load() == 0 && c.peer.Shut.Load() == 0 && c.died() {
		return // before TCP takes anything of what follows
	}
	back := c.peer.GoBack.Load()
	// A peer that has ended may be gone, or may refuse what we send; TCP knows.
	stop := out.off || back != 0 || gone || c.fin.Load() || c.peer.Shut.Load() != 0
	stop = stop || c.poor() || c.stuck()
	dice := func() bool { n := testSwitch.Load(); return n != 0 && rand.Uint32N(n) == 0 }
	if out.mode.Load() == onTCP {
		if stop || c.peer.Consent.Load() <= out.switches || c.peer.Generation.Load() != uint64(c.generation) || dice() {
			return
		}
		if !out.w.Post(lane.Switch, c.tcpTx.Load(), 0) {
			return
		}
		out.switches++
		out.full.since = time.Time{}
		c.writeBy(onLane)
		// A reader that withdraws sets go_back, fences, and looks for SWITCH. Either it
		// sees this SWITCH, or we see its go_back and undo the SWITCH before any byte is on
		// the lane. Post's store of the status word is our fence.
		back = c.peer.GoBack.Load()
		stop = back != 0
	} else if !stop && dice() {
		stop = true
	}
	// A reader that has not seen SWITCH may be about to read from TCP without limit. So TCP
	// must not carry bytes that belong after those of the lane.
	if !stop || back == 0 && !gone && !out.w.Joined() || !c.retract() {
		return
	}
	if back != 0 {
		c.giveBack(back - 1)
	}
	c.showWritten() // what is taken back goes by TCP
	m, _ := out.w.Bytes()
	if !out.w.Post(lane.Back, m, 0) && !gone {
		c.reset(reasonHostile) // an honest peer never exhausts the reserved slots
	}
	c.writeBy(onTCP)
	c.ch.ring(c, &c.peer.RxWaiters)
}

// testNarrow keeps the send buffer of TCP as it is, in tests.
var testNarrow atomic.Bool

// giveBack answers go_back. What TCP has outlives us, so it enlarges a small send buffer for the
// moment.
func (c *Conn) giveBack(taken uint64) {
	if !c.out.w.Withdraw(taken) || c.again() || testNarrow.Load() {
		return
	}
	c.control(func(fd int) {
		size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err != nil {
			return
		}
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size+c.out.w.Window())
		// the kernel doubles what is set
		defer unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size/2)
		c.again()
	})
}

// again sends what the reader handed back. It returns false if TCP takes no more now; then the
// sentry continues it.
func (c *Conn) again() bool {
	for {
		b := c.out.w.Again()
		c.owes.Store(len(b) > 0)
		if len(b) == 0 {
			return true
		}
		n, err := c.sendTCP(b)
		switch {
		case n > 0:
			c.out.w.Sent(n)
		case err == errAgain:
			return false
		default: // the connection has ended
			if e, ok := err.(syscall.Errno); ok && e != syscall.EPIPE {
				c.err.Store(uint32(e))
			}
			c.out.w.Forget()
		}
	}
}

// pay continues again when TCP has room, because the program may make no further call.
func (c *Conn) pay() {
	c.tx.take()
	defer c.tx.mu.Unlock()
	if c.engaged() {
		c.again()
	}
}

// sendTCP writes by TCP without sleeping.
func (c *Conn) sendTCP(b []byte) (n int, err error) {
	c.room.Store(false) // the sentry sets it when there is room again
	if !c.control(func(fd int) {
		for {
			if n, err = unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
				return
			}
		}
	}) {
		return 0, syscall.EBADF
	}
	if err != nil {
		return 0, err
	}
	c.tcpTx.Add(uint64(n))
	return n, nil
}

// failedTx returns the pending error, as the kernel would report it now.
func (c *Conn) failedTx() error {
	dead := c.dead.Load()
	if !dead && c.err.Load() == 0 {
		return nil
	}
	if e := syscall.Errno(c.err.Swap(0)); e != 0 {
		return e
	}
	if dead {
		return syscall.EPIPE
	}
	return nil
}

// put puts bytes on the current path. It returns errAgain if there is no room.
func (c *Conn) put(b []byte, z *advert) (n int, err error) {
	out := &c.out
	if !c.settled() {
		c.turnTx()
	}
	if err := c.failedTx(); err != nil {
		return 0, err
	}
	// What the reader took of this Write's advert, until now or until turnTx withdrew it, comes
	// before anything else of the Write.
	if z != nil && z.out {
		if n = c.tally(z); n > 0 {
			out.full.since = time.Time{}
			return n, nil
		}
		if z.out {
			c.starve()
			return 0, errAgain
		}
	}
	if out.shut.Load() || out.mode.Load() == onTCP {
		if out.w.HasAgain() {
			return 0, errAgain
		}
		return c.sendTCP(b) // the kernel reports EPIPE and all other errors
	}
	poor := out.w.Poor()
	for n < len(b) {
		if c.offer(b[n:], z) {
			c.ch.ring(c, &c.peer.RxWaiters)
			break
		}
		k := out.w.Write(b[n:], env.veloMax)
		if out.w.Broken() {
			c.reset(reasonHostile)
			break
		}
		if k == 0 {
			break
		}
		n += k
		c.showWritten()
		c.ch.ring(c, &c.peer.RxWaiters)
	}
	if n == 0 && out.w.Poor() && !poor {
		return c.put(b, z) // by TCP, or by slots while the reader has not taken SWITCH
	}
	if n == 0 {
		c.starve()
		return 0, errAgain
	}
	out.full.since = time.Time{}
	return n, nil
}

// finish ends the outbound direction; SHUTDOWN carries how. TCP must hold what was handed back
// before its own end. A reader that takes nothing for as long as patience loses the connection.
func (c *Conn) finish(how uint64) {
	out := &c.out
	c.turnTx()
	c.endAdvert()
	sent := c.tcpTx.Load()
	for end := time.Now().Add(patience); out.w.HasAgain() && !c.again() && time.Now().Before(end); {
		c.control(func(fd int) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			unix.Poll(p, 10)
		})
		if n := c.tcpTx.Load(); n != sent {
			sent, end = n, time.Now().Add(patience)
		}
	}
	m, _ := out.w.Bytes()
	if out.w.HasAgain() || out.mode.Load() == onLane && !out.shut.Load() && !out.w.Post(lane.Shutdown, how, m) {
		c.reset(reasonHostile)
	}
	out.shut.Store(true)
	c.own.Shut.Store(1)
	c.ch.ring(c, &c.peer.RxWaiters)
}
