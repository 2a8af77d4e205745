package directsockets

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ZCopy: a large write advertises where its bytes are and sleeps, and the reader copies them once,
// from memory to memory. It copies from a Buffer (buffer.go) directly, and from any other memory by
// a system call. preload/zcopy.c explains what an advert is, how it is withdrawn, and whose memory
// is read. The differences here are:
//
//   - A goroutine that withdraws the advert of a Write (Close, CloseWrite, the return to TCP) holds
//     tx.mu, which the sleeping writer has handed over. The writer counts what was taken when it
//     wakes.
//   - Advertised memory must not move or be freed. out.lent keeps it reachable, so what is passed
//     to Write is never on a stack, which may move.
//   - A deadline takes the place of signals.

// zcopyLeast is EXN_DS_ZCOPY: the size of the shortest write that is advertised.
func zcopyLeast() int { return int(zcopyFrom.Load()) }

var zcopyFrom atomic.Int64

// pullMost is how much a reader copies at once.
const pullMost = 1 << 20

// An advert belongs to one Write. Guarded by tx.mu.
type advert struct {
	out  bool   // still advertised, as far as that Write knows
	seen uint64 // how much of what was taken the Write has counted
}

// offer advertises b, except for its last window, if that pays and the reader takes adverts. Write
// then returns when the rest has room, as it does without adverts.
func (c *Conn) offer(b []byte, z *advert) bool {
	w := &c.out.w
	n := len(b) - w.Window()
	if n <= 0 || z == nil || z.out {
		return false
	}
	if at, ok := c.ch.lent(b); ok {
		if n < bufferLeast() || !w.AdvertiseBuffer(at, n) {
			return false
		}
	} else if least := w.Least(); least == 0 || n < zcopyLeast() || uint64(n) < least || w.Poor() || !w.Advertise(addressOf(b), n) {
		return false
	}
	c.out.lent = b
	*z = advert{true, w.ZCopied()}
	return true
}

// tally counts what was taken of an advert since the last time, and clears the advert once it is
// over.
func (c *Conn) tally(z *advert) int {
	if !z.out {
		return 0
	}
	w := &c.out.w
	if !w.Advertised() {
		w.Settle()
		z.out, c.out.lent = false, nil
	}
	n := w.ZCopied() - z.seen
	z.seen += n
	return int(n)
}

// stays reports whether nothing speaks against the current advert.
func (c *Conn) stays() bool {
	return c.out.w.Wanted() && c.peer.GoBack.Load() == 0 && c.peer.Closed.Load() == 0 && !c.out.off && !c.fin.Load() &&
		!c.dead.Load() && c.ch.live.Load() == alive
}

// cutShort ends the advert of b. It puts on the lane what there is room for, as the kernel would
// have taken that much.
func (c *Conn) cutShort(b []byte, z *advert) int {
	c.endAdvert()
	n := c.tally(z)
	if n < len(b) && c.engaged() && !c.dead.Load() && c.err.Load() == 0 && !c.closing.Load() {
		k, _ := c.put(b[n:], nil)
		n += k
	}
	return n
}

// retract withdraws the current advert. It returns false while the reader is copying.
func (c *Conn) retract() bool {
	return c.out.w.Retract(c.peer.Closed.Load() != 0 || c.ch.live.Load() != alive)
}

// endAdvert waits until the advert is withdrawn. If the reader does not let go, it resets the
// connection.
func (c *Conn) endAdvert() {
	if !c.engaged() {
		return // it was withdrawn before
	}
	for end := time.Now().Add(patience); !c.retract(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			c.reset(reasonHostile)
			c.out.w.Retract(true)
			return
		}
	}
}

// Whether we can read the peer's memory.
const (
	zcopyUntried = iota
	zcopyPossible
	zcopyImpossible
)

// invite tells the writer, for a read of n bytes, whether adverts are welcome.
func (c *Conn) invite(n int) {
	in := &c.in
	large := n >= zcopyLeast()
	if large == in.invited || !large && !in.r.AtAdvert() {
		return
	}
	in.invited = large
	if large && c.ch.copies() {
		in.r.Invite(uint64(zcopyLeast()))
		return
	}
	in.r.Invite(0)
	c.ch.ring(c, &c.peer.TxWaiters) // an advert may be out
}

// pull copies from the advert at the read position, at most pullMost bytes. It returns 0 if the
// advert is withdrawn or cannot be copied; then the writer puts the bytes on the lane.
func (c *Conn) pull(b []byte) (n int, hostile bool) {
	n, hostile = c.in.r.Pull(b[:min(len(b), pullMost)], func(address uint64, b []byte) int {
		if !c.ch.copies() {
			return 0
		}
		got := readProcess(c.ch.pid, address, b)
		if got <= 0 || c.ch.processGone() {
			return 0
		}
		return got
	})
	if c.in.r.Stuck() {
		c.ch.zcopy.Store(zcopyImpossible)
		c.in.invited = false
		c.in.r.Invite(0)
		c.ch.ring(c, &c.peer.TxWaiters)
	}
	return n, hostile
}

// peerProcess returns a pidfd of the process at the other end of a control socket, or -1 if there
// is none (before Linux 6.5).
func peerProcess(socket int) int {
	if zcopyLeast() == math.MaxInt {
		return -1
	}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return -1
	}
	unix.CloseOnExec(fd)
	return fd
}

func closeProcess(ch *channel) {
	if ch.process >= 0 {
		unix.Close(ch.process)
	}
}

// copies reports whether we can and may read the peer's memory: the peer runs as our user, and we
// have no more rights than that user.
func (ch *channel) copies() bool {
	if ch.zcopy.Load() == zcopyUntried {
		verdict := int32(zcopyImpossible)
		if ch.permitted() {
			verdict = zcopyPossible
		}
		ch.zcopy.Store(verdict)
	}
	return ch.zcopy.Load() == zcopyPossible
}

func (ch *channel) permitted() bool {
	me := unix.Geteuid()
	if ch.process < 0 || ch.pid <= 0 || int(ch.uid) != me || unix.Getuid() != me || me != 0 && tracesOthers() {
		return false
	}
	return probeProcess(ch.pid)
}

// tracesOthers reports whether the kernel would let us read what our user may not.
func tracesOthers() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	return unix.Capget(&h, &d[0]) != nil || d[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// processGone reports whether the process with the peer's pid may have ended since, or executed
// another program.
func (ch *channel) processGone() bool {
	gone := true
	ch.ctl.raw.Control(func(ctl uintptr) {
		gone = poll(int(ctl), 0) != 0 || poll(ch.process, unix.POLLIN) != 0
	})
	return gone
}
