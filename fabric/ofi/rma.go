package ofi

import (
	"encoding/binary"
	"math/bits"

	"exnet/fabric"
)

// An rmaPort implements fabric.RMA.
type rmaPort struct {
	port[fabric.Notification]
	windows map[*window]bool
}

var _ fabric.RMA = (*rmaPort)(nil)

// OpenRMA implements fabric.Node.
func (n *Node) OpenRMA(v fabric.VPID, irq fabric.PortInterrupts) (fabric.RMA, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := v
	n.flushed(fabric.UnitRMA, v)
	if n.closed {
		return nil, n.errClosed("open RMA port")
	}
	v, err := choose(v, func(v fabric.VPID) bool {
		return n.rmaPorts[v] != nil || asked == fabric.VPIDAny && n.flushing[fabric.UnitRMA][v] > 0
	})
	if err != nil {
		return nil, err
	}
	own, err := n.interruptsOf(irq)
	if err != nil {
		return nil, err
	}
	p := &rmaPort{windows: map[*window]bool{}}
	p.begin(n, fabric.UnitRMA, v, own)
	n.rmaPorts[v] = p
	return p, nil
}

// Address implements fabric.RMA.
func (p *rmaPort) Address() fabric.Address { return p.address }

// notifiesThere reports whether an operation gives a notification at its target.
func notifiesThere(d *fabric.RMADescriptor) bool {
	if d.Command == fabric.Get {
		return d.Mask&fabric.NotifyResponder != 0
	}
	return d.Mask&fabric.NotifyCompleter != 0
}

// placesHere is how many notifications an operation may give where it was
// posted: a fault takes the place of the others.
func placesHere(d *fabric.RMADescriptor) int {
	if d.Command == fabric.Get && d.Mask&(fabric.NotifyCompleter|fabric.NotifyRequester) == fabric.NotifyCompleter|fabric.NotifyRequester {
		return 2
	}
	return 1
}

