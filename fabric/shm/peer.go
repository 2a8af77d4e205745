package shm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A peer is another node, as long as the control socket to it lives. The hang-up of that socket is
// how we notice its death. So we make the socket with every node at once, and the channel only when
// a message is sent.
type peer struct {
	n       *Node
	id      fabric.NodeID
	conn    *net.UnixConn // nil for ourselves
	region  region        // the peer's node region
	channel *channel      // under Node.mu; set once
	imports map[uint32]*imported
	bye     bool // it has announced that it leaves
	gone    atomic.Bool

	registersSent, registersDone atomic.Uint64 // our writes to its registers, and its answers

	sendMu sync.Mutex
	queue  []outgoing
	busy   bool // the writer is sending what it took from the queue
	more   chan struct{}
	over   bool
}

// outgoing is a message with its own descriptor, or -1.
type outgoing struct {
	m  message
	fd int
}

const (
	// handshakePatience is how long a peer may take to say hello.
	handshakePatience = 5 * time.Second
	// maxGreetings limits the connections that have not introduced themselves.
	maxGreetings = 256
	// maxQueue limits the control messages that wait for a peer that does not read. An honest
	// peer is sent a handful for each flow, window and sleep.
	maxQueue = 4096
	// Control messages are rare between honest nodes: a doorbell or window
	// now and then. A peer may send controlBurst at once and controlRate a second.
	controlBurst = 16384
	controlRate  = 16384
)

// removePeer frees everything that belongs to a peer that is gone, except for rings that still hold
// messages from it: these go when they have been read.
func (n *Node) removePeer(p *peer) {
	p.gone.Store(true)
	n.mu.Lock()
	delete(n.peers, p.id)
	n.peersChanged()
	for _, m := range n.memories {
		delete(m.holders, p)
	}
	ch := p.channel
	ports, rma := n.openPorts(), n.rmaPorts()
	if ch != nil {
		ch.readers = 1 // ourselves, until all halves have been asked
		n.countChannels(-1)
	}
	if !p.bye {
		atomic.AddUint64(n.region.register(fabric.RegPeersLost), 1)
	}
	n.mu.Unlock()
	for _, r := range rma {
		for id := range p.imports {
			r.forgetMemory(memoryKey{ch, id})
		}
	}
	for _, mem := range p.imports {
		n.unmapImported(mem)
	}
	if ch == nil {
		p.region.unmap()
	} else {
		for k := range n.interrupts {
			if i := n.interrupts[k].Load(); i != nil {
				i.disconnect(ch)
			}
		}
		for _, port := range ports {
			port.tx.pause()
			port.tx.forget(ch)
			port.tx.resume()
			port.rx.pause()
			if port.rx.end(ch) {
				n.mu.Lock()
				ch.readers++
				n.mu.Unlock()
			}
			port.rx.resume()
			port.tx.tryAgain() // it may have waited for credit of this peer
			if port.rx.irq != nil {
				port.rx.irq.nudge()
			}
		}
		n.readerDone(ch)
	}
	n.events.add(fabric.Event{Node: p.id, Crashed: !p.bye})
}

// readerDone is called once for each reader counted in readers. The last one closes the channel.
func (n *Node) readerDone(ch *channel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch.readers--; ch.readers == 0 {
		ch.close()
		ch.peer.region.unmap()
	}
}

