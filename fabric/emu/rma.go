package emu

import (
	"fmt"

	"exnet/fabric"
)

var _ fabric.RMA = (*rmaPort)(nil)

const (
	// rmaQueue is how many notifications of its own operations a port has room for. Each
	// operation reserves two, for a requester and a completer notification.
	rmaQueue = 256
	// rmaDebts is how many notifications of each other port's operations a port has room for.
	rmaDebts = 64
)

type rmaPort struct {
	node    *node
	address fabric.Address
	open    bool
	rx      *interrupt
	tx      transmitter
	room    credits // in our queue
	debts   map[rmaTarget]*credits
	in      fair[fabric.NodeID, note]
	windows map[*window]struct{}
}

// An rmaTarget is a port that notifications go to.
type rmaTarget struct {
	node *node
	vpid fabric.VPID
}

// A note is a notification in the queue, with the room to return when it is polled.
type note struct {
	fabric.Notification
	op *operation // operation of another port; nil: our own
}

func newRMAPort(m *node, v fabric.VPID, rx, tx *interrupt) *rmaPort {
	p := &rmaPort{
		node: m, address: fabric.Address{Node: m.id, VPID: v}, open: true,
		rx: rx, tx: transmitter{irq: tx},
		debts:   make(map[rmaTarget]*credits),
		windows: make(map[*window]struct{}),
	}
	p.room = credits{left: rmaQueue, tx: &p.tx}
	rx.attach(p)
	tx.attach(&p.tx)
	return p
}

func (p *rmaPort) Address() fabric.Address { return p.address }

// work reports whether there is something to poll.
func (p *rmaPort) work() bool { return !p.in.empty() }

func (p *rmaPort) Post(d *fabric.RMADescriptor) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("emu: post %+v at %v: %w", *d, p.address, err)
	}
	defer p.node.lock()()
	if !p.open {
		return fmt.Errorf("emu: post: port %v is closed: %w", p.address, fabric.ErrClosed)
	}
	op := newOperation(p, d)
	if !p.room.take(2) {
		p.node.registers[fabric.RegRMAFull]++
		return fabric.ErrFull
	}
	if op.debt != nil && !op.debt.take(1) {
		p.room.give(2)
		p.node.registers[fabric.RegRMAFull]++
		return fabric.ErrFull
	}
	op.count()
	op.start()
	return nil
}

// debt returns the room for notifications at a target.
func (p *rmaPort) debt(m *node, v fabric.VPID) *credits {
	to := rmaTarget{m, v}
	if p.debts[to] == nil {
		p.debts[to] = &credits{left: rmaDebts, tx: &p.tx}
	}
	return p.debts[to]
}

// notify queues a notification. Its room was reserved when the operation was posted.
func (p *rmaPort) notify(n note) {
	if p == nil || !p.open {
		if p != nil {
			p.node.registers[fabric.RegRMADiscarded]++
		}
		n.giveBack()
		return
	}
	p.in.push(n.Peer.Node, n)
	p.node.interrupt(p.rx)
}

func (p *rmaPort) Poll(into []fabric.Notification) int {
	defer p.node.lock()()
	for i := range into {
		_, n, ok := p.in.pop()
		if !ok {
			return i
		}
		into[i] = n.Notification
		p.node.registers[fabric.RegRMARequester+fabric.Register(n.Kind-fabric.KindRequester)]++
		if n.Fault != fabric.FaultNone {
			p.node.registers[fabric.RegRMAFaults]++
		}
		if n.op == nil {
			p.room.give(1)
		} else {
			n.giveBack()
		}
	}
	return len(into)
}

// giveBack returns the room of a notification to the port whose operation it is of.
func (n note) giveBack() {
	if n.op != nil {
		from, to := n.op.from.node, n.op.to
		from.net.giveBack(from.id, to.id, n.op.debt, 1)
	}
}

func (p *rmaPort) Close() error {
	defer p.node.lock()()
	p.close()
	return nil
}

func (p *rmaPort) close() {
	if p == nil || !p.open {
		return
	}
	p.open = false
	p.node.rma[p.address.VPID] = nil
	p.rx.detach(p)
	p.tx.irq.detach(&p.tx)
	for w := range p.windows {
		w.deregister()
	}
	for {
		_, n, ok := p.in.pop()
		if !ok {
			return
		}
		p.node.registers[fabric.RegRMADiscarded]++
		n.giveBack()
	}
}
