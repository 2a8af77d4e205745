package directsockets

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/internal/lane"
	"exnet/directsockets/status"
	"exnet/fabric/dir"
)

// A rendezvous is where connections of this process find their peers in one fabric directory,
// without a daemon (ext-ds.md, section 2):
//
//	COUNTING ──busy──► OFFERED ──ATTACH came, proof good──► ATTACHED
//	    ▲  └─peer's offer found──► ATTACHING ──ATTACH_OK──────┘
//	    └────1 s without an answer────┘
//
// The program's calls only count, and look at the board. What follows happens on goroutines of its
// own, while bytes go on by TCP: one per attempt, and two per channel. All of it is under mu, which
// no call on a connection waits for.
type rendezvous struct {
	fabric string

	mu     sync.Mutex
	failed error // why the directory is unusable; we do not try again
	dir    *directory
	board  *board
	// the board's counters, or the process's own
	brief atomic.Pointer[[boardEntries]atomic.Uint32]
	// name of our listener; empty before there is one
	me       string
	listener pollable
	sentry   *sentry
	waiting  map[uint64]*Conn // OFFERED and ATTACHING, by inode
	channels map[*channel]struct{}
	declined bool // a connection of ours has refused
}

const (
	offerLife = time.Second // after this time we withdraw an unanswered offer
	// After this many offers we take the peer to be plain TCP. Between offers pass 8, then 64,
	// 512, … calls.
	offersMost = 6
	step       = 8
)

var meetings struct {
	mu sync.Mutex
	by map[string]*rendezvous // by fabric directory
}

// meetingIn returns the rendezvous of this process in a fabric directory.
func meetingIn(fabric string) *rendezvous {
	if fabric == "" {
		fabric = env.fabric
	}
	meetings.mu.Lock()
	defer meetings.mu.Unlock()
	r := meetings.by[fabric]
	if r == nil {
		r = &rendezvous{fabric: fabric, waiting: map[uint64]*Conn{}, channels: map[*channel]struct{}{}}
		if meetings.by == nil {
			meetings.by = map[string]*rendezvous{}
		}
		meetings.by[fabric] = r
	}
	return r
}

// open opens the directory, once. The caller holds mu.
func (r *rendezvous) open() error {
	if r.dir != nil || r.failed != nil {
		return r.failed
	}
	opened, err := openDirectory(r.fabric, env.peers)
	if err != nil {
		log("connections stay on TCP: %v", err)
		if unusable(err) == reasonDirectory {
			r.failed = err // the directory will not improve
		}
		return err
	}
	r.dir = opened
	r.board = r.dir.openBoard()
	r.brief.Store(&brief)
	if r.board != nil {
		r.brief.Store(&r.board.brief)
	}
	return nil
}

// unusable returns why a connection stays on TCP after an error while opening or using the fabric
// directory.
func unusable(err error) status.Reason {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return reasonFiles
	}
	return reasonDirectory
}

// ready makes the listener through which peers find this process. The caller holds mu.
func (r *rendezvous) ready() error {
	if r.me != "" {
		return nil
	}
	var nonce [8]byte
	rand.Read(nonce[:])
	name := fmt.Sprintf("p-%d-%s", os.Getpid(), hex.EncodeToString(nonce[:]))
	r.dir.sweep()
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(s, r.dir.address(name)); err == nil {
		err = unix.Listen(s, 4096)
	}
	if err != nil {
		unix.Close(s)
		return os.NewSyscallError("bind", err)
	}
	var st unix.Stat_t
	const group = 0o020
	mode := uint32(0o600) // whatever the umask
	if r.dir.peers == dir.Group && unix.Fstat(r.dir.fd, &st) == nil && st.Mode&group != 0 {
		mode = 0o660
	}
	unix.Fchmodat(r.dir.fd, name, mode, 0)
	if r.sentry == nil {
		if r.sentry, err = newSentry(); err != nil {
			unix.Close(s)
			return err
		}
	}
	if r.listener, err = newPollable(s, "exn-ds-listener"); err != nil {
		return err
	}
	r.me = name
	go r.accept(r.listener)
	return nil
}

