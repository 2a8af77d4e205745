package ofi

import (
	"exnet/fabric"
)

// An inboundPut is the PUT by message that a peer is sending; one at a time.
type inboundPut struct {
	cursor
	op       uint32
	src, dst fabric.VPID
	mask     fabric.Mask
	remote   fabric.NLA
	length   int
	missing  int // bytes that have not come
	fault    fabric.Fault
}

// An outboundGet is a GET by message of a peer; they are served in order.
type outboundGet struct {
	source   cursor
	op       uint32
	src, dst fabric.VPID
	mask     fabric.Mask
	remote   fabric.NLA
	length   int
}

// records handles the records of a frame. A peer that sends what no honest one
// does loses its session, and nothing else happens.
func (p *peer) records(b []byte) {
	for len(b) > 0 && p.up {
		var r record
		k := r.decode(b)
		if k == 0 {
			p.violates(fabric.RegDroppedControl)
			return
		}
		b = b[k:]
		if counted, ok := p.handle(&r); !ok {
			p.violates(counted)
			return
		}
	}
}

// handle does what a record says. If it is not legal it says as what to count it.
func (p *peer) handle(r *record) (fabric.Register, bool) {
	switch r.kind {
	case recVELO:
		return fabric.RegDroppedVELO, p.receivedVELO(r)
	case recCredit:
		return fabric.RegDroppedCredit, p.receivedCredit(r)
	case recImm, recRead, recPut, recPutData, recGet, recPutDone, recGetDone:
		return fabric.RegDroppedRMA, p.receivedOperation(r)
	case recReply, recValue, recGetData:
		return fabric.RegDroppedRMA, p.receivedAnswer(r)
	case recLease:
		p.receivedLease(r)
	case recGrant:
		return fabric.RegDroppedMemory, p.receivedGrant(r)
	case recRevoke:
		return fabric.RegDroppedMemory, p.receivedRevoke(r)
	case recRevoked:
		return fabric.RegDroppedMemory, p.receivedRevoked(r)
	case recClosed:
		p.put(record{kind: recFlushed, a: r.a, dst: r.dst})
	case recFlushed:
		return fabric.RegDroppedFlow, p.receivedFlushed(r)
	case recGroups:
		p.groups = r.x
	case recBye:
		p.session.told = p.session.taken
		p.sendControl(header{kind: frameAck, session: p.session.id, seq: p.session.posted, ack: p.session.taken}, nil)
		p.end(false)
		p.helloGap = helloMost
		p.helloAt = p.n.now.Add(helloMost)
	}
	return 0, true
}

// receivedCredit: the latest count is all that matters, and it cannot be above
// what was sent.
func (p *peer) receivedCredit(r *record) bool {
	c := &p.velo
	if r.a == uint8(fabric.UnitRMA) {
		c = &p.rma
	} else if r.a != uint8(fabric.UnitVELO) {
		return false
	}
	v := fabric.VPID(r.dst)
	if more := uint32(r.x) - c.acked[v]; more > c.sent[v]-c.acked[v] {
		return false
	}
	c.acked[v] = uint32(r.x)
	p.n.room(p)
	return true
}

// charge takes a place for the notification of an operation of the peer's.
func (p *peer) charge(v fabric.VPID) bool {
	if p.rma.came[v]-p.rma.consumed[v] >= creditWindow {
		return false
	}
	p.rma.came[v]++
	return true
}

