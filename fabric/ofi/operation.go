package ofi

import (
	"syscall"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// An operation is a PUT, a GET or an immediate PUT to another node, from Post
// to its last notification. Those to one peer form a list; they begin in order
// and end in order, so their notifications, here and there, are in order too.
//
// Small ones and those to scattered windows go by message: the data are
// records of the session. Large ones go by RMA, once there is a lease of the
// remote window. One by message begins only when none by RMA is under way
// before it, since the target learns of the end of the latter by a message.
type operation struct {
	at        int32 // its index
	used      bool
	gen       uint32
	number    uint64 // per peer, rising
	d         fabric.RMADescriptor
	port      *rmaPort
	queue     *queue[fabric.Notification]
	places    int // reserved in queue
	peer      *peer
	after     int32 // the next in the list
	begun     bool
	byRMA     bool
	over      bool
	byMessage bool // the window is scattered
	fault     fabric.Fault
	local     cursor
	lease     *lease
	remote    uint64 // by RMA: the next address there
	posts     int    // that the provider has not completed
	orphaned  bool   // the session is over; only the provider still has it
	headSent  bool   // of a PUT by message
}

const (
	mostOperations = 1024
	// leastRMA is the length from which an operation goes by RMA. Below, a copy
	// into a frame costs less than a second completion.
	leastRMA = 16 << 10
	// bulkReserve is how much of a window bulk data leaves to messages.
	bulkReserve = 16
)

// name is the operation's number on the wire.
func (n *Node) name(i int32) uint32 { return uint32(i) | n.ops[i].gen<<10 }

// named finds an operation by it; nil for one that is not under way to p.
func (n *Node) named(p *peer, name uint32) *operation {
	o := &n.ops[name&(mostOperations-1)]
	if !o.used || o.peer != p || o.gen&(1<<22-1) != name>>10 || !o.begun || o.over || o.orphaned {
		return nil
	}
	return o
}

// enqueue adds an operation at the end of its peer's list.
func (n *Node) enqueue(p *peer, d *fabric.RMADescriptor, port *rmaPort, q *queue[fabric.Notification], places int, local cursor) *operation {
	i := n.freeOps[len(n.freeOps)-1]
	n.freeOps = n.freeOps[:len(n.freeOps)-1]
	p.opNumber++
	o := &n.ops[i]
	gen := o.gen + 1
	*o = operation{at: i, used: true, gen: gen, number: p.opNumber, d: *d, port: port, queue: q, places: places, peer: p, after: none, local: local}
	if p.first == none {
		p.first = i
	} else {
		n.ops[p.last].after = i
	}
	p.last = i
	if p.next == none {
		p.next = i
	}
	return o
}

// begin begins the operations that can.
func (n *Node) begin(p *peer) {
	if len(p.outbox) > 0 {
		return // the word of an operation by RMA goes first
	}
	for p.next != none {
		o := &n.ops[p.next]
		if !n.start(p, p.next, o) {
			return
		}
		p.next = o.after
	}
}

// start reports whether the operation has done all that it does in order.
func (n *Node) start(p *peer, i int32, o *operation) bool {
	d := &o.d
	switch {
	case o.over:
		return true
	case d.Command == fabric.ImmediatePut:
		return p.byRMA == 0 && n.startRecord(p, o, record{kind: recImm, a: uint8(d.Mask), x: uint64(d.Remote), y: d.Data, z: uint64(d.Enable), op: n.name(i)})
	case uint64(d.Remote)>>63 == 1:
		return p.byRMA == 0 && n.startRecord(p, o, record{kind: recRead, a: uint8(d.Mask), x: uint64(d.Remote), y: uint64(d.Length), op: n.name(i)})
	}
	if d.Length >= leastRMA && !o.byMessage {
		if !o.byRMA {
			l := n.lease(p, d)
			if l == nil {
				return false // asked for
			}
			if f := l.check(d); f != fabric.FaultNone {
				n.finish(o, f)
				return true
			}
			if o.byMessage = !l.direct; l.direct {
				o.lease, o.byRMA, o.begun = l, true, true
				o.remote = l.base + d.Remote.Offset()
				l.users++
				p.byRMA++
			}
		}
		if o.byRMA {
			return n.move(p, i, o)
		}
	}
	if p.byRMA > 0 {
		return false
	}
	if d.Command == fabric.Get {
		return n.startRecord(p, o, record{kind: recGet, a: uint8(d.Mask), x: uint64(d.Remote), y: uint64(d.Length), op: n.name(i)})
	}
	return n.stream(p, i, o)
}

func (n *Node) startRecord(p *peer, o *operation, r record) bool {
	r.src, r.dst = uint8(o.port.address.VPID), uint8(o.d.To.VPID)
	if !p.space(r.size(), 0) {
		return false
	}
	p.add(&r)
	o.begun = true
	return true
}

// stream sends the data of a PUT as records.
func (n *Node) stream(p *peer, i int32, o *operation) bool {
	if !o.headSent {
		if !n.startRecord(p, o, record{kind: recPut, a: uint8(o.d.Mask), x: uint64(o.d.Remote), y: uint64(o.d.Length), op: n.name(i)}) {
			return false
		}
		o.headSent = true
	}
	for o.local.left > 0 {
		k := p.chunk(o.local.left)
		if k == 0 {
			return false
		}
		p.addData(record{kind: recPutData, op: n.name(i)}, &o.local, k)
	}
	return true
}

// chunk is how many bytes of bulk data fit into the next record; 0 if none.
func (p *peer) chunk(left int) int {
	head := 8 * recordWords[recPutData]
	if p.open != none {
		if room := frameSize - p.n.frames.all[p.open].n - head; room >= 8 {
			return min(left, room&^7)
		}
	}
	if !p.space(head+min(left, frameSize-headerSize-head), bulkReserve) {
		return 0
	}
	return min(left, frameSize-p.n.frames.all[p.open].n-head)
}

// addData adds a record with the next k bytes of a window.
func (p *peer) addData(r record, from *cursor, k int) {
	fr := &p.n.frames.all[p.open]
	r.x = uint64(k)
	fr.n += r.encode(fr.b[fr.n:])
	from.read(fr.b[fr.n:][:k])
	end := (k + 7) &^ 7
	clear(fr.b[fr.n+k : fr.n+end])
	fr.n += end
}

// move posts an operation by RMA, piece by piece of the local window.
func (n *Node) move(p *peer, i int32, o *operation) bool {
	for o.local.left > 0 {
		before := o.local
		if n.underWay >= n.mostUnderWay {
			return false
		}
		b := o.local.take(o.local.left)
		post := n.engine.Write
		if o.d.Command == fabric.Get {
			post = n.engine.Read
		}
		err := post(p.to, b, o.local.window.mem.local, o.remote, o.lease.key, contextRMA|uint64(i))
		if err != nil {
			o.local = before
			if err == libfabric.ErrAgain {
				n.again()
				p.blocked = true
			} else {
				p.doomed = true
			}
			return false
		}
		o.remote += uint64(len(b))
		o.posts++
		n.underWay++
	}
	return true
}

// again notes that the provider has refused something, so that it is tried again.
func (n *Node) again() {
	if !n.refused {
		n.refused = true
		n.progress.kick()
	}
}

// transferred takes a completion of an operation by RMA. If it failed, part of
// it may be done and nobody knows which: the session ends.
func (n *Node) transferred(o *operation, errno syscall.Errno) {
	if !o.used || o.posts == 0 {
		return
	}
	o.posts--
	n.underWay--
	if o.orphaned {
		if o.posts == 0 {
			n.free(o)
		}
		return
	}
	p := o.peer
	n.touch(p)
	if errno != 0 {
		n.count(fabric.RegLinkFailures, 1)
		p.end(true)
		return
	}
	if o.posts == 0 && o.local.left == 0 {
		n.finish(o, fabric.FaultNone)
	}
}

// finish says that an operation is over, and ends those at the head of the list.
func (n *Node) finish(o *operation, f fabric.Fault) {
	o.over, o.fault = true, f
	p := o.peer
	for p.first != none && n.ops[p.first].over {
		i := p.first
		o := &n.ops[i]
		if p.next == i {
			p.next = o.after
		}
		p.first = o.after
		if p.first == none {
			p.last = none
		}
		n.end(p, o)
	}
	n.touch(p)
}

// end gives an operation's notifications, and to the peer the word of one by RMA.
func (n *Node) end(p *peer, o *operation) {
	d := &o.d
	if o.byRMA {
		p.byRMA--
		if o.fault == fabric.FaultNone {
			kind, bit := uint8(recPutDone), fabric.NotifyCompleter
			if d.Command == fabric.Get {
				kind, bit = recGetDone, fabric.NotifyResponder
			}
			if d.Mask&bit != 0 {
				p.put(record{kind: kind, a: uint8(d.Mask), src: uint8(o.port.address.VPID), dst: uint8(d.To.VPID), x: uint64(d.Remote), y: uint64(d.Length)})
			}
		}
		o.lease.leave(p)
	} else if o.fault != fabric.FaultNone && !o.begun && notifiesThere(d) {
		p.rma.sent[d.To.VPID]-- // the target never saw it
	}
	n.report(o, o.fault)
	n.free(o)
	n.room(p)
}

// report gives the notifications here.
func (n *Node) report(o *operation, f fabric.Fault) {
	o.queue.reserved -= o.places
	if !o.port.open {
		return
	}
	n.notifyHere(o.port, o.peer, &o.d, f)
}

// free gives the operation's place and window back.
func (n *Node) free(o *operation) {
	o.local.drop()
	o.used = false
	n.freeOps = append(n.freeOps, o.at)
}

// abandon ends all operations to a peer whose session is over. What the
// provider still has keeps its window.
func (p *peer) abandon() {
	n := p.n
	for i := p.first; i != none; {
		o := &n.ops[i]
		next := o.after
		f := fabric.FaultNode
		switch {
		case o.over:
			f = o.fault
		case o.begun || o.headSent:
			f = fabric.FaultLink
		}
		n.report(o, f)
		if o.posts > 0 {
			o.orphaned = true
		} else {
			n.free(o)
		}
		i = next
	}
	p.first, p.last, p.next = none, none, none
}
