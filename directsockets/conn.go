package directsockets

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/internal/lane"
	"exnet/directsockets/policy"
	"exnet/directsockets/status"
)

// A Conn is a TCP connection whose bytes may leave TCP. It is used like a *net.TCPConn, and all its
// methods may be called concurrently.
type Conn struct {
	tcp    *net.TCPConn
	raw    syscall.RawConn
	home   *rendezvous // nil if it never looks for a peer
	active bool        // we dialled
	tuple  tuple       // this and other, below, are as both ends see it

	shown   *status.Record // what exn-tun show sockets reads
	state   atomic.Uint32  // a status.State; shown has a copy
	reason  *atomic.Uint32 // a status.Reason, in shown
	closing atomic.Bool
	linger  atomic.Int32 // in seconds; -1 if not set

	// While counting: the calls made and the bytes carried by TCP, which are in shown, and the
	// call from which on we look for a peer.
	calls, due   atomic.Uint64
	tcpRx, tcpTx *atomic.Uint64
	looking      atomic.Bool // a search is in progress
	looks        int         // at the board, by who has set looking
	looked       time.Time   // first
	considered   atomic.Bool // worthLooking has decided; see worth.go

	// Guarded by home.mu.
	inode, netns, peerInode uint64 // inode is also in shown
	// cookie of the other end's network namespace; 0 if it is ours
	peerNet         uint64
	other           tuple // the connection as the other end sees it; zero if unknown
	translates      bool  // a bridge has registered its translated addresses
	offers, attempt int
	refusal         status.Reason // why the other end takes no lane, where it has said so
	refused         atomic.Bool   // a refusal of ours is in the directory

	// The attachment: set under home.mu before the state becomes Attached. From then on it is
	// constant until it is taken away under the locks of both sides.
	ch               *channel
	lane, generation uint32
	// for the tables: they do not keep a dropped connection from being closed
	self      weak.Pointer[Conn]
	own, peer *lane.Control
	marked    atomic.Uint64 // the peer's count of asked marks when we last made one

	// rx.mu guards in, and tx.mu guards out. What both sides look at is atomic.
	rx, tx side
	in     inbound
	out    outbound
	wish   wish   // the reader's, for a mark
	at     int    // index of the writer in channel.waiting, guarded by channel.mu
	credit uint64 // that the writer or the watcher has seen; likewise

	post int32         // its number at the sentry, while engaged
	hint atomic.Bool   // the kernel may have an event on the socket
	news atomic.Bool   // likewise, and no writer has looked yet
	room atomic.Bool   // TCP may take bytes again
	owes atomic.Bool   // bytes that were handed back wait for room
	fin  atomic.Bool   // the peer's end was seen: FIN, RST, or the end of its channel
	dead atomic.Bool   // reset by us, not by the kernel
	err  atomic.Uint32 // pending errno, as SO_ERROR
}

// newConn wraps a connection that has not carried any bytes yet.
func newConn(tcp *net.TCPConn, active bool, o Options) *Conn {
	c := &Conn{tcp: tcp, active: active}
	c.raw, _ = tcp.SyscallConn() // fails only for a nil connection
	c.linger.Store(-1)
	c.rx.set, c.tx.set = tcp.SetReadDeadline, tcp.SetWriteDeadline
	c.rx.nap.bell, c.tx.nap.bell = make(chan struct{}, 1), make(chan struct{}, 1)
	local, remote := tcp.LocalAddr().(*net.TCPAddr), tcp.RemoteAddr().(*net.TCPAddr)
	c.tuple = tuple{plain(local.AddrPort()), plain(remote.AddrPort())}
	c.shown = show(c, o.Fabric)
	c.shown.Name(c.tuple.local, c.tuple.remote)
	c.reason, c.tcpRx, c.tcpTx = &c.shown.Reason, &c.shown.TCPRead, &c.shown.TCPWritten
	state := status.TCP
	switch {
	case env.off || o.Off:
		c.reason.Store(uint32(reasonSetting))
	case !c.permitted(rules):
		c.reason.Store(uint32(reasonPolicy))
		c.home = meetingIn(o.Fabric)
		state = status.Counting // shown as TCP; see declines
	default:
		c.home = meetingIn(o.Fabric)
		state = status.Counting
	}
	c.state.Store(uint32(state))
	c.become()
	return c
}

// view returns the connection as its offer names it.
func (c *Conn) view() home.View {
	return home.View{Net: c.netns, Local: c.tuple.local, Remote: c.tuple.remote}
}

// permitted reports whether the rules allow it a lane.
func (c *Conn) permitted(rules *policy.Policy) bool {
	if c.active {
		return rules.Upgrades(program, policy.Out, c.tuple.remote.Port(), c.tuple.remote.Addr())
	}
	return rules.Upgrades(program, policy.In, c.tuple.local.Port(), c.tuple.remote.Addr())
}

