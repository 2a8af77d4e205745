package ofi

import (
	"exnet/fabric"
)

// A veloPort implements fabric.VELO.
type veloPort struct {
	port[fabric.Message]
	heldHere int // messages of it that wait for PUTs, over all peers
}

var _ fabric.VELO = (*veloPort)(nil)

// A heldMessage waits until the operations up to a number are over.
type heldMessage struct {
	port    *veloPort
	after   uint64
	dst     fabric.VPID
	tags    uint32
	length  uint8
	payload [fabric.VELOMaxPayload]byte
}

// heldMost is how many messages to one peer wait for PUTs.
const heldMost = 64

// OpenVELO implements fabric.Node.
func (n *Node) OpenVELO(v fabric.VPID, irq fabric.PortInterrupts) (fabric.VELO, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := v
	n.flushed(fabric.UnitVELO, v)
	if n.closed {
		return nil, n.errClosed("open VELO port")
	}
	v, err := choose(v, func(v fabric.VPID) bool {
		return n.veloPorts[v] != nil || asked == fabric.VPIDAny && n.flushing[fabric.UnitVELO][v] > 0
	})
	if err != nil {
		return nil, err
	}
	own, err := n.interruptsOf(irq)
	if err != nil {
		return nil, err
	}
	p := &veloPort{}
	p.begin(n, fabric.UnitVELO, v, own)
	n.veloPorts[v] = p
	return p, nil
}

// Address implements fabric.VELO.
func (v *veloPort) Address() fabric.Address { return v.address }

// tagsOf packs a descriptor for recVELO: tags and, by the caller, length.
func tagsOf(d fabric.VELODescriptor, length int) uint32 {
	t := uint32(d.UserTag) | uint32(d.MTT)<<8 | uint32(length)<<16
	if d.Multicast {
		t |= 1 << 24
	}
	if d.Quiet {
		t |= 1 << 25
	}
	return t
}

