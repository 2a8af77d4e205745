package directsockets

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"weak"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/status"
	"exnet/fabric/dir"
)

// A channel joins this process and another one. It consists of a memory file from each, doorbells,
// and a control socket that names connections and shows when the peer dies. Three goroutines serve
// it, asleep in the netpoller: one reads control messages, two watch doorbells (watch.go,
// night.go).
//
// Each user of the memory holds a reference: the goroutines, and each connection with a lane.
// Dropping the last reference unmaps it.
type channel struct {
	home    *rendezvous
	inviter bool // we connected the control socket, so we pick the even lanes
	uid     uint32
	strange lane.Stranger // the peer is another user's
	pid     int           // of the peer, for zcopy.go
	process int           // the same process as a pidfd, or -1
	zcopy   atomic.Int32
	ctl     pollable
	bell    pollable // rung for ourWaiter
	night   pollable // rung for nightWaiter
	roost   roost
	own     *lane.Memory
	live    atomic.Uint32
	refs    atomic.Int32

	// Guarded by home.mu until HELLO arrives, then constant.
	name  string // of the peer's listener
	peer  *lane.Memory
	pool  *lane.Pool
	bells [lane.Waiters]int
	takes bool // the peer knows buffers

	// Guarded by home.mu.
	why        status.Reason
	newer      bool // the peer is of a later version, and has not yet shown that it speaks ours
	sent       uint64
	generation uint32
	picked     [4096 / 64]uint64 // lanes that we picked
	touched    [4096 / 64]uint64 // lanes that the budget has paid for

	spent atomic.Uint64 // bytes that the budget has granted

	// rung is, for each waiter of the peer, the epoch for which we rang last. If two goroutines
	// race to store it, there is one ring too many.
	rung [lane.Waiters]atomic.Uint64

	mu      sync.Mutex           // guards what follows
	waiting []*Conn              // connections whose writers sleep
	marks   lane.Marks           // for readers that sleep
	engaged []weak.Pointer[Conn] // by lane; empty before HELLO
	many    int                  // connections in engaged
}

const (
	alive = 1
	ended = 2
)

// A pollable is one of our descriptors, in the netpoller.
type pollable struct {
	file *os.File
	raw  syscall.RawConn
}

func newPollable(fd int, name string) (pollable, error) {
	f := os.NewFile(uintptr(fd), name) // non-blocking, so it joins the netpoller
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return pollable{}, err
	}
	return pollable{f, raw}, nil
}

// closeLater closes descriptors that goroutines are reading. It does so in a goroutine: Close waits
// for the readers, and they may be waiting for a lock that the caller holds.
func closeLater(all ...pollable) {
	go func() {
		for _, p := range all {
			p.file.Close()
		}
	}()
}

// openChannel makes a channel from a connected control socket, which it takes over, and sends
// HELLO. The caller holds home.mu.
func openChannel(home *rendezvous, socket int, inviter bool) (ch *channel, why status.Reason, err error) {
	ch = &channel{home: home, inviter: inviter, process: -1}
	for i := range ch.bells {
		ch.bells[i] = -1
	}
	memory := -1
	defer func() {
		if memory >= 0 {
			unix.Close(memory)
		}
		if err == nil {
			return
		}
		if ch.ctl.file == nil {
			unix.Close(socket)
		}
		for _, p := range []pollable{ch.ctl, ch.bell, ch.night} {
			if p.file != nil {
				p.file.Close()
			}
		}
		ch.roost.close()
		ch.own.Unmap()
		closeProcess(ch)
		budget.giveBack(ch.spent.Load())
		ch = nil
	}()
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return ch, reasonNoPeer, os.NewSyscallError("SO_PEERCRED", err)
	}
	ch.uid, ch.pid = peer.Uid, int(peer.Pid)
	ch.strange = lane.Stranger(int(ch.uid) != unix.Geteuid())
	if ch.strange && home.dir.peers == dir.SameUser { // root's, who needs no permission to connect
		return ch, reasonRefused, fmt.Errorf("a program of user %d: %w", ch.uid, unix.EPERM)
	}
	ch.process = peerProcess(socket)
	if ch.own, memory, err = ch.newMemory(); err != nil {
		return ch, reasonMemory, err
	}
	var day, night int
	if ch.bell, day, err = newBell(); err != nil {
		return ch, reasonFiles, err
	}
	if ch.night, night, err = newBell(); err != nil {
		return ch, reasonFiles, err
	}
	if err = ch.roost.open(ch.own); err != nil {
		return ch, reasonFiles, err
	}
	fds := []int{memory}
	for w := range lane.Waiters {
		switch {
		case w == nightWaiter:
			fds = append(fds, night)
		case w >= firstPerch && w < firstPerch+perches:
			fds = append(fds, ch.roost.perch[w-firstPerch].fd)
		default:
			fds = append(fds, day) // waiters that are not used get this doorbell too
		}
	}
	if ch.ctl, err = newPollable(socket, "exn-ds-control"); err != nil {
		return ch, reasonFiles, err
	}
	g := ch.own.Geometry
	if err = ch.send(&message{kind: msgHello, version: lane.Version, geometry: g, size: g.Size(), name: home.me, features: takesBuffers}, fds...); err != nil {
		return ch, reasonNoPeer, err
	}
	ch.live.Store(alive)
	ch.refs.Store(3)
	home.channels[ch] = struct{}{}
	go ch.watchBell()
	go ch.watchNight()
	go ch.receive()
	return ch, reasonNone, nil
}