// State returns how far the connection has come on its way to a lane.
func (c *Conn) State() status.State { return status.State(c.state.Load()) }

func (c *Conn) move(from, to status.State) bool {
	moved := c.state.CompareAndSwap(uint32(from), uint32(to))
	if moved {
		c.become()
	}
	return moved
}

// begin locks a side for a call. It returns true, without the lock, if the connection is on TCP for
// good. Then calls go straight to package net, nobody interrupts them, and no call of ours is in
// progress on that side.
func (c *Conn) begin(s *side) (plain bool) {
	if s.plain.Load() {
		return true
	}
	s.lock()
	if c.State() == status.TCP {
		s.plain.Store(true)
		s.mu.Unlock()
		return true
	}
	return false
}

func (c *Conn) engaged() bool { return c.State() == status.Lane }

// serverPort returns the server's port as in the socket address, for the board.
func (c *Conn) serverPort() uint16 {
	server := c.tuple.local
	if c.active {
		server = c.tuple.remote
	}
	w := wire(server)
	return binary.NativeEndian.Uint16(w[16:])
}

// count notes a call by TCP, and starts the search for the peer when it is time.
func (c *Conn) count() {
	calls := c.calls.Add(1)
	if c.State() != status.Counting || calls < c.due.Load() ||
		calls < env.calls && c.tcpRx.Load()+c.tcpTx.Load() < env.bytes || !c.looking.CompareAndSwap(false, true) {
		return
	}
	if status.Reason(c.reason.Load()) == reasonPolicy {
		c.declines(calls)
		return
	}
	switch possible, err := c.home.possible(c); {
	case err != nil:
		c.home.mu.Lock()
		c.stayLocked(unusable(err))
		c.home.mu.Unlock()
	case !possible:
		// Nothing was asked of the kernel, so this may go on for ever: at each call
		// of a young connection, later at every eighth.
		const young = 64
		c.missing()
		if calls < young {
			c.due.Store(calls + 1)
		} else {
			c.due.Store(calls + step)
		}
		c.looking.Store(false)
	default:
		if why := c.worthLooking(calls); why != reasonNone {
			c.reason.Store(uint32(why))
			c.due.Store(calls + step/2)
			c.looking.Store(false)
			return
		}
		go c.home.find(c)
	}
}

// missing says once that no peer has shown up on the board for a while: a peer that is at the
// other end may be slower than we are, so not at the first look. Only the call that has
// set looking runs it.
func (c *Conn) missing() {
	const lonely, patience = 8, 250 * time.Millisecond // looks, and the time since the first
	if c.looks++; c.looks == 1 {
		c.looked = time.Now()
	}
	if c.looks < lonely || status.Reason(c.reason.Load()) == reasonNoPeer || time.Since(c.looked) < patience {
		return
	}
	c.reason.Store(uint32(reasonNoPeer))
	if env.verbose {
		go c.sayWho()
	}
}

// sayWho says who is at the other end of a connection for which no peer has shown up.
func (c *Conn) sayWho() {
	why := reasonNoPeer.String()
	all, err := status.All()
	if err == nil {
		status.Explain(all)
	}
	for _, p := range all {
		for _, s := range p.Sockets {
			if p.PID == os.Getpid() && s.Local == c.tuple.local && s.Remote == c.tuple.remote && s.Reason != status.None {
				why = s.Why()
			}
		}
	}
	log("%v to %v is on TCP: %s", c.tuple.local, c.tuple.remote, why)
}

// takeLane resets our half of a lane and publishes that we have it. The caller holds home.mu.
func (c *Conn) takeLane(ch *channel, number, generation uint32) {
	ch.refs.Add(1)
	c.ch, c.lane, c.generation = ch, number, generation
	c.self = weak.Make(c)
	// If the program drops the connection, the finalizer closes it, as in package net. So
	// nothing that outlives it may point to it, and neither may its own fields (TestDropped).
	runtime.SetFinalizer(c, func(c *Conn) { go c.Close() })
	c.own, c.peer = ch.own.Control(number), ch.peer.Control(number)
	c.out.w = lane.NewWriter(ch.pool, number)
	c.marked.Store(0)
	c.wish.state.Store(wishNone)
	c.wish.asks = 0
	c.in.r = lane.NewReader(ch.own, ch.peer, number)
	for _, w := range []*lane.Word{&c.own.Closed, &c.own.Shut, &c.own.Consent, &c.own.GoBack, &c.own.RxWaiters, &c.own.TxWaiters} {
		w.Store(0)
	}
	c.own.Generation.Store(uint64(generation))
}