// Post implements fabric.RMA.
func (p *rmaPort) Post(d *fabric.RMADescriptor) error {
	n := p.n
	if n.isClosed() {
		return fabric.ErrClosed
	}
	if err := d.Check(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.open || n.closed {
		return fabric.ErrClosed
	}
	p.wants, p.room = false, false
	if !n.accept(p, d) {
		n.drive() // there may be room by now
		if !p.open || n.closed {
			return fabric.ErrClosed
		}
		if !n.accept(p, d) {
			n.count(fabric.RegRMAFull, 1)
			to := n.peers[d.To.Node]
			if to == nil {
				to = n.nowhere
			}
			return p.refuse(want{to, d.To.VPID, notifiesThere(d), placesHere(d)})
		}
	}
	switch d.Command {
	case fabric.Put:
		n.count(fabric.RegRMAPuts, 1)
		n.count(fabric.RegRMAPutBytes, uint64(d.Length))
		n.count(fabric.RegRMAPackets, uint64(fabric.RMAPackets(d.Length)))
	case fabric.Get:
		n.count(fabric.RegRMAGets, 1)
		n.count(fabric.RegRMAGetBytes, uint64(d.Length))
		n.count(fabric.RegRMAPackets, uint64(fabric.RMAPackets(d.Length)))
	default:
		n.count(fabric.RegRMAImmediate, 1)
	}
	return nil
}

// accept takes an operation if there is room for it and its notifications.
func (n *Node) accept(port *rmaPort, d *fabric.RMADescriptor) bool {
	p := n.peers[d.To.Node]
	if p == nil || !p.up {
		p = n.nowhere
	}
	q, places := port.queue(p), placesHere(d)
	if q.n+q.reserved+places > creditWindow {
		return false
	}
	if p == n.nowhere {
		n.notifyHere(port, p, d, fabric.FaultNode)
		return true
	}
	if p.self {
		return n.doHere(port, p, d)
	}
	if len(n.freeOps) == 0 || notifiesThere(d) && !p.rma.room(d.To.VPID) {
		return false
	}
	local, fault := n.aimLocal(port, d)
	q.reserved += places
	if notifiesThere(d) {
		p.rma.sent[d.To.VPID]++
	}
	o := n.enqueue(p, d, port, q, places, local)
	if fault != fabric.FaultNone {
		n.finish(o, fault)
		return true
	}
	n.begin(p)
	if p.posts == 0 {
		n.post(p)
	}
	n.progress.kick()
	return true
}

// aimLocal translates the side of an operation that is here.
func (n *Node) aimLocal(port *rmaPort, d *fabric.RMADescriptor) (cursor, fabric.Fault) {
	if d.Command == fabric.ImmediatePut {
		return cursor{}, fabric.FaultNone
	}
	if uint64(d.Remote)>>63 == 1 {
		switch _, ok := d.Remote.Register(); {
		case d.Command == fabric.Put:
			return cursor{}, fabric.FaultRights
		case !ok:
			return cursor{}, fabric.FaultStale
		case d.Length != 8:
			return cursor{}, fabric.FaultRange
		}
	}
	return n.aim(d.Local, d.Length, port.address.VPID, 0)
}

// bytesOf is how many bytes an operation moves, for its notifications.
func bytesOf(d *fabric.RMADescriptor) int {
	if d.Command == fabric.ImmediatePut {
		return bits.OnesCount8(d.Enable)
	}
	return d.Length
}

// notifyHere gives an operation's notifications at the port that posted it.
func (n *Node) notifyHere(port *rmaPort, from *peer, d *fabric.RMADescriptor, f fabric.Fault) {
	note := fabric.Notification{Command: d.Command, Kind: fabric.KindRequester, Fault: f, Peer: d.To, Local: d.Local, Count: bytesOf(d)}
	if d.Command == fabric.ImmediatePut {
		note.Local = 0
	}
	switch f {
	case fabric.FaultStale, fabric.FaultRange, fabric.FaultVPID, fabric.FaultRights:
		n.count(fabric.RegATUFaults, 1)
	}
	if f != fabric.FaultNone {
		n.notify(port, from, &note)
		return
	}
	if d.Mask&fabric.NotifyRequester != 0 {
		n.notify(port, from, &note)
	}
	if d.Command == fabric.Get && d.Mask&fabric.NotifyCompleter != 0 {
		note.Kind, note.Local = fabric.KindCompleter, fabric.LastPacket(d.Local, d.Length)
		n.notify(port, from, &note)
	}
}

func (n *Node) notify(port *rmaPort, from *peer, note *fabric.Notification) {
	port.deposit(from, note)
	port.irq.receive.raise()
}

// notifyThere gives the notification at the target. If nobody has the port
// open there is none.
func (n *Node) notifyThere(from *peer, src fabric.Address, v fabric.VPID, c fabric.Command, remote fabric.NLA, length int) {
	port := n.rmaPorts[v]
	if gone := from.flushing[fabric.UnitRMA][v] > 0; gone || port == nil {
		if gone {
			n.count(fabric.RegRMADiscarded, 1)
		}
		if !from.self {
			from.rma.consume(v, 1)
		}
		return
	}
	note := fabric.Notification{Command: c, Kind: fabric.KindCompleter, Peer: src, Local: remote, Count: length}
	if c == fabric.Get {
		note.Kind = fabric.KindResponder
	}
	if c != fabric.ImmediatePut {
		note.Local = fabric.LastPacket(remote, length)
	}
	n.notify(port, from, &note)
}

// doHere does an operation on a port of this node.
func (n *Node) doHere(port *rmaPort, p *peer, d *fabric.RMADescriptor) bool {
	target := n.rmaPorts[d.To.VPID]
	if target != nil && notifiesThere(d) {
		most := creditWindow
		if target == port {
			most -= placesHere(d)
		}
		if q := target.queue(p); q.n+q.reserved >= most {
			return false
		}
	}
	local, fault := n.aimLocal(port, d)
	if fault == fabric.FaultNone {
		fault = n.execute(port, &local, d)
	}
	local.drop()
	if fault == fabric.FaultNone && notifiesThere(d) {
		n.notifyThere(p, port.address, d.To.VPID, d.Command, d.Remote, bytesOf(d))
	}
	n.notifyHere(port, p, d, fault)
	return true
}

func (n *Node) execute(port *rmaPort, local *cursor, d *fabric.RMADescriptor) fabric.Fault {
	if d.Command == fabric.ImmediatePut {
		return n.putImmediate(d.Remote, d.To.VPID, d.Data, d.Enable)
	}
	if r, ok := d.Remote.Register(); ok {
		v, _ := n.readRegister(r)
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		local.write(b[:])
		return fabric.FaultNone
	}
	need := fabric.RemoteWrite
	if d.Command == fabric.Get {
		need = fabric.RemoteRead
	}
	remote, fault := n.aim(d.Remote, d.Length, d.To.VPID, need)
	if fault != fabric.FaultNone {
		return fault
	}
	defer remote.drop()
	for remote.left > 0 {
		b := remote.take(remote.left)
		if d.Command == fabric.Put {
			local.read(b)
		} else {
			local.write(b)
		}
	}
	return fabric.FaultNone
}

// putImmediate writes the enabled bytes of a window or register of this node.
func (n *Node) putImmediate(a fabric.NLA, v fabric.VPID, data uint64, enable uint8) fabric.Fault {
	if uint64(a)>>63 == 1 {
		r, ok := a.Register()
		if !ok {
			return fabric.FaultStale
		}
		old, err := n.readRegister(r)
		if err != nil || !r.Writable() {
			return fabric.FaultRights
		}
		n.writeRegister(r, fabric.MergeImmediate(old, data, enable))
		return fabric.FaultNone
	}
	length := bits.Len8(enable)
	c, f := n.aim(a, length, v, fabric.RemoteWrite)
	if f != fabric.FaultNone {
		return f
	}
	for i := range length {
		if b := c.take(1); enable>>i&1 == 1 {
			b[0] = byte(data >> (8 * i))
		}
	}
	c.drop()
	return fabric.FaultNone
}

// Poll implements fabric.RMA.
func (p *rmaPort) Poll(into []fabric.Notification) int {
	n := p.n
	n.progress.polls.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.open || n.closed {
		return 0
	}
	if len(p.ready) == 0 {
		n.drive()
		if !p.open {
			return 0
		}
	}
	tell := false
	k := p.take(into, func(q *queue[fabric.Notification], note *fabric.Notification) {
		n.count(fabric.RegRMARequester+fabric.Register(note.Kind-fabric.KindRequester), 1)
		if note.Fault != fabric.FaultNone {
			n.count(fabric.RegRMAFaults, 1)
		}
		if q.stale {
			return
		}
		if p.came(q.peer, note) && q.peer.rma.consume(p.address.VPID, 1) {
			tell = true
			n.touch(q.peer)
		}
	})
	if k > 0 {
		n.room(nil)
	}
	if tell {
		n.drive()
	}
	return k
}

// came reports whether a notification took the peer's credit, not a place that
// was reserved here.
func (p *rmaPort) came(from *peer, note *fabric.Notification) bool {
	switch {
	case from.self || from == p.n.nowhere:
		return false
	case note.Kind == fabric.KindResponder:
		return true
	}
	return note.Kind == fabric.KindCompleter && note.Command != fabric.Get
}

// Close implements fabric.RMA.
func (p *rmaPort) Close() error {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closeRMA(p)
	return nil
}

func (n *Node) closeRMA(p *rmaPort) {
	if !p.open {
		return
	}
	for _, q := range p.ready { // count what peers get back; then forget it all
		if q.stale || q.peer.self || q.peer == n.nowhere {
			continue
		}
		back := uint32(0)
		for i := range q.n {
			if p.came(q.peer, &q.items[(q.head+i)%len(q.items)]) {
				back++
			}
		}
		q.peer.rma.consume(p.address.VPID, back)
		n.touch(q.peer)
	}
	left := p.finish(func(q *queue[fabric.Notification], _ uint32) {
		if q.peer.self {
			n.room(q.peer)
		}
	})
	n.count(fabric.RegRMADiscarded, uint64(left))
	n.rmaPorts[p.address.VPID] = nil
	n.flushPort(fabric.UnitRMA, p.address.VPID)
	for w := range p.windows {
		w.deregister()
	}
	if !n.closed {
		n.drive()
	}
}