// Send implements fabric.VELO.
func (v *veloPort) Send(d fabric.VELODescriptor, payload []byte) error {
	n := v.n
	if len(payload) < 1 || len(payload) > fabric.VELOMaxPayload {
		return fabric.ErrLength
	}
	if !d.Valid() {
		return fabric.ErrRange
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !v.open || n.closed {
		return fabric.ErrClosed
	}
	v.wants, v.room = false, false
	if d.Multicast {
		n.multicast(v, d, payload)
	} else {
		p := n.peers[d.To.Node]
		if p == nil || !p.up {
			return fabric.ErrNoNode
		}
		if p.self && n.veloPorts[d.To.VPID] == nil {
			return fabric.ErrNoPort
		}
		if !n.offer(v, p, d, payload) {
			n.drive() // it may have come already
			if !v.open || n.closed {
				return fabric.ErrClosed
			}
			if !p.up {
				return fabric.ErrNoNode
			}
			if !n.offer(v, p, d, payload) {
				n.count(fabric.RegVELOFull, 1)
				return v.refuse(want{peer: p, to: d.To.VPID})
			}
		}
	}
	n.count(fabric.RegVELOSent, 1)
	n.count(fabric.RegVELOSentBytes, uint64(len(payload)))
	return nil
}

// offer sends a message to one peer if there is room.
func (n *Node) offer(v *veloPort, p *peer, d fabric.VELODescriptor, payload []byte) bool {
	to := d.To.VPID
	if p.self {
		return n.sendSelf(v, p, d, payload)
	}
	if !p.velo.room(to) {
		return false
	}
	if wait := d.After && p.first != none; wait || v.heldHere > 0 && p.holds(v) {
		if len(p.held) >= heldMost {
			return false
		}
		h := heldMessage{port: v, dst: to, tags: tagsOf(d, len(payload)), length: uint8(len(payload))}
		if wait {
			h.after = p.opNumber
		}
		copy(h.payload[:], payload)
		p.held = append(p.held, h)
		v.heldHere++
		p.velo.sent[to]++
		return true
	}
	r := record{kind: recVELO, src: uint8(v.address.VPID), dst: uint8(to), op: tagsOf(d, len(payload)), data: payload}
	if !p.space(r.size(), 0) {
		return false
	}
	p.add(&r)
	p.velo.sent[to]++
	n.urge(p)
	return true
}

// urge gets a frame out: at once if the provider has nothing of this peer's to
// do, else with what is sent until it has done that. Now and then it looks.
func (n *Node) urge(p *peer) {
	if p.posts == 0 {
		n.post(p)
		if p.blocked {
			n.progress.kick()
		}
		return
	}
	if n.urged++; n.urged%8 == 0 {
		n.drive()
	} else {
		n.progress.kick()
	}
}

// holds reports whether messages of a port to the peer wait for PUTs.
func (p *peer) holds(v *veloPort) bool {
	for i := range p.held {
		if p.held[i].port == v {
			return true
		}
	}
	return false
}

// releaseHeld sends the messages whose PUTs are over.
func (n *Node) releaseHeld(p *peer) {
	k := 0
	for ; k < len(p.held); k++ {
		h := &p.held[k]
		if p.first != none && n.ops[p.first].number <= h.after {
			break
		}
		r := record{kind: recVELO, src: uint8(h.port.address.VPID), dst: uint8(h.dst), op: h.tags, data: h.payload[:h.length]}
		if !p.space(r.size(), 0) {
			break
		}
		p.add(&r)
		h.port.heldHere--
	}
	if k > 0 {
		p.held = p.held[:copy(p.held, p.held[k:])]
		n.room(p)
	}
}

// sendSelf delivers to a port of this node.
func (n *Node) sendSelf(v *veloPort, p *peer, d fabric.VELODescriptor, payload []byte) bool {
	to := n.veloPorts[d.To.VPID]
	if to == nil {
		n.count(fabric.RegVELONoPort, 1)
		return true
	}
	if to.queue(p).n >= creditWindow {
		return false
	}
	n.deliver(to, p, fabric.MakeStatus(v.address, d, len(payload), 0), payload)
	return true
}

// deliver puts a message into a port's queue.
func (n *Node) deliver(to *veloPort, from *peer, s fabric.Status, payload []byte) {
	m := fabric.Message{Status: s}
	copy(m.Data[:], payload)
	to.deposit(from, &m)
	if s.Interrupt() {
		to.irq.receive.raise()
	}
}

// multicast sends a copy to every member but ourselves. A member without room
// loses its copy.
func (n *Node) multicast(v *veloPort, d fabric.VELODescriptor, payload []byte) {
	g := fabric.Group(d.To.Node)
	for _, p := range n.list {
		if p.self || !p.up || !member(g, p.groups) {
			continue
		}
		one := d
		if !p.velo.room(d.To.VPID) {
			n.drive()
		}
		if p.up && n.offer(v, p, one, payload) {
			n.count(fabric.RegVELOMulticastCopies, 1)
		} else {
			n.count(fabric.RegVELOMulticastLost, 1)
		}
	}
}

func member(g fabric.Group, groups uint64) bool { return g == fabric.GroupAll || groups>>g&1 == 1 }

// receivedVELO takes a message off the wire; false for what no honest peer sends.
func (p *peer) receivedVELO(r *record) bool {
	n := p.n
	d := fabric.VELODescriptor{
		To: fabric.Address{VPID: fabric.VPID(r.dst)}, UserTag: uint8(r.op & 0xff), MTT: uint8(r.op >> 8 & 0xff),
		Multicast: r.op>>24&1 == 1, Quiet: r.op>>25&1 == 1,
	}
	v := fabric.VPID(r.dst)
	if r.a != 0 || r.op>>26 != 0 || !d.Valid() || len(r.data) < 1 || len(r.data) > fabric.VELOMaxPayload ||
		p.velo.came[v]-p.velo.consumed[v] >= creditWindow {
		return false
	}
	p.velo.came[v]++
	to := n.veloPorts[v]
	if gone := p.flushing[fabric.UnitVELO][v] > 0; gone || to == nil {
		if gone {
			n.count(fabric.RegVELODiscarded, 1)
		} else {
			n.count(fabric.RegVELONoPort, 1)
		}
		p.velo.consume(v, 1)
		return true
	}
	n.deliver(to, p, fabric.MakeStatus(fabric.Address{Node: p.id, VPID: fabric.VPID(r.src)}, d, len(r.data), 0), r.data)
	return true
}

// Poll implements fabric.VELO.
func (v *veloPort) Poll(into []fabric.Message) int {
	n := v.n
	n.progress.polls.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !v.open || n.closed {
		return 0
	}
	if len(v.ready) == 0 {
		n.drive()
		if !v.open {
			return 0
		}
	}
	bytes := 0
	tell := false
	k := v.take(into, func(q *queue[fabric.Message], m *fabric.Message) {
		bytes += m.Status.Len()
		if q.stale {
			return
		}
		if q.peer.self {
			n.room(q.peer)
		} else if q.peer.velo.consume(v.address.VPID, 1) {
			tell = true
			n.touch(q.peer)
		}
	})
	if k > 0 {
		n.count(fabric.RegVELOReceived, uint64(k))
		n.count(fabric.RegVELOReceivedBytes, uint64(bytes))
	}
	if tell {
		n.drive()
	}
	return k
}

// Close implements fabric.VELO.
func (v *veloPort) Close() error {
	n := v.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closeVELO(v)
	return nil
}

func (n *Node) closeVELO(v *veloPort) {
	if !v.open {
		return
	}
	left := v.finish(func(q *queue[fabric.Message], k uint32) {
		if q.peer.self {
			n.room(q.peer)
		} else if !q.stale {
			q.peer.velo.consume(v.address.VPID, k)
			n.touch(q.peer)
		}
	})
	n.count(fabric.RegVELODiscarded, uint64(left))
	n.veloPorts[v.address.VPID] = nil
	n.flushPort(fabric.UnitVELO, v.address.VPID)
	if !n.closed {
		n.drive()
	}
}