// leaveLane lets go of the lane. The caller holds home.mu, and no call is using the lane.
func (c *Conn) leaveLane() {
	ch := c.ch
	c.ch = nil
	if c.own == nil {
		return
	}
	ch.mu.Lock()
	if ch.engaged[c.lane] == c.self {
		ch.engaged[c.lane] = weak.Pointer[Conn]{}
		ch.many--
	}
	ch.mu.Unlock()
	if c.post != 0 {
		c.home.sentry.remove(c)
		c.post = 0
	}
	ch.pool.Left(c.lane)
	c.own.Generation.Store(0)
	c.own, c.peer = nil, nil
	runtime.SetFinalizer(c, nil)
	if !ch.theirs(c.lane) {
		ch.picked[c.lane/64] &^= 1 << (c.lane % 64)
	}
	ch.release()
}

// forget withdraws the offer of a connection that is not engaged. The caller holds home.mu.
func (c *Conn) forget() {
	if c.home.waiting[c.inode] == c {
		delete(c.home.waiting, c.inode)
		if c.home.dir != nil {
			c.home.dir.removeOffer(c.view().Offer())
		}
	}
	c.leaveLane()
}

// stayLocked keeps a connection that is not engaged on TCP for good. The caller holds home.mu.
func (c *Conn) stayLocked(why status.Reason) {
	for s := c.State(); s == status.Counting || s == status.Offered || s == status.Attaching || s == status.Attached; s = c.State() {
		if c.move(s, status.TCP) {
			c.reason.Store(uint32(why))
			c.forget()
			words := why.String()
			if why == reasonRefused && c.refusal != reasonNone {
				words += ": " + c.refusal.String()
			}
			log("%v to %v stays on TCP: %s", c.tuple.local, c.tuple.remote, words)
			return
		}
	}
}

// engage moves an attached connection to its lane once no call of the program is in progress. It
// wakes calls that sleep; they continue afterwards.
func (c *Conn) engage() {
	c.rx.take()
	defer c.rx.mu.Unlock()
	c.tx.take()
	defer c.tx.mu.Unlock()
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	if c.State() != status.Attached {
		return
	}
	switch {
	case c.ch.live.Load() != alive:
		c.stayLocked(reasonPeerGone)
	case c.peer.Generation.Load() != uint64(c.generation): // the peer has waited too long for us
		c.leaveLane()
		c.due.Store(c.calls.Load() + step)
		c.move(status.Attached, status.Counting)
		c.looking.Store(false)
	case !c.counted():
		c.stayLocked(reasonUncounted)
	case c.home.sentry.add(c) != nil:
		c.stayLocked(reasonFiles)
	default:
		c.ch.mu.Lock()
		c.ch.engaged[c.lane] = c.self
		c.ch.many++
		c.ch.mu.Unlock()
		c.own.RxWaiters.Store(awakeMask)
		c.own.TxWaiters.Store(awakeMask)
		c.in.consented++
		c.own.Consent.Store(c.in.consented)
		var told int16
		c.control(func(fd int) { told = poll(fd, unix.POLLRDHUP) })
		// the program called CloseRead before there was a lane
		c.in.shut = told&unix.POLLRDHUP != 0 && !c.finCame()
		c.hint.Store(true)
		c.reason.Store(uint32(reasonNone))
		if !c.move(status.Attached, status.Lane) {
			return // Close came first; it waits for home.mu to undo all this
		}
		log("%v to %v has lane %d of the channel to %s", c.tuple.local, c.tuple.remote, c.lane, c.ch.name)
	}
}

// counted reports whether the connection is established and the kernel has passed on exactly the
// bytes that we counted. None of our calls reads or writes now, but the peer does. Between two
// questions, the bytes received and unread grow, and the bytes to send shrink. Asked before and
// after the totals, they bound the count, and mostly fix it.
func (c *Conn) counted() (equal bool) {
	const established = 1
	c.control(func(fd int) {
		unsent1, err1 := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		unread1, err2 := unix.IoctlGetInt(fd, unix.SIOCINQ)
		t, err3 := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		unread2, err4 := unix.IoctlGetInt(fd, unix.SIOCINQ)
		unsent2, err5 := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || t.State != established {
			return
		}
		acked := t.Bytes_acked
		if c.active {
			acked-- // its SYN
		}
		within := func(n, least, most uint64) bool { return least <= n && n <= most }
		equal = within(c.tcpRx.Load(), t.Bytes_received-uint64(unread2), t.Bytes_received-uint64(unread1)) &&
			within(c.tcpTx.Load(), acked+uint64(unsent2), acked+uint64(unsent1))
	})
	return equal
}