// accept opens channels for peers that connect to our listener.
func (r *rendezvous) accept(listener pollable) {
	listener.raw.Read(func(fd uintptr) bool {
		for {
			s, _, err := unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			switch err {
			case nil:
			case unix.EAGAIN:
				return false
			case unix.EINTR, unix.ECONNABORTED:
				continue
			case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
				// The edge is used up. This peer gives up after a second; the next
				// one makes another edge.
				return false
			default:
				return true
			}
			r.mu.Lock()
			if _, _, err := openChannel(r, s, false); err != nil {
				log("no channel: %v", err)
			}
			r.mu.Unlock()
		}
	})
}

// retire undoes everything, for tests.
func (r *rendezvous) retire() {
	meetings.mu.Lock()
	delete(meetings.by, r.fabric)
	meetings.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.me != "" {
		r.dir.remove(r.me, unix.S_IFSOCK)
		closeLater(r.listener, r.sentry.set)
		r.me = ""
	}
	for ch := range r.channels {
		ch.kill(reasonPeerGone)
	}
	if r.dir != nil {
		r.dir.close()
		r.dir, r.board = nil, nil
	}
}

// possible reports whether the peer of a busy connection may have EXT-DS. It makes no system call,
// except the first time. While another call holds mu it returns false, since the program's call
// must not wait.
func (r *rendezvous) possible(c *Conn) (bool, error) {
	if !r.mu.TryLock() {
		return false, nil
	}
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return false, err
	}
	return r.board.meet(c.serverPort(), c.active), nil
}

// find makes an offer and looks for the peer's offer.
func (r *rendezvous) find(c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.State() != status.Counting || r.open() != nil {
		return
	}
	if why := r.identify(c); why != reasonNone {
		c.stayLocked(why)
		return
	}
	if err := r.ready(); err != nil {
		log("no listener in the fabric directory: %v", err)
		c.stayLocked(unusable(err))
		return
	}
	if err := r.dir.makeOffer(c.view().Offer(), r.me, c.inode); errors.Is(err, fs.ErrNotExist) {
		// The directory was removed: make it again.
		closeLater(r.listener)
		r.dir.close()
		r.dir, r.board, r.me = nil, nil, ""
		r.later(c, reasonDirectory)
		return
	} else if err != nil {
		c.stayLocked(reasonDirectory)
		return
	}
	c.attempt++
	attempt := c.attempt
	time.AfterFunc(offerLife, func() { r.expire(c, attempt) })
	if !c.move(status.Counting, status.Offered) {
		r.dir.removeOffer(c.view().Offer()) // closed meanwhile
		return
	}
	r.waiting[c.inode] = c
	r.look(c)
	if c.translates && c.State() == status.Offered {
		r.lookAgain(c, attempt, time.Millisecond)
	}
}

// look looks for the offer of the peer.
func (r *rendezvous) look(c *Conn) {
	there := home.View{Net: cmp.Or(c.peerNet, c.netns), Local: c.other.local, Remote: c.other.remote}
	if c.other == (tuple{}) {
		return
	}
	if peer, inode, found := r.dir.lookOffer(there.Offer()); found {
		r.begin(c, peer, inode)
	} else {
		r.refusedBy(c)
	}
}

// lookAgain looks for the peer's offer once a bridge has registered how the peer sees the
// connection. Our offer causes the bridge to register it.
func (r *rendezvous) lookAgain(c *Conn, attempt int, after time.Duration) {
	time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.State() != status.Offered || c.attempt != attempt || r.dir == nil {
			return
		}
		if r.translated(c) {
			r.look(c)
		}
		r.lookAgain(c, attempt, 2*after)
	})
}

// translated reports whether a bridge has registered how the peer sees the connection, and notes
// it.
func (r *rendezvous) translated(c *Conn) bool {
	if !c.translates {
		return false
	}
	other, ok := home.Translated(r.fabric, c.view())
	if !ok {
		return false
	}
	c.other, c.peerNet = tuple{other.Local, other.Remote}, 0
	if other.Net != c.netns {
		c.peerNet = other.Net
	}
	return true
}

