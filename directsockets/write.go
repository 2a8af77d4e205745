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
// A reader that returns to TCP has said in go_back which bytes it has taken, and
// has stopped there. The rest is still ours: nobody overwrites what no credit was
// given for. So we send it by TCP, then post BACK at the reader's place. What TCP
// does not take at once goes before all later bytes. Guarded by tx.mu.
type outbound struct {
	w        lane.Writer
	mode     atomic.Int32
	switches uint64
	shut     atomic.Bool // shut down
	off      bool        // to stay on TCP
	full     fullness
	lent     []byte // the memory of the advert that is out
}

// A fullness is what is known of a reader that takes nothing. A lane holds less than TCP, and there
// are programs that need what TCP holds: both ends write, and only then read, or one does
// and the other is itself. So who finds no room for as long as env.stuck, in which the reader
// has taken nothing, goes on by TCP: for a second, and each time for twice as long.
type fullness struct {
	since  time.Time // when there was no room for the first time since the reader took any; zero: there was
	credit uint64    // what it had taken by then
	until  time.Time // by TCP until then
	times  uint
}

const (
	mostStuck = 6
	kickEach  = time.Second / 16 // signals to a reader that has not taken SWITCH
)

// starve notes that there was no room.
func (c *Conn) starve() {
	f := &c.out.full
	if credit := c.out.w.Credit(); f.since.IsZero() || credit != f.credit {
		f.since, f.credit = time.Now(), credit
	}
}

// stuck says that TCP is to have what follows.
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
		if c.ch.pid > 0 { // 0: it has no number here
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

// testSwitch has one in so many writes go back to TCP, in tests.
var testSwitch atomic.Uint32

// Write writes as a TCP connection does, whichever way the bytes go.
func (c *Conn) Write(b []byte) (int, error) {
	if c.begin(&c.tx) {
		n, err := c.tcp.Write(b)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	defer c.tx.mu.Unlock()
	return c.writeAll(b)
}

// writeAll is a Write that has tx.mu.
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
		default: // and no advert is out
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

// writeNative writes by TCP, asleep too; errAgain: somebody wants the side, which
// may be engaged by now.
func (c *Conn) writeNative(b []byte) (int, error) {
	c.count()
	c.tx.enter()
	if c.closing.Load() { // Close has said on the lane how many bytes there are
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
		return c.tcp.Write(b) // an end or an error is the kernel's to tell
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

// sleepTx waits until a write may get on.
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

// toStuck is how long a writer may sleep before it asks whether it is stuck; 0: for ever.
func (c *Conn) toStuck() time.Duration {
	if c.out.full.since.IsZero() || c.out.mode.Load() != onLane {
		return 0
	}
	return env.stuck
}

func (c *Conn) txStop() bool { return c.tx.wanted.Load() > 0 || c.closing.Load() }

// txReady says that a write may get on. It is called by the holder of tx.mu and,
// while that sleeps, by the watcher; so it changes nothing.
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

// probeTx asks the kernel about the peer's end, unless a reader does: that has the hint then, or
// takes it when it is up.
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

// settled: on the lane, and nothing speaks against it.
func (c *Conn) settled() bool {
	return c.out.mode.Load() == onLane && !c.out.off && !c.out.w.Poor() && c.out.full.since.IsZero() && !c.fin.Load() && !c.dead.Load() && !c.out.shut.Load() &&
		c.peer.Closed.Load() == 0 && c.peer.Shut.Load() == 0 && c.peer.GoBack.Load() == 0 &&
		c.ch.live.Load() == alive && testSwitch.Load() == 0
}

// writeBy changes the mode.
func (c *Conn) writeBy(mode int32) {
	c.out.mode.Store(mode)
	c.shown.WriteMode.Store(uint32(mode))
}

// poor says that large writes find no window. Slots hold so little that who writes
// much before anybody reads would wait: TCP holds more.
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

// turnTx changes the mode when that is due.
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
	// Who has ended may be gone, or may refuse what we send; TCP knows.
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
		// A reader that withdraws sets go_back, fences, looks for SWITCH. Either it
		// sees this one, or we see go_back and undo it before any byte is on the
		// lane. Post's store of the status word is the fence.
		back = c.peer.GoBack.Load()
		stop = back != 0
	} else if !stop && dice() {
		stop = true
	}
	// A reader that has not seen SWITCH may be about to read from TCP, without
	// limit: no byte may be there that belongs behind the lane's.
	if !stop || back == 0 && !gone && !out.w.Joined() || !c.retract() {
		return
	}
	if back != 0 {
		c.giveBack(back - 1)
	}
	c.showWritten() // what is taken back goes by TCP
	m, _ := out.w.Bytes()
	if !out.w.Post(lane.Back, m, 0) && !gone {
		c.reset(reasonHostile) // the reserved slots are enough for an honest peer
	}
	c.writeBy(onTCP)
	c.ch.ring(c, &c.peer.RxWaiters)
}

// testNarrow has TCP hold no more than it does, in tests.
var testNarrow atomic.Bool

// giveBack answers go_back. What TCP has outlives us, so a small send buffer is made
// larger for the moment.
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
		defer unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size/2) // the kernel doubles what is set
		c.again()
	})
}

// again sends what the reader handed back. False: TCP takes no more now, and the sentry
// has it go on.
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

// pay goes on with that when TCP has room, for the program need not call again.
func (c *Conn) pay() {
	c.tx.take()
	defer c.tx.mu.Unlock()
	if c.engaged() {
		c.again()
	}
}

// sendTCP writes by TCP without sleeping.
func (c *Conn) sendTCP(b []byte) (n int, err error) {
	c.room.Store(false) // the sentry says when there is some again
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

// failedTx is the error that waits, as the kernel would tell it now.
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

// put puts bytes where they belong now; errAgain: there is no room.
func (c *Conn) put(b []byte, z *advert) (n int, err error) {
	out := &c.out
	if !c.settled() {
		c.turnTx()
	}
	if err := c.failedTx(); err != nil {
		return 0, err
	}
	// What was taken of the advert of this Write, up to now or to its withdrawal by
	// turnTx, comes before anything else of it.
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
		return c.sendTCP(b) // EPIPE and all the rest are the kernel's
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
		return c.put(b, z) // by TCP, or by slots as long as the reader has not taken SWITCH
	}
	if n == 0 {
		c.starve()
		return 0, errAgain
	}
	out.full.since = time.Time{}
	return n, nil
}

// finish ends the outbound direction: how is what SHUTDOWN says. What was handed
// back must be in TCP's hands before its end is; a reader that takes nothing for as
// long as patience costs the connection.
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