// control calls f with the descriptor. It returns false if the connection is closed.
func (c *Conn) control(f func(fd int)) bool {
	return c.raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}

// opError wraps an error of a call as package net does.
func (c *Conn) opError(op string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.tcp.LocalAddr(), Addr: c.tcp.RemoteAddr(), Err: err}
}

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// SetDeadline sets the deadline of reads and writes, by TCP or by the lane.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.rx.setDeadline(t) }

// SetWriteDeadline sets the deadline of writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.tx.setDeadline(t) }

// SetKeepAlive sets the option on the TCP connection, which stays open.
func (c *Conn) SetKeepAlive(on bool) error { return c.tcp.SetKeepAlive(on) }

// SetKeepAlivePeriod sets the option on the TCP connection, which stays open.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error { return c.tcp.SetKeepAlivePeriod(d) }

// SetKeepAliveConfig sets the options on the TCP connection, which stays open.
func (c *Conn) SetKeepAliveConfig(k net.KeepAliveConfig) error { return c.tcp.SetKeepAliveConfig(k) }

// SetNoDelay concerns bytes by TCP. Bytes on a lane are always readable at once.
func (c *Conn) SetNoDelay(on bool) error { return c.tcp.SetNoDelay(on) }

// SetReadBuffer concerns bytes by TCP. A lane's window has its own size.
func (c *Conn) SetReadBuffer(bytes int) error { return c.tcp.SetReadBuffer(bytes) }

// SetWriteBuffer concerns bytes by TCP.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.tcp.SetWriteBuffer(bytes) }

// MultipathTCP reports whether the connection uses Multipath TCP. If so, it stays on TCP.
func (c *Conn) MultipathTCP() (bool, error) { return c.tcp.MultipathTCP() }

// SetLinger sets what Close does with bytes that the peer has not taken; 0 resets the connection.
func (c *Conn) SetLinger(seconds int) error {
	err := c.tcp.SetLinger(seconds)
	if err == nil {
		c.linger.Store(int32(max(seconds, -1)))
	}
	return err
}

// SyscallConn returns access to the TCP socket. Its Control is for options, and leaves the bytes on
// their path. Its Read and Write would move bytes past this package, so the first of them returns
// the connection to TCP for good.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

// File returns a copy of the TCP socket. It returns the connection to TCP for good.
func (c *Conn) File() (*os.File, error) {
	if err := c.stay(reasonRaw); err != nil {
		return nil, err
	}
	return c.tcp.File()
}

type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(uintptr)) error { return r.c.raw.Control(f) }

func (r rawConn) Read(f func(uintptr) bool) error {
	if err := r.c.stay(reasonRaw); err != nil {
		return err
	}
	return r.c.raw.Read(f)
}

func (r rawConn) Write(f func(uintptr) bool) error {
	if err := r.c.stay(reasonRaw); err != nil {
		return err
	}
	return r.c.raw.Write(f)
}

// A Status describes what has become of a connection.
type Status struct {
	status.Socket // its state, why it is on TCP, and bytes by path
	ReadWindow    int
	WriteWindow   int
}

// Upgraded reports whether the connection has a lane. It reads and writes through it as soon as the
// peer agrees.
func (s Status) Upgraded() bool { return s.State == status.Lane }

// Status examines the connection. It interrupts calls that sleep on it; they continue afterwards.
func (c *Conn) Status() Status {
	c.rx.take()
	defer c.rx.mu.Unlock()
	c.tx.take()
	defer c.tx.mu.Unlock()
	if c.home != nil { // home.mu guards the lane until the connection is engaged
		c.home.mu.Lock()
		defer c.home.mu.Unlock()
	}
	s := Status{Socket: status.Socket{
		State: c.State().Settled(status.Reason(c.reason.Load())), Reason: status.Reason(c.reason.Load()), Local: c.tuple.local, Remote: c.tuple.remote, Inode: c.shown.Inode.Load(),
		TCP: status.Bytes{Read: c.tcpRx.Load(), Written: c.tcpTx.Load()},
	}}
	if s.Reason == reasonRefused {
		s.Peer.Reason = c.refusal
	}
	all, window := c.in.r.Bytes()
	s.ZCopy.Read = c.in.r.ZCopied()
	s.RMA.Read, s.VELO.Read = window, all-window-s.ZCopy.Read
	all, window = c.out.w.Bytes()
	s.ZCopy.Written = c.out.w.ZCopied()
	s.RMA.Written, s.VELO.Written = window, all-window-s.ZCopy.Written
	if s.State == status.Lane {
		s.ReadsLane, s.WritesLane = c.in.mode == onLane, c.out.mode.Load() == onLane
		s.ReadWindow, s.WriteWindow = c.in.r.Window(), c.out.w.Window()
	}
	return s
}
