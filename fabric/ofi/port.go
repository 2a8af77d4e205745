package ofi

import (
	"fmt"

	"exnet/fabric"
)

// A port is what ports of both units have: receive queues, one for each peer
// that has sent something, served in turn, and the interrupts of its halves.
// All is under Node.mu.
type port[T any] struct {
	n       *Node
	unit    fabric.Unit
	address fabric.Address
	irq     interrupts
	open    bool
	queues  map[*peer]*queue[T]
	ready   []*queue[T] // those with something, in the order in which they are served
	wants   bool        // an operation was refused with ErrFull
	room    bool        // and is worth trying again
	listed  bool        // in Node.wanting
	want    want
}

type interrupts struct{ receive, transmit *interrupt }

// A queue is a ring of what has come from one peer and was not polled. The
// peer's credit, or a reservation, bounds it.
type queue[T any] struct {
	peer     *peer
	items    []T
	head, n  int
	reserved int  // places that operations under way will take
	stale    bool // the session that it is of is over
}

func (q *queue[T]) push(item *T) {
	if q.n == len(q.items) {
		grown := make([]T, max(16, 2*len(q.items)))
		k := copy(grown, q.items[q.head:])
		copy(grown[k:], q.items[:q.head])
		q.items, q.head = grown, 0
	}
	q.items[(q.head+q.n)%len(q.items)] = *item
	q.n++
}

func (q *queue[T]) pop(into *T) {
	*into = q.items[q.head]
	q.head = (q.head + 1) % len(q.items)
	q.n--
}

// queue returns that of a peer.
func (p *port[T]) queue(from *peer) *queue[T] {
	q := p.queues[from]
	if q == nil {
		q = &queue[T]{peer: from}
		p.queues[from] = q
	}
	return q
}

// deposit adds what has come.
func (p *port[T]) deposit(from *peer, item *T) {
	q := p.queue(from)
	q.push(item)
	if q.n == 1 {
		p.ready = append(p.ready, q)
	}
}

// take serves the queues in turn, one item each.
func (p *port[T]) take(into []T, taken func(q *queue[T], item *T)) int {
	k := 0
	for k < len(into) && len(p.ready) > 0 {
		q := p.ready[0]
		q.pop(&into[k])
		taken(q, &into[k])
		k++
		p.ready = p.ready[:copy(p.ready, p.ready[1:])]
		if q.n > 0 {
			p.ready = append(p.ready, q)
		}
	}
	return k
}

// forget ends the queue of a session. What it has can still be polled.
func (p *port[T]) forget(from *peer) {
	if q := p.queues[from]; q != nil {
		q.stale = true
		delete(p.queues, from)
	}
}

// A want is what a refused operation needs: room at the peer, and places here.
type want struct {
	peer   *peer
	to     fabric.VPID
	there  bool // it takes credit of the port there
	places int  // in the queue here
}

// refuse notes that an operation found no room.
func (p *port[T]) refuse(w want) error {
	p.wants, p.want = true, w
	if !p.listed {
		p.listed = true
		p.n.wanting = append(p.n.wanting, p)
	}
	return fabric.ErrFull
}

// hasRoom tells a port that was refused to try again, if that is worth while.
// It reports whether the port wants no more to be told.
func (p *port[T]) hasRoom() bool {
	if p.wants && !p.room && !p.possible() {
		return false
	}
	p.listed = false
	if p.wants && !p.room {
		p.room = true
		p.irq.transmit.tell()
	}
	return true
}

// possible reports whether what was refused would find room now.
func (p *port[T]) possible() bool {
	w, n := &p.want, p.n
	to := w.peer
	if q := p.queues[to]; q != nil && p.unit == fabric.UnitRMA && q.n+q.reserved+w.places > creditWindow {
		return false
	}
	switch {
	case !to.up || to == n.nowhere:
		return true
	case to.self:
		return n.roomHere(p.unit, to, w.to)
	case p.unit == fabric.UnitRMA:
		return len(n.freeOps) > 0 && (!w.there || to.rma.room(w.to))
	}
	return to.velo.room(w.to) && len(to.held) < heldMost && (to.open != none || to.session.room(0) && len(n.frames.free) > reserved)
}

// roomHere reports whether a port of this node has room for what another sends it.
func (n *Node) roomHere(u fabric.Unit, self *peer, v fabric.VPID) bool {
	if u == fabric.UnitRMA {
		target := n.rmaPorts[v]
		return target == nil || target.queue(self).n+target.queue(self).reserved < creditWindow
	}
	target := n.veloPorts[v]
	return target == nil || target.queue(self).n < creditWindow
}

// A receiving and a transmitting are the halves as sources of interrupts.
type receiving[T any] struct{ *port[T] }
type transmitting[T any] struct{ *port[T] }

func (h receiving[T]) work() bool    { return len(h.ready) > 0 }
func (h transmitting[T]) work() bool { return h.room }

// begin takes a port into use.
func (p *port[T]) begin(n *Node, unit fabric.Unit, v fabric.VPID, irq interrupts) {
	*p = port[T]{n: n, unit: unit, address: fabric.Address{Node: n.id, VPID: v}, irq: irq, open: true, queues: map[*peer]*queue[T]{}}
	irq.receive.attach(receiving[T]{p})
	irq.transmit.attach(transmitting[T]{p})
}

// finish takes it out of use and returns how many items nobody polled.
func (p *port[T]) finish(consumed func(q *queue[T], k uint32)) (left int) {
	p.open = false
	p.irq.receive.detach(receiving[T]{p})
	p.irq.transmit.detach(transmitting[T]{p})
	p.irq.receive.tell()
	p.irq.transmit.tell()
	for _, q := range p.ready {
		left += q.n
		consumed(q, uint32(q.n))
		q.n = 0
	}
	p.ready = nil
	return left
}

// interrupts checks those that a port is opened with.
func (n *Node) interruptsOf(irq fabric.PortInterrupts) (i interrupts, err error) {
	for _, h := range []struct {
		from fabric.Interrupt
		to   **interrupt
	}{{irq.Receive, &i.receive}, {irq.Transmit, &i.transmit}} {
		if h.from == nil {
			continue
		}
		own, ok := h.from.(*interrupt)
		if !ok || own.n != n {
			return i, fmt.Errorf("open port: the interrupt is not of node %d: %w", n.id, fabric.ErrRange)
		}
		if own.closed {
			return i, fmt.Errorf("open port: its interrupt: %w", fabric.ErrClosed)
		}
		*h.to = own
	}
	return i, nil
}

// choose picks the lowest free VPID, or checks one.
func choose(v fabric.VPID, taken func(fabric.VPID) bool) (fabric.VPID, error) {
	if v == fabric.VPIDAny {
		for v = range fabric.VPID(fabric.VPIDCount) {
			if !taken(v) {
				return v, nil
			}
		}
		return 0, fmt.Errorf("open port: all %d VPIDs are taken: %w", fabric.VPIDCount, fabric.ErrInUse)
	}
	if !v.Valid() {
		return 0, fmt.Errorf("open port: VPID %d is above %d: %w", v, fabric.VPIDCount-1, fabric.ErrRange)
	}
	if taken(v) {
		return 0, fmt.Errorf("open port: VPID %d: %w", v, fabric.ErrInUse)
	}
	return v, nil
}
