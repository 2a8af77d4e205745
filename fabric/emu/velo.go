package emu

import (
	"fmt"

	"exnet/fabric"
)

var _ fabric.VELO = (*veloPort)(nil)

// veloSlots is how many messages of each sending port a port has room for.
const veloSlots = 64

type veloPort struct {
	node    *node
	address fabric.Address
	open    bool
	rx      *interrupt
	tx      transmitter
	out     map[veloTarget]*veloFlow
	in      fair[*veloFlow, fabric.Message]
}

// A veloTarget is where messages go: a node, a VPID, and the opening of that port.
type veloTarget struct {
	node *node
	vpid fabric.VPID
	port *veloPort // nil: not open when the first message was sent
}

// A veloFlow is the traffic from one port to another.
type veloFlow struct {
	from *veloPort
	to   veloTarget
	room credits
}

func newVELOPort(m *node, v fabric.VPID, rx, tx *interrupt) *veloPort {
	p := &veloPort{
		node: m, address: fabric.Address{Node: m.id, VPID: v}, open: true,
		rx: rx, tx: transmitter{irq: tx},
		out: make(map[veloTarget]*veloFlow),
	}
	rx.attach(p)
	tx.attach(&p.tx)
	return p
}

func (p *veloPort) Address() fabric.Address { return p.address }

// work reports whether there is something to poll.
func (p *veloPort) work() bool { return !p.in.empty() }

func (p *veloPort) Send(d fabric.VELODescriptor, payload []byte) error {
	if len(payload) < 1 || len(payload) > fabric.VELOMaxPayload {
		return fmt.Errorf("emu: send %d bytes from %v: a message has 1 to %d: %w", len(payload), p.address, fabric.VELOMaxPayload, fabric.ErrLength)
	}
	if !d.Valid() {
		return fmt.Errorf("emu: send from %v: descriptor %+v: %w", p.address, d, fabric.ErrRange)
	}
	defer p.node.lock()()
	if !p.open {
		return fmt.Errorf("emu: send: port %v is closed: %w", p.address, fabric.ErrClosed)
	}
	count := &p.node.registers
	if d.Multicast {
		for _, id := range p.node.members(fabric.Group(d.To.Node)) {
			// Nobody waits for room here, so a member without room is not remembered.
			if f := p.flow(id, d.To.VPID); f == nil || f.room.left < 1 {
				count[fabric.RegVELOMulticastLost]++
			} else {
				count[fabric.RegVELOMulticastCopies]++
				f.room.take(1)
				f.send(d, payload)
			}
		}
	} else {
		f := p.flow(d.To.Node, d.To.VPID)
		if f == nil {
			return fmt.Errorf("emu: send from %v to %v: %w", p.address, d.To, fabric.ErrNoNode)
		}
		if !f.room.take(1) {
			count[fabric.RegVELOFull]++
			return fabric.ErrFull
		}
		f.send(d, payload)
	}
	count[fabric.RegVELOSent]++
	count[fabric.RegVELOSentBytes] += uint64(len(payload))
	return nil
}

// flow returns the flow to a port, open or not. It returns nil if the node is not there.
func (p *veloPort) flow(id fabric.NodeID, v fabric.VPID) *veloFlow {
	m := p.node.net.nodes[id]
	if m == nil || p.node.net.link(p.node.id, id).dead {
		return nil
	}
	to := veloTarget{m, v, m.velo[v]}
	f := p.out[to]
	if f == nil {
		f = &veloFlow{from: p, to: to, room: credits{left: veloSlots, tx: &p.tx}}
		p.out[to] = f
	}
	return f
}

func (f *veloFlow) send(d fabric.VELODescriptor, payload []byte) {
	m := fabric.Message{Status: fabric.MakeStatus(f.from.address, d, len(payload), 1)}
	copy(m.Data[:], payload)
	f.link().put(&parcel{what: "velo", size: veloHeader + len(payload), arrive: func() { f.deliver(m) }, lost: func() { f.room.give(1) }})
}

func (f *veloFlow) link() *link {
	return f.from.node.net.link(f.from.address.Node, f.to.node.id)
}

// deliver puts an arrived message into the port's queue.
func (f *veloFlow) deliver(m fabric.Message) {
	p := f.to.port
	switch {
	case !f.to.node.open:
		f.from.node.registers[fabric.RegVELODiscarded]++ // no other node is left to count it
		f.room.give(1)
	case p == nil:
		f.to.node.registers[fabric.RegVELONoPort]++
		f.giveBack(1)
	case !p.open:
		f.to.node.registers[fabric.RegVELODiscarded]++
		f.giveBack(1)
	default:
		p.in.push(f, m)
		if m.Status.Interrupt() {
			p.node.interrupt(p.rx)
		}
	}
}

// interrupt raises a receive interrupt, or counts that it was not needed.
func (m *node) interrupt(i *interrupt) {
	if i.raise() {
		m.registers[fabric.RegInterrupts]++
	} else {
		m.registers[fabric.RegInterruptsSuppressed]++
	}
}

// giveBack returns credit to the sender.
func (f *veloFlow) giveBack(n int) {
	f.from.node.net.giveBack(f.from.node.id, f.to.node.id, &f.room, n)
}

// giveBack returns credit for what came from one node to another, over the reverse link.
func (n *Network) giveBack(from, to fabric.NodeID, c *credits, k int) {
	give := func() { c.give(k) }
	back := n.link(to, from)
	put := func() { back.put(&parcel{what: "credit", size: creditPacket, arrive: give, lost: give}) }
	if delay := n.link(from, to).creditDelay; delay > 0 {
		n.schedule(n.clock.now()+delay, back.rank, put)
	} else {
		put()
	}
}

func (p *veloPort) Poll(into []fabric.Message) int {
	defer p.node.lock()()
	var flows []*veloFlow // in the order of their first message here
	taken := make(map[*veloFlow]int)
	n := 0
	for ; n < len(into); n++ {
		f, m, ok := p.in.pop()
		if !ok {
			break
		}
		into[n] = m
		p.node.registers[fabric.RegVELOReceivedBytes] += uint64(m.Status.Len())
		if taken[f]++; taken[f] == 1 {
			flows = append(flows, f)
		}
	}
	p.node.registers[fabric.RegVELOReceived] += uint64(n)
	for _, f := range flows {
		f.giveBack(taken[f])
	}
	return n
}

func (p *veloPort) Close() error {
	defer p.node.lock()()
	p.close()
	return nil
}

func (p *veloPort) close() {
	if p == nil || !p.open {
		return
	}
	p.open = false
	p.node.velo[p.address.VPID] = nil
	p.rx.detach(p)
	p.tx.irq.detach(&p.tx)
	for {
		f, _, ok := p.in.pop()
		if !ok {
			break
		}
		p.node.registers[fabric.RegVELODiscarded]++
		f.giveBack(1)
	}
}
