package shm

import (
	"fmt"
	"sync/atomic"

	"exnet/fabric"
)

// Opening and closing ports: a port word in the node region tells senders whether a port is open. A
// message that a sender sends before it notices that the port has closed is discarded: either while
// the port closes, or by a later port of that VPID that finds it.

// openPort fills in p. The interrupt looks at its receive half through rx.
func (n *Node) openPort(p *port, rx source, u fabric.Unit, v fabric.VPID, irq fabric.PortInterrupts) error {
	rxIrq, err := n.ownInterrupt(irq.Receive)
	if err != nil {
		return err
	}
	txIrq, err := n.ownInterrupt(irq.Transmit)
	if err != nil {
		return err
	}
	n.mu.Lock()
	if v, err = n.freeVPID(u, v); err != nil {
		n.mu.Unlock()
		return err
	}
	p.n = n
	index := -1
	if rxIrq != nil {
		index = rxIrq.index
	}
	p.word = makePortWord(index, portWord(atomic.LoadUint64(n.region.port(u, v))).generation()+1)
	p.tx.init(n, u, v, txIrq)
	p.rx.init(u, v, p.word, rxIrq, n.region.receiveCounters(u, v))
	for _, peer := range n.allPeers() {
		if ch := peer.channel; ch != nil {
			if r := ch.rx.Load(); r != nil {
				p.rx.join(ch, r)
			}
		}
	}
	n.ports[u][v] = p
	n.mu.Unlock()

	if r, ok := rx.(*rmaPort); ok {
		if r.local, err = n.openFlow(u, v, p.tx.self); err != nil {
			n.closePort(p, rx)
			return err
		}
	}
	if rxIrq != nil {
		err = rxIrq.attach(rx)
	}
	if txIrq != nil && err == nil {
		err = txIrq.attach(&p.tx)
	}
	if err != nil {
		n.closePort(p, rx)
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fabric.ErrClosed
	}
	atomic.StoreUint64(n.region.port(u, v), uint64(p.word))
	return nil
}

// ownInterrupt checks that an interrupt belongs to this node, or is nil.
func (n *Node) ownInterrupt(i fabric.Interrupt) (*interrupt, error) {
	if i == nil {
		return nil, nil
	}
	own, ok := i.(*interrupt)
	if !ok || own.n != n {
		return nil, fmt.Errorf("open port: the interrupt is not from this node's NewInterrupt: %w", fabric.ErrRange)
	}
	return own, nil
}

// freeVPID checks or chooses a VPID. The caller holds mu.
func (n *Node) freeVPID(u fabric.Unit, v fabric.VPID) (fabric.VPID, error) {
	if n.closed {
		return 0, fabric.ErrClosed
	}
	if v == fabric.VPIDAny {
		for v = range fabric.VPIDCount {
			if n.ports[u][v] == nil {
				return v, nil
			}
		}
		return 0, fmt.Errorf("open %v port: all %d VPIDs are in use: %w", u, fabric.VPIDCount, fabric.ErrInUse)
	}
	switch {
	case !v.Valid():
		return 0, fmt.Errorf("open %v port: VPID %d is not in 0 to %d: %w", u, v, fabric.VPIDCount-1, fabric.ErrRange)
	case n.ports[u][v] != nil:
		return 0, fmt.Errorf("open %v port: VPID %d is taken; use another or VPIDAny: %w", u, v, fabric.ErrInUse)
	}
	return v, nil
}

// closePort closes a port, once.
func (n *Node) closePort(p *port, rx source) {
	u, v := p.tx.unit, p.tx.self.VPID
	n.mu.Lock()
	if !n.closed {
		atomic.StoreUint64(n.region.port(u, v), uint64(p.word.closed()))
	}
	n.mu.Unlock()
	first := p.tx.shut()
	p.rx.shut()
	if !first {
		return
	}
	if p.rx.irq != nil {
		p.rx.irq.detach(rx)
		p.rx.irq.Wake() // its owner may be asleep, and should notice the close
	}
	if p.tx.irq != nil {
		p.tx.irq.detach(&p.tx)
		p.tx.irq.Wake()
	}
	n.mu.Lock()
	n.ports[u][v] = nil
	delete(n.rma, p) // not earlier: a goroutine that unmaps memory asks these ports to forget it
	n.mu.Unlock()
}

// openFlow finds or makes the flow from one of our ports to a port of any node.
func (n *Node) openFlow(u fabric.Unit, src fabric.VPID, to fabric.Address) (*txFlow, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fabric.ErrClosed
	}
	ch := n.self
	if to.Node != n.id {
		p := n.peers[to.Node]
		if p == nil {
			return nil, fmt.Errorf("node %d is not attached: %w", to.Node, fabric.ErrNoNode)
		}
		var err error
		if ch, err = n.channelTo(p); err != nil {
			return nil, err
		}
	}
	return ch.openFlow(u, src, to.VPID)
}