func (p *peer) receivedOperation(r *record) bool {
	n := p.n
	src, dst, mask, remote := fabric.VPID(r.src), fabric.VPID(r.dst), fabric.Mask(r.a), fabric.NLA(r.x)
	if r.kind == recPutData {
		return p.receivedPutData(r)
	}
	command, length := fabric.Put, int(min(r.y, fabric.RMAMaxLength+1))
	switch r.kind {
	case recImm:
		command, length = fabric.ImmediatePut, 1
	case recGet, recGetDone, recRead:
		command = fabric.Get
	}
	notifies := notifiesThere(&fabric.RMADescriptor{Command: command, Mask: mask})
	if mask > 7 || length < 1 || length > fabric.RMAMaxLength || notifies && !p.charge(dst) {
		return false
	}
	from := fabric.Address{Node: p.id, VPID: src}
	fault := fabric.FaultNone
	switch r.kind {
	case recPutDone, recGetDone:
		if !notifies {
			return false
		}
		n.notifyThere(p, from, dst, command, remote, length)
		return true
	case recImm:
		enable := uint8(r.z)
		if enable == 0 || r.z > 255 {
			return false
		}
		length = bytesOf(&fabric.RMADescriptor{Command: command, Enable: enable})
		fault = n.putImmediate(remote, dst, r.y, enable)
		p.put(record{kind: recReply, a: uint8(fault), op: r.op})
	case recRead:
		var value uint64
		if reg, ok := remote.Register(); !ok {
			fault = fabric.FaultStale
		} else if length != 8 {
			fault = fabric.FaultRange
		} else {
			value, _ = n.readRegister(reg)
		}
		p.put(record{kind: recValue, a: uint8(fault), op: r.op, x: value})
	case recPut:
		if p.inPut.missing > 0 {
			return false
		}
		p.inPut = inboundPut{op: r.op, src: src, dst: dst, mask: mask, remote: remote, length: length, missing: length}
		p.inPut.cursor, p.inPut.fault = n.aim(remote, length, dst, fabric.RemoteWrite)
		return true
	case recGet:
		if len(p.gets) >= mostOperations {
			return false
		}
		var source cursor
		if source, fault = n.aim(remote, length, dst, fabric.RemoteRead); fault == fabric.FaultNone {
			p.gets = append(p.gets, outboundGet{source, r.op, src, dst, mask, remote, length})
			return true
		}
		p.put(record{kind: recReply, a: uint8(fault), op: r.op})
	}
	p.conclude(from, dst, command, notifies, remote, length, fault)
	return true
}

// conclude gives the notification of an operation that is done, or takes its
// place back after a fault.
func (p *peer) conclude(from fabric.Address, dst fabric.VPID, c fabric.Command, notifies bool, remote fabric.NLA, length int, f fabric.Fault) {
	switch {
	case !notifies:
	case f == fabric.FaultNone:
		p.n.notifyThere(p, from, dst, c, remote, length)
	default:
		p.rma.consume(dst, 1)
	}
}

func (p *peer) receivedPutData(r *record) bool {
	in := &p.inPut
	if len(r.data) < 1 || len(r.data) > in.missing || r.op != in.op {
		return false
	}
	if in.fault == fabric.FaultNone {
		in.cursor.write(r.data)
	}
	if in.missing -= len(r.data); in.missing > 0 {
		return true
	}
	in.cursor.drop()
	p.put(record{kind: recReply, a: uint8(in.fault), op: in.op})
	notifies := in.mask&fabric.NotifyCompleter != 0
	p.conclude(fabric.Address{Node: p.id, VPID: in.src}, in.dst, fabric.Put, notifies, in.remote, in.length, in.fault)
	return true
}

// serveGets sends the data of the peer's GETs.
func (n *Node) serveGets(p *peer) {
	for len(p.gets) > 0 {
		g := &p.gets[0]
		for g.source.left > 0 {
			k := p.chunk(g.source.left)
			if k == 0 {
				return
			}
			p.addData(record{kind: recGetData, op: g.op}, &g.source, k)
		}
		g.source.drop()
		notifies := g.mask&fabric.NotifyResponder != 0
		p.conclude(fabric.Address{Node: p.id, VPID: g.src}, g.dst, fabric.Get, notifies, g.remote, g.length, fabric.FaultNone)
		p.gets = p.gets[:copy(p.gets, p.gets[1:])]
	}
}

// receivedAnswer takes the answer to an operation of ours.
func (p *peer) receivedAnswer(r *record) bool {
	n := p.n
	o := n.named(p, r.op)
	if o == nil || o.byRMA || r.kind != recGetData && r.a > uint8(fabric.FaultMemory) {
		return false
	}
	register := o.d.Command == fabric.Get && uint64(o.d.Remote)>>63 == 1
	switch fault := fabric.Fault(r.a); r.kind {
	case recReply:
		if register || o.d.Command == fabric.Get && fault == fabric.FaultNone || o.d.Command == fabric.Put && o.local.left > 0 {
			return false
		}
		n.finish(o, fault)
	case recValue:
		if !register {
			return false
		}
		if fault == fabric.FaultNone {
			var b [8]byte
			for i := range b {
				b[i] = byte(r.x >> (8 * i))
			}
			o.local.write(b[:])
		}
		n.finish(o, fault)
	case recGetData:
		if register || o.d.Command != fabric.Get || len(r.data) < 1 || len(r.data) > o.local.left {
			return false
		}
		o.local.write(r.data)
		if o.local.left == 0 {
			n.finish(o, fabric.FaultNone)
		}
	}
	return true
}