// read handles the peer's control messages until the connection ends.
func (p *peer) read() {
	tokens, last := float64(controlBurst), time.Now()
	for {
		m, fd, err := readMessage(p.conn)
		if err == nil {
			now := time.Now()
			tokens = min(controlBurst, tokens+now.Sub(last).Seconds()*controlRate) - 1
			last = now
			if m.kind == msgBye {
				p.bye = true
				return
			}
			if tokens < 0 || !p.handle(m, fd) {
				err = errProtocol
			}
			closeFD(fd)
		}
		if errors.Is(err, errProtocol) {
			p.n.mu.Lock()
			atomic.AddUint64(p.n.region.register(fabric.RegDroppedControl), 1)
			p.n.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// handle does what a message asks. It returns false if the message is invalid. The caller closes
// the descriptor afterwards.
func (p *peer) handle(m message, fd int) bool {
	n := p.n
	switch m.kind {
	case msgChannel:
		return n.channelFrom(p, fd)
	case msgDoorbell:
		return p.takeDoorbell(int(m.a), fd)
	case msgRing:
		n.raise(int(m.a))
	case msgImport:
		n.exportMemory(p, fabric.NLA(m.b), uint32(m.c))
	case msgImported:
		return n.importMemory(p, m, fd)
	case msgFreed:
		n.freedMemory(p, uint32(m.c))
	case msgRegister:
		n.registerWritten(p, m)
	case msgRegistered:
		return n.registerDone(p)
	default:
		return false // a second hello
	}
	return true
}

// takeDoorbell keeps the eventfd that wakes an interrupt of the peer.
func (p *peer) takeDoorbell(irq, fd int) bool {
	p.n.mu.Lock()
	ch := p.channel
	p.n.mu.Unlock()
	if ch == nil {
		return false
	}
	ch.doorMu.Lock()
	defer ch.doorMu.Unlock()
	if ch.doors[irq] != 0 {
		return false
	}
	// Adding 0 to an eventfd cannot block; a write to anything else can.
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return true // no /proc: we ring by message
	}
	if kind != "anon_inode:[eventfd]" {
		return false
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		ch.doors[irq] = own
	} // otherwise we ring by message
	return true
}

// channelTo returns the channel to a peer, and makes our side of it on first use. The caller holds
// mu.
func (n *Node) channelTo(p *peer) (*channel, error) {
	if p.channel != nil {
		return p.channel, nil
	}
	ch, err := n.newChannel(p)
	if err != nil {
		return nil, err
	}
	p.channel = ch
	n.countChannels(1)
	p.send(message{kind: msgChannel}, ch.tx.fd)
	for k := range n.interrupts {
		if i := n.interrupts[k].Load(); i != nil {
			if err := i.connect(ch); err != nil {
				ch.drop(fabric.RegDroppedMemory)
				return nil, err
			}
		}
	}
	return ch, nil
}

func (n *Node) newChannel(p *peer) (*channel, error) {
	m, err := newMemfd("exnet-channel", channelSize, false)
	if err != nil {
		return nil, err
	}
	n.lastSerial++
	ch := &channel{n: n, peer: p, serial: n.lastSerial, tx: region{m}, txFlows: map[flowWord]*txFlow{}}
	if p.conn == nil {
		p.channel = ch
	}
	return ch, nil
}

// countChannels updates the register. The caller holds mu.
func (n *Node) countChannels(d int64) {
	atomic.AddUint64(n.region.register(fabric.RegChannels), uint64(d))
}

// channelFrom accepts the peer's side of the channel, and makes ours.
func (n *Node) channelFrom(p *peer, fd int) bool {
	m, err := mapPeer(fd, channelSize, false)
	if err != nil {
		return false
	}
	rx := &region{m}
	n.mu.Lock()
	ch, err := n.channelTo(p)
	if err != nil || !ch.rx.CompareAndSwap(nil, rx) {
		n.mu.Unlock()
		rx.unmap()
		return false
	}
	ports := n.openPorts()
	n.mu.Unlock()
	// Messages sent and credit given before we knew the region have raised no interrupt.
	for _, port := range ports {
		port.rx.pause()
		port.rx.join(ch, rx)
		port.rx.resume()
		if port.rx.irq != nil {
			port.rx.irq.nudge()
		}
		port.tx.pause()
		if port.tx.blockedOn(ch) {
			port.tx.waits.Store(true)
		}
		port.tx.resume()
		port.tx.tryAgain()
	}
	return true
}

// send queues a message. It never blocks, and duplicates the descriptor.
func (p *peer) send(m message, fd int) {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	if p.over {
		return
	}
	if len(p.queue) >= maxQueue {
		p.conn.Close() // it has not read for a long time
		return
	}
	if fd >= 0 {
		var err error
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			p.conn.Close() // out of descriptors: the peer would wait for this one in vain
			return
		}
	}
	p.queue = append(p.queue, outgoing{m, fd})
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// write sends queued messages until stopWriting.
func (p *peer) write() {
	for range p.more {
		p.sendMu.Lock()
		batch := p.queue
		p.queue, p.busy = nil, true
		p.sendMu.Unlock()
		for _, o := range batch {
			if writeMessage(p.conn, o.m, o.fd) != nil {
				// read notices that after it has read what came before, such as
				// a farewell
				p.conn.CloseRead()
			}
			closeFD(o.fd)
		}
		p.sendMu.Lock()
		p.busy = false
		p.sendMu.Unlock()
	}
}

func (p *peer) stopWriting() {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	p.over = true
	close(p.more)
	for _, o := range p.queue {
		closeFD(o.fd)
	}
	p.queue = nil
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