// newBell makes a doorbell: an eventfd with the value 1 that is never read. Adding 0 rings it. So
// nobody can empty it or make it block, and every ring is an edge.
func newBell() (p pollable, fd int, err error) {
	if fd, err = unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return p, -1, os.NewSyscallError("eventfd2", err)
	}
	p, err = newPollable(fd, "exn-ds-doorbell")
	return p, fd, err
}

// newMemory makes our memory file, with fewer lanes and windows if address space is short.
func (ch *channel) newMemory() (m *lane.Memory, fd int, err error) {
	first := env.geometry
	if ch.strange {
		first = first.Lessen()
		if !budget.take(first.Size(), forWindows) { // it is touched as a whole
			return nil, -1, unix.ENOMEM
		}
		ch.spent.Add(first.Size())
	}
	for g := first; g.Lanes >= 2; g.Lanes, g.Windows = g.Lanes/2&^1, (g.Windows+1)/2 {
		if m, fd, err = lane.New(g, ch.strange); err == nil || !errors.Is(err, unix.ENOMEM) {
			break
		}
	}
	return m, fd, err
}

// send sends a control message, without blocking. The caller holds home.mu.
func (ch *channel) send(m *message, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var err error
	if cerr := ch.ctl.raw.Control(func(fd uintptr) {
		err = unix.Sendmsg(int(fd), m.encode(), rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	ch.sent++
	ch.own.Head().Posted.Store(ch.sent)
	return nil
}

// receive handles control messages until the channel ends.
func (ch *channel) receive() {
	defer ch.release()
	var b [messageSize]byte
	oob := make([]byte, unix.CmsgSpace(4*(1+lane.Waiters)))
	why := reasonPeerGone
	ch.ctl.raw.Read(func(fd uintptr) bool {
		for {
			n, on, flags, _, err := unix.Recvmsg(int(fd), b[:], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if err == unix.EINTR {
				continue
			}
			if err == unix.EAGAIN {
				return ch.live.Load() != alive
			}
			if err != nil || n == 0 {
				return true
			}
			fds := rightsOf(oob[:on])
			ok := n == messageSize && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) == 0
			if ok {
				why = ch.handle(&b, fds)
			}
			for _, fd := range fds {
				if fd >= 0 {
					unix.Close(fd)
				}
			}
			if !ok {
				why = reasonHostile
			}
			if why != reasonNone {
				return true
			}
			why = reasonPeerGone
		}
	})
	ch.home.mu.Lock()
	ch.kill(why)
	ch.home.mu.Unlock()
}

func rightsOf(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// handle processes a message. It replaces the descriptors that it keeps by -1.
func (ch *channel) handle(b *[messageSize]byte, fds []int) status.Reason {
	var m message
	if !m.decode(b) {
		return reasonHostile
	}
	ch.home.mu.Lock()
	defer ch.home.mu.Unlock()
	switch {
	case ch.live.Load() != alive:
		return ch.why
	case m.kind == msgHello && ch.peer == nil:
		return ch.hello(&m, fds)
	case ch.peer == nil:
		return reasonHostile
	}
	ch.newer = false
	switch m.kind {
	case msgAttach:
		ch.home.attach(ch, &m, fds)
	case msgAttachOK, msgAttachNo:
		ch.home.answered(ch, &m, fds)
	default:
		return reasonHostile
	}
	return reasonNone
}

// hello maps the peer's file and keeps its doorbells.
func (ch *channel) hello(m *message, fds []int) status.Reason {
	if m.version < lane.Oldest {
		return reasonVersion
	}
	if len(fds) != 1+lane.Waiters || m.name != "" && !listenerName(m.name) {
		return reasonHostile
	}
	for _, fd := range fds[1:] {
		// Ringing anything but an eventfd could block or deliver bytes.
		if kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || kind != "anon_inode:[eventfd]" {
			return reasonHostile
		}
	}
	peer, err := lane.MapPeer(fds[0], m.geometry, m.size, ch.strange)
	if errors.Is(err, lane.ErrHostile) {
		return reasonHostile
	} else if err != nil {
		return reasonMemory
	}
	for w := range ch.bells {
		ch.bells[w] = fds[1+w]
		fds[1+w] = -1
	}
	ch.name, ch.peer, ch.takes = strings.Clone(m.name), peer, m.features&takesBuffers != 0
	ch.newer = m.version > lane.Version
	ch.pool = lane.NewPool(ch.own, peer, env.windowLeast, ch.affordWindow)
	ch.pool.Dated = m.features&takesDates != 0
	ch.mu.Lock()
	ch.marks, ch.engaged = lane.NewMarks(peer, ourWaiter), make([]weak.Pointer[Conn], ch.usable())
	ch.mu.Unlock()
	ch.home.greeted(ch)
	return reasonNone
}

// kill ends a channel. The caller holds home.mu. Memory and doorbells stay until all their users
// have let go.
func (ch *channel) kill(why status.Reason) {
	if !ch.live.CompareAndSwap(alive, ended) {
		return
	}
	if ch.newer && why == reasonPeerGone {
		why = reasonVersion // it takes none of ours
	}
	ch.why = why
	delete(ch.home.channels, ch)
	log("channel to %s ends: %v", ch.name, why)
	ch.home.abandon(ch)
	closeLater(ch.ctl, ch.bell, ch.night) // this ends its goroutines
	ch.mu.Lock()
	ch.wakeAllLocked()
	ch.mu.Unlock()
}

// release drops a reference.
func (ch *channel) release() {
	if ch.refs.Add(-1) > 0 {
		return
	}
	for _, fd := range ch.bells {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	budget.giveBack(ch.spent.Load())
	ch.roost.close()
	ch.own.Unmap()
	ch.peer.Unmap()
	closeProcess(ch)
}

// ring notifies the peer of c that we posted a slot or gave credit on its lane, (1) in watch.go.
// mask is a word of the peer's control block. ring makes the mark that it asks for, and wakes the
// waiters that it names if they sleep. The caller holds a reference.
func (ch *channel) ring(c *Conn, mask *lane.Word) {
	m := mask.Load()
	if m == 0 {
		return
	}
	if asked := lane.Asked(m); asked != 0 {
		if was := c.marked.Load(); was != asked && c.marked.CompareAndSwap(was, asked) {
			ch.own.Mark(c.lane, m)
		}
	}
	for m &= 1<<lane.Waiters - 1; m != 0; m &= m - 1 {
		w := bits.TrailingZeros64(m)
		if e := ch.peer.Asleep(w); e != 0 && ch.rung[w].Load() != e {
			ringBell(ch.bells[w])
			ch.rung[w].Store(e) // afterwards: if we die in between, the peer gets another ring
		}
	}
}

// usable returns how many lanes both files have.
func (ch *channel) usable() uint32 { return min(ch.own.Lanes, ch.peer.Lanes) }

// theirs reports whether the peer is the one to pick this lane.
func (ch *channel) theirs(number uint32) bool { return number&1 == 1 == ch.inviter }

// free returns the lowest lane, among those that we may pick, that both sides have let go of. The
// caller holds home.mu.
func (ch *channel) free() (number uint32, ok bool) {
	ours := uint64(0x5555555555555555)
	if !ch.inviter {
		ours <<= 1
	}
	for word, picked := range ch.picked {
		for left := ^picked & ours; left != 0; left &= left - 1 {
			number = uint32(word*64 + bits.TrailingZeros64(left))
			if number >= ch.usable() {
				return 0, false
			}
			if ch.own.Control(number).Generation.Load() == 0 && ch.peer.Control(number).Generation.Load() == 0 {
				return number, true
			}
		}
	}
	return 0, false
}

// pick takes a lane for one of our connections. The caller holds home.mu.
func (ch *channel) pick() (number, generation uint32, ok bool) {
	if number, ok = ch.free(); !ok {
		return 0, 0, false
	}
	ch.picked[number/64] |= 1 << (number % 64)
	if ch.generation++; ch.generation == 0 {
		ch.generation = 1
	}
	return number, ch.generation, true
}

// full reports whether all lanes that we may pick are taken. Before HELLO we do not know, and it
// returns false.
func (ch *channel) full() bool {
	if ch.peer == nil {
		return false
	}
	_, ok := ch.free()
	return !ok
}

// afford charges the budget for a lane, once. The caller holds home.mu.
func (ch *channel) afford(number uint32) bool {
	word, bit := &ch.touched[number/64], uint64(1)<<(number%64)
	if *word&bit != 0 {
		return true
	}
	if !budget.take(ch.own.Touched(), forAll) {
		return false
	}
	ch.spent.Add(ch.own.Touched())
	*word |= bit
	return true
}

// affordWindow charges the budget for n bytes of windows.
func (ch *channel) affordWindow(n uint64, growth bool) bool {
	part := forWindows
	if growth {
		part = forGrowth
	}
	if !budget.take(n, part) {
		return false
	}
	ch.spent.Add(n)
	return true
}

// cpu returns the CPU on which this thread runs, plus one, or 0 if unknown.
func cpu() uint64 {
	var c uint32
	if _, _, e := getcpu(&c); e != 0 {
		return 0
	}
	return uint64(c) + 1
}

// ran tells the peer on which CPU we run.
func (ch *channel) ran() (here uint64) {
	here = cpu()
	if w := &ch.own.Head().CPU; w.Load() != here {
		w.Store(here)
	}
	return here
}

// near reports whether the peer last ran on this CPU. If so, it cannot run while we spin.
func (ch *channel) near() bool {
	here := ch.ran()
	return here != 0 && ch.peer.Head().CPU.Load() == here
}