// identify asks the kernel for the identity of c, and the fabric directory for the place of its
// other end.
func (r *rendezvous) identify(c *Conn) status.Reason {
	why := reasonNoPeer
	c.raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		protocol, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err != nil || unix.Fstat(int(fd), &st) != nil {
			return
		}
		if protocol != unix.IPPROTO_TCP {
			why = reasonOption // MPTCP
			return
		}
		c.inode = st.Ino
		c.shown.Inode.Store(c.inode)
		// 0 if unknown, for both ends
		c.netns, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		why = reasonNone
	})
	if why != reasonNone {
		return why
	}
	c.other, c.peerNet = c.tuple.turned(), 0
	c.translates = r.board.translated() && home.Translates(r.fabric)
	if r.translated(c) || c.tuple.inland(env.subnets) {
		return reasonNone
	}
	there, ok := c.tuple.abroad(r.fabric, c.netns)
	c.peerNet = there
	switch {
	case ok:
		return reasonNone
	case c.translates: // a bridge may register it once there is an offer
		c.other = tuple{}
		return reasonNone
	}
	return reasonAddress
}

// begin asks the owner of an offer to attach the connection.
func (r *rendezvous) begin(c *Conn, peer string, inode uint64) {
	r.dir.removeOffer(c.view().Offer())
	if !c.move(status.Offered, status.Attaching) {
		return
	}
	c.peerInode = inode
	r.join(c, peer)
}

// join asks for a lane on a channel to the peer.
func (r *rendezvous) join(c *Conn, peer string) {
	ch, why := r.channelTo(peer)
	switch {
	case ch != nil:
		c.ch = ch
		r.ask(c)
	case why == reasonLanes:
		c.stayLocked(why)
	default:
		r.later(c, why)
	}
}

// channelsMost is the most channels to one peer. With the default geometry they have as many lanes
// as the C library has connections.
const channelsMost = 8

// channelTo returns a channel to that peer that is not full, making one if necessary.
func (r *rendezvous) channelTo(name string) (*channel, status.Reason) {
	full := 0
	for ch := range r.channels {
		if ch.name != name {
			continue
		}
		if !ch.full() {
			return ch, reasonNone
		}
		full++
	}
	if full >= channelsMost {
		return nil, reasonLanes
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, reasonFiles
	}
	if err := r.dir.connect(s, name); err != nil {
		unix.Close(s)
		return nil, reasonNoPeer
	}
	ch, why, err := openChannel(r, s, true)
	if err != nil {
		log("no channel: %v", err)
		return nil, why
	}
	ch.name = name
	return ch, reasonNone
}

// ask sends ATTACH, if HELLO has come.
func (r *rendezvous) ask(c *Conn) {
	ch := c.ch
	if ch.peer == nil || c.own != nil {
		return
	}
	number, generation, ok := ch.pick()
	if !ok { // other connections were faster
		c.ch = nil
		r.join(c, ch.name)
		return
	}
	if !ch.afford(number) {
		ch.picked[number/64] &^= 1 << (number % 64)
		c.stayLocked(reasonMemory)
		return
	}
	c.takeLane(ch, number, generation)
	m := message{
		kind: msgAttach, version: lane.Version, lane: number, generation: generation,
		inode: c.inode, peerInode: c.peerInode, tuple: c.tuple, v6: c.tuple.local.Addr().Is6(),
	}
	if why := r.sendProven(c, &m); why != reasonNone {
		r.later(c, why)
	}
}

// sendProven sends a message with the proof that we own c.
func (r *rendezvous) sendProven(c *Conn, m *message) status.Reason {
	var fds []int
	err := error(nil)
	if cerr := c.raw.Control(func(fd uintptr) { fds, err = makeProof(int(fd), c.peerNet != 0) }); cerr != nil || err != nil {
		return reasonFiles
	}
	defer closeAll(fds)
	if c.ch.send(m, fds...) != nil {
		return reasonNoPeer
	}
	return reasonNone
}

// greeted continues with the connections that waited for HELLO.
func (r *rendezvous) greeted(ch *channel) {
	for _, c := range r.waiting {
		if c.ch == ch && c.State() == status.Attaching {
			r.ask(c)
		}
	}
}

