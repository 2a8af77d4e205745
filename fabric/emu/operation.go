package emu

import (
	"encoding/binary"
	"math/bits"

	"exnet/fabric"
)

// An operation is a PUT, GET or immediate PUT under way.
//
//	PUT            start ─put packets─► receive … ─ack─► verdict
//	GET            start ─get─► serve ─response packets─► sink … verdict
//	immediate PUT  start ─immediate─► write ─ack─► verdict
type operation struct {
	fabric.RMADescriptor
	from   *rmaPort
	to     *node    // nil: not attached at the time of the post
	debt   *credits // room for the target's notification; nil: it gets none
	told   bool     // the target was notified
	local  use
	remote use
	port   *rmaPort     // the target's port, when the operation arrived
	fault  fabric.Fault // what the target found
	done   bool         // there is a verdict; nothing moves any more
}

func newOperation(p *rmaPort, d *fabric.RMADescriptor) *operation {
	op := &operation{RMADescriptor: *d, from: p, to: p.node.net.nodes[d.To.Node]}
	unit := fabric.NotifyCompleter
	switch d.Command {
	case fabric.Get:
		unit = fabric.NotifyResponder
	case fabric.ImmediatePut:
		op.Length, op.Local = bits.OnesCount8(d.Enable), 0
	}
	if d.Mask&unit != 0 && op.to != nil {
		op.debt = p.debt(op.to, d.To.VPID)
	}
	return op
}

// count counts a posted operation.
func (op *operation) count() {
	count := &op.from.node.registers
	switch op.Command {
	case fabric.Put:
		count[fabric.RegRMAPuts]++
		count[fabric.RegRMAPutBytes] += uint64(op.Length)
	case fabric.Get:
		count[fabric.RegRMAGets]++
		count[fabric.RegRMAGetBytes] += uint64(op.Length)
	case fabric.ImmediatePut:
		count[fabric.RegRMAImmediate]++
		return
	}
	count[fabric.RegRMAPackets] += uint64(fabric.RMAPackets(op.Length))
}

func (op *operation) net() *Network { return op.from.node.net }

// there and back return the links to the target and from it.
func (op *operation) there() *link { return op.net().link(op.from.node.id, op.to.id) }
func (op *operation) back() *link  { return op.net().link(op.to.id, op.from.node.id) }

// start translates the local address and sends the operation.
func (op *operation) start() {
	if op.Command != fabric.ImmediatePut {
		var fault fabric.Fault
		if op.local, fault = op.from.node.use(op.Local, op.Length, op.from.address.VPID, 0); fault != fabric.FaultNone {
			op.fail(fault)
			return
		}
	}
	if op.to == nil {
		op.fail(fabric.FaultNode)
		return
	}
	p := &parcel{op: op}
	switch op.Command {
	case fabric.Put:
		p.what = "put"
		p.data = &stream{source: &op.local, left: op.Length, arrive: op.receive}
	case fabric.Get:
		p.what, p.size, p.arrive = "get", rmaRequest, op.serve
	case fabric.ImmediatePut:
		p.what, p.size, p.arrive = "immediate", rmaImmediate, op.write
	}
	op.there().put(p)
}

// A stream is the data of an operation that leaves in packets.
type stream struct {
	source  *use
	left    int
	started bool
	arrive  func(data []byte, first, last bool)
	sent    func() // called when the last packet has left; may be nil
}

func (s *stream) next() int { return min(s.left, fabric.RMAMTU) }

// leave takes the next packet.
func (s *stream) leave() (arrive func(), last bool) {
	data := make([]byte, s.next())
	s.source.read(data)
	s.left -= len(data)
	first := !s.started
	s.started, last = true, s.left == 0
	if last && s.sent != nil {
		s.sent()
	}
	return func() { s.arrive(data, first, last) }, last
}

// receive takes a packet of a PUT, as the target's completer.
func (op *operation) receive(data []byte, first, last bool) {
	if op.gone() {
		return
	}
	if first {
		op.arrive()
		op.remote, op.fault = op.target(op.Length, fabric.RemoteWrite)
	}
	if op.fault == fabric.FaultNone {
		op.remote.write(data)
	}
	if last {
		if op.fault == fabric.FaultNone {
			op.tell(fabric.KindCompleter)
		}
		op.ack()
	}
}

// gone reports whether the operation has failed. It fails now if its target has left.
func (op *operation) gone() bool {
	if !op.done && !op.to.open {
		op.fail(fabric.FaultNode)
	}
	return op.done
}

// arrive begins the target's part. If the port is closed and reopened meanwhile, the new one gets
// no notification.
func (op *operation) arrive() { op.port = op.to.rma[op.To.VPID] }

