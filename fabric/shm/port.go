package shm

import (
	"slices"
	"sync/atomic"

	"exnet/fabric"
)

// A port is the common part of the ports of both units: the two halves.
type port struct {
	n    *Node
	tx   transmitter
	rx   receiver
	word portWord // while open
}

// Address implements fabric.VELO and fabric.RMA.
func (p *port) Address() fabric.Address { return p.tx.self }

// A transmitter is the transmit half of a port. Everything but waits and retry belongs to the
// goroutine inside the gate.
type transmitter struct {
	gate
	n        *Node
	unit     fabric.Unit
	self     fabric.Address
	count    *transmitCounters
	irq      *interrupt
	irqPlus1 uint64

	flows   map[fabric.Address]*txFlow
	last    *txFlow // the flow to lastTo; saves the look-up
	lastTo  fabric.Address
	blocked []*txFlow
	waits   atomic.Bool // for something other than credit
	retry   atomic.Bool // what it waited for may have come
}

func (t *transmitter) init(n *Node, u fabric.Unit, v fabric.VPID, irq *interrupt) {
	t.n, t.unit, t.self = n, u, fabric.Address{Node: n.id, VPID: v}
	t.count = n.region.transmitCounters(u, v)
	t.flows = map[fabric.Address]*txFlow{}
	if t.irq = irq; irq != nil {
		t.irqPlus1 = uint64(irq.index) + 1
	}
}

// flow returns the flow to a port of any node, ourselves included.
func (t *transmitter) flow(to fabric.Address) (*txFlow, error) {
	if t.last != nil && t.lastTo == to {
		return t.last, nil
	}
	f := t.flows[to]
	if f == nil {
		var err error
		if f, err = t.n.openFlow(t.unit, t.self.VPID, to); err != nil {
			return nil, err
		}
		t.flows[to] = f
	}
	t.last, t.lastTo = f, to
	return f, nil
}

// room reports whether f has n free slots. If not, it arranges for the transmit interrupt.
func (t *transmitter) room(f *txFlow, n uint64) bool {
	if f.room(n) {
		if f.blocked {
			t.unblock(f)
		}
		return true
	}
	if !f.blocked {
		if f.block(n, t.irqPlus1) {
			return true
		}
		t.blocked = append(t.blocked, f)
	}
	t.count.full++
	return false
}

func (t *transmitter) unblock(f *txFlow) {
	f.unblock()
	t.blocked = slices.DeleteFunc(t.blocked, func(o *txFlow) bool { return o == f })
}

// ready implements source: it reports whether something has come for which the half waited.
func (t *transmitter) ready() bool {
	if !t.enter() {
		return true
	}
	defer t.leave()
	if t.retry.Swap(false) {
		return true
	}
	// Each flow is reported once: a program that does not use its room now may not want it any
	// more.
	before := len(t.blocked)
	t.blocked = slices.DeleteFunc(t.blocked, func(f *txFlow) bool {
		if !f.room(f.wants) {
			return false
		}
		f.unblock()
		return true
	})
	return len(t.blocked) < before
}

// progressUnknown stands for what a closing half can no longer count; the accounts are reset when
// it is detached. It is small enough to be added up.
const progressUnknown = 1 << 32

// progress implements source: the receiver rings at most once for each slot that it gives back.
func (t *transmitter) progress(ch *channel) (done, pending uint64) {
	if !t.enter() {
		return 0, progressUnknown
	}
	defer t.leave()
	for _, f := range t.flows {
		if f.ch == ch {
			done += f.credit
			pending += flowSlots
		}
	}
	return done, pending
}

// tryAgain tells a transmitter that waits for something other than credit that it may have come.
func (t *transmitter) tryAgain() {
	if t.waits.Swap(false) {
		t.retry.Store(true)
		if t.irq != nil {
			t.irq.nudge()
		}
	}
}

// blockedOn reports whether a flow of the channel waits for credit. The half is paused.
func (t *transmitter) blockedOn(ch *channel) bool {
	return slices.ContainsFunc(t.blocked, func(f *txFlow) bool { return f.ch == ch })
}

// forget drops what belongs to a channel that ends. The half is paused. If it waited for the
// channel, it is told.
func (t *transmitter) forget(ch *channel) {
	if t.blockedOn(ch) {
		t.waits.Store(true)
	}
	t.last = nil
	for to, f := range t.flows {
		if f.ch == ch {
			delete(t.flows, to)
		}
	}
	t.blocked = slices.DeleteFunc(t.blocked, func(f *txFlow) bool { return f.ch == ch })
}