// attach answers ATTACH.
func (r *rendezvous) attach(ch *channel, m *message, handed []int) {
	c := r.waiting[m.peerInode]
	if c != nil && c.other != m.tuple && !(r.translated(c) && c.other == m.tuple) {
		c = nil
	}
	refuse := func(why status.Reason) {
		no := message{kind: msgAttachNo, version: lane.Version, lane: m.lane, generation: m.generation, reason: uint32(why)}
		ch.send(&no) // a peer that does not get it gives up after a second
	}
	switch {
	case c == nil || m.lane >= ch.usable() || !ch.theirs(m.lane) || m.generation == 0 || ch.own.Control(m.lane).Generation.Load() != 0:
		refuse(reasonNoPeer)
		return
	case c.own != nil && c.first():
		refuse(reasonNone) // our own ATTACH is on its way
		return
	}
	why := c.checkProof(m.inode, ch.uid, handed)
	if why == reasonNone && !ch.afford(m.lane) {
		why = reasonMemory
	}
	if why != reasonNone {
		refuse(why)
		r.settle(c, why)
		return
	}
	r.dir.removeOffer(c.view().Offer())
	c.leaveLane()
	c.takeLane(ch, m.lane, m.generation)
	c.peerInode = m.inode
	ok := message{kind: msgAttachOK, version: lane.Version, lane: m.lane, generation: m.generation, inode: c.inode}
	if why := r.sendProven(c, &ok); why != reasonNone {
		c.stayLocked(why)
		return
	}
	r.attached(c)
}

// settle ends an attempt, depending on the verdict on the peer's proof.
func (r *rendezvous) settle(c *Conn, why status.Reason) {
	switch why {
	case reasonNone:
		r.attached(c)
	case reasonNoPeer:
		r.later(c, why)
	default:
		c.stayLocked(why)
	}
}

// answered handles the answer to our ATTACH.
func (r *rendezvous) answered(ch *channel, m *message, handed []int) {
	for _, c := range r.waiting {
		if c.State() != status.Attaching || c.ch != ch || c.own == nil || c.lane != m.lane || c.generation != m.generation {
			continue
		}
		switch why := status.Reason(m.reason); {
		case m.kind == msgAttachOK && m.inode != c.peerInode:
			c.stayLocked(reasonProof)
		case m.kind == msgAttachOK:
			r.settle(c, c.checkProof(m.inode, ch.uid, handed))
		case why == reasonMemory || why == reasonProof:
			c.stayLocked(reasonRefused)
		case why != reasonNone:
			r.later(c, reasonRefused)
		default: // the peer's own ATTACH is on its way
			c.leaveLane()
			c.move(status.Attaching, status.Offered)
		}
		return
	}
}

// attached starts engage, which waits for the connection's calls.
func (r *rendezvous) attached(c *Conn) {
	delete(r.waiting, c.inode)
	if c.move(status.Offered, status.Attached) || c.move(status.Attaching, status.Attached) {
		go c.engage()
	}
}

// expire withdraws an offer or a request that nobody has answered.
func (r *rendezvous) expire(c *Conn, attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := c.State(); c.attempt == attempt && (s == status.Offered || s == status.Attaching) && !r.refusedBy(c) {
		r.later(c, reasonNoPeer)
	}
}

// later gives up this attempt, and the connection after some.
func (r *rendezvous) later(c *Conn, why status.Reason) {
	switch {
	case why == reasonNoPeer && c.other == (tuple{}):
		why = reasonAddress // nobody knows of a translation, and that will not change
	case why == reasonNoPeer && c.peerNet == 0 && c.elsewhere():
		why = reasonNAT
	}
	if c.offers++; why == reasonNAT || why == reasonAddress || c.offers >= offersMost {
		c.stayLocked(why)
		return
	}
	c.forget()
	c.reason.Store(uint32(why))
	c.due.Store(c.calls.Load() + step<<(3*c.offers))
	if c.move(status.Offered, status.Counting) || c.move(status.Attaching, status.Counting) || c.State() == status.Counting {
		c.looking.Store(false)
	}
}