// target translates the remote address.
func (op *operation) target(n int, need fabric.Rights) (use, fabric.Fault) {
	if op.Remote>>63 != 0 {
		return use{}, fabric.FaultRights // a register: see serve and write
	}
	return op.to.use(op.Remote, n, op.To.VPID, need)
}

// serve takes a GET, as the target's responder.
func (op *operation) serve() {
	if op.gone() {
		return
	}
	op.arrive()
	if op.Remote>>63 != 0 {
		op.remote, op.fault = op.readRegister()
	} else {
		op.remote, op.fault = op.target(op.Length, fabric.RemoteRead)
	}
	if op.fault != fabric.FaultNone {
		op.ack()
		return
	}
	op.back().put(&parcel{what: "response", op: op, data: &stream{
		source: &op.remote, left: op.Length, arrive: op.sink,
		sent: func() {
			op.tell(fabric.KindResponder)
			op.remote.done()
		},
	}})
}

func (op *operation) readRegister() (use, fabric.Fault) {
	r, ok := op.Remote.Register()
	if !ok || op.Length != 8 {
		return use{}, fabric.FaultRange
	}
	return use{pieces: [][]byte{binary.LittleEndian.AppendUint64(nil, op.to.register(r))}}, fabric.FaultNone
}

// sink takes a packet of a response, as our own completer.
func (op *operation) sink(data []byte, _, last bool) {
	if op.done {
		return
	}
	op.local.write(data)
	if last {
		op.verdict(fabric.FaultNone)
	}
}

// write takes an immediate PUT, as the target's completer.
func (op *operation) write() {
	if op.gone() {
		return
	}
	op.arrive()
	if r, ok := op.Remote.Register(); ok {
		if op.fault = fabric.FaultRights; r.Writable() {
			op.fault = fabric.FaultNone
			op.to.setRegister(r, fabric.MergeImmediate(op.to.register(r), op.Data, op.Enable))
		}
	} else {
		n := bits.Len8(op.Enable) // up to the last byte that is written
		if op.remote, op.fault = op.target(n, fabric.RemoteWrite); op.fault == fabric.FaultNone {
			for i := range n {
				op.remote.move(1, func(b []byte) {
					if op.Enable>>i&1 == 1 {
						b[0] = byte(op.Data >> (8 * i))
					}
				})
			}
		}
	}
	if op.fault == fabric.FaultNone {
		op.tell(fabric.KindCompleter)
	}
	op.ack()
}

// ack ends the target's part and sends its verdict back.
func (op *operation) ack() {
	op.remote.done()
	op.back().put(&parcel{what: "ack", op: op, size: rmaAck, arrive: func() {
		if !op.done {
			op.verdict(op.fault)
		}
	}})
}

// tell notifies the target if the mask says so. The address is that of the last packet (RMA-7).
func (op *operation) tell(k fabric.Kind) {
	if op.debt == nil {
		return
	}
	op.told = true
	n := fabric.Notification{Command: op.Command, Kind: k, Peer: op.from.address, Local: fabric.LastPacket(op.Remote, op.Length), Count: op.Length}
	op.port.notify(note{n, op})
}

// fail ends the operation for a reason that the requester finds by itself, a moment later.
func (op *operation) fail(f fabric.Fault) {
	if op.done {
		return
	}
	op.done = true
	op.remote.done()
	n := op.net()
	n.schedule(n.soon(), n.link(op.from.node.id, op.from.node.id).rank, func() { op.verdict(f) })
}

// verdict ends the operation at its requester.
func (op *operation) verdict(f fabric.Fault) {
	op.done = true
	op.local.done()
	p := op.from
	reserved := 2
	notify := func(k fabric.Kind, at fabric.NLA) {
		reserved--
		p.notify(note{fabric.Notification{Command: op.Command, Kind: k, Fault: f, Peer: op.To, Local: at, Count: op.Length}, nil})
	}
	switch f {
	case fabric.FaultStale, fabric.FaultRange, fabric.FaultVPID, fabric.FaultRights:
		p.node.registers[fabric.RegATUFaults]++
	}
	if f != fabric.FaultNone || op.Mask&fabric.NotifyRequester != 0 {
		notify(fabric.KindRequester, op.Local)
	}
	if f == fabric.FaultNone && op.Command == fabric.Get && op.Mask&fabric.NotifyCompleter != 0 {
		notify(fabric.KindCompleter, fabric.LastPacket(op.Local, op.Length))
	}
	p.room.give(reserved)
	if op.debt != nil && !op.told {
		op.debt.give(1)
	}
}