// shut closes the half and lets go of all channels, whose memory may be unmapped from then on. It
// reports whether this call closed it.
func (t *transmitter) shut() bool {
	return t.close(func() {
		for _, f := range t.blocked {
			f.unblock()
		}
		t.flows, t.blocked, t.last = nil, nil, nil
	})
}

// A receiver is the receive half of a port.
type receiver struct {
	gate
	unit       fabric.Unit
	vpid       fabric.VPID
	generation uint64 // shifted to its place in status words
	count      *receiveCounters
	irq        *interrupt

	channels []*rxChannel
	sources  []*rxFlow
	turn     int // index of the source whose turn it is
}

// An rxChannel records how far a receiver has read a channel's list of flows.
type rxChannel struct {
	ch   *channel
	rx   *region
	seen int
}

// quantum is how many messages a source may deliver before it is the next one's turn: enough to be
// worth the visit, and few enough to be fair.
const quantum = creditBatch

func (r *receiver) init(u fabric.Unit, v fabric.VPID, w portWord, irq *interrupt, count *receiveCounters) {
	r.unit, r.vpid, r.irq, r.count = u, v, irq, count
	r.generation = w.generation() << generationShift & generationBits
}

// discover looks for new flows to this port.
func (r *receiver) discover() {
	for _, c := range r.channels {
		n := atomic.LoadUint64(c.rx.flowCount())
		if n == uint64(c.seen) || c.ch.dropped.Load() {
			continue
		}
		if n < uint64(c.seen) || n >= maxFlows {
			c.ch.drop(fabric.RegDroppedFlow)
			continue
		}
		for c.seen < int(n) {
			c.seen++
			if f := c.ch.acceptFlow(c.rx, c.seen); f == nil {
				break
			} else if f.word.unit() == r.unit && f.word.target() == r.vpid {
				r.sources = append(r.sources, f)
			}
		}
	}
}

// nextSource returns the source whose turn it is. There must be at least one.
func (r *receiver) nextSource() *rxFlow {
	f := r.sources[r.turn]
	if r.turn++; r.turn == len(r.sources) {
		r.turn = 0
	}
	return f
}

// ready implements source.
func (r *receiver) ready() bool {
	if !r.enter() {
		return true
	}
	defer r.leave()
	r.discover()
	return slices.ContainsFunc(r.sources, (*rxFlow).ready)
}

// progress implements source: a sender rings at most once for each message, and up to a ring of
// messages may be waiting.
func (r *receiver) progress(ch *channel) (done, pending uint64) {
	if !r.enter() {
		return 0, progressUnknown
	}
	defer r.leave()
	for _, f := range r.sources {
		if f.ch == ch {
			done += f.head
			pending += flowSlots
		}
	}
	return done, pending
}

// join adds a channel whose peer's region has arrived. The half is paused, or not in use yet. A
// half that was closed meanwhile ignores the channel, since it would never let go of what is in it.
func (r *receiver) join(ch *channel, rx *region) {
	if !r.closed && !slices.ContainsFunc(r.channels, func(c *rxChannel) bool { return c.ch == ch }) {
		r.channels = append(r.channels, &rxChannel{ch: ch, rx: rx})
	}
}

// end records that a channel's peer is gone. The half is paused. It still delivers what the peer
// had sent, unless the channel was dropped; end reports whether there is something to deliver.
func (r *receiver) end(ch *channel) (keeps bool) {
	if !ch.dropped.Load() {
		r.discover()
	}
	r.channels = slices.DeleteFunc(r.channels, func(c *rxChannel) bool { return c.ch == ch })
	r.sources = slices.DeleteFunc(r.sources, func(f *rxFlow) bool {
		if f.ch != ch {
			return false
		}
		f.draining = f.ready()
		keeps = keeps || f.draining
		return !f.draining
	})
	r.turn = 0
	return keeps
}

// retire removes the empty source of a channel that has ended.
func (r *receiver) retire(f *rxFlow) {
	r.sources = slices.DeleteFunc(r.sources, func(o *rxFlow) bool { return o == f })
	r.turn = 0
	if !slices.ContainsFunc(r.sources, func(o *rxFlow) bool { return o.ch == f.ch }) {
		f.ch.n.readerDone(f.ch)
	}
}

// shut closes the half, discards what it has not taken, and lets go of all channels, whose memory
// may be unmapped from then on.
func (r *receiver) shut() {
	r.close(func() {
		r.discover()
		for _, f := range slices.Clone(r.sources) {
			f.discard(r)
			if f.draining {
				r.retire(f)
			}
		}
		r.channels, r.sources = nil, nil
	})
}
