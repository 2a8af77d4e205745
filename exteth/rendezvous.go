package exteth

import (
	"errors"
	"time"

	"exnet/fabric"
)

// A pendingGet is a GET under way, for an entry of its peer's order queue.
type pendingGet struct {
	peer *peer
	slot uint32
}

// advertised takes an advert and starts the GET if it can.
func (e *Engine) advertised(p *peer, payload []byte, now time.Duration) {
	a, ok := parseAdvert(payload)
	if !ok {
		e.stats.count(RXBadMessage)
		return
	}
	e.stats.count(RXAdverts)
	if !e.takes(a.vnet, a.length) {
		e.nack(p, a)
		return
	}
	if e.inPlace != nil && p.order.n == 0 && e.getInPlace(p, a) {
		return
	}
	o := e.pushOrder(p, now)
	if o == nil {
		e.nack(p, a)
		return
	}
	o.state, o.advert = orderAdvert, a
	e.deliver(p, now)
}

// nack tells the sender that a frame will not be fetched. If there is no room for the message, the
// sender finds out by its time-out.
func (e *Engine) nack(p *peer, a advert) {
	n := nack{source: a.source, length: a.length}
	if e.send(p, tagGetNack, 0, n.append(e.scratch[:0])) == nil {
		e.stats.count(RXNacks)
	}
}

// getInPlace fetches a frame straight into the receive function. It returns false when the fabric
// has no room.
func (e *Engine) getInPlace(p *peer, a advert) bool {
	u := &e.use
	u.peer, u.advert, u.gathered, u.done = p, a, u.buffer[:0], false
	e.get = fabric.RMADescriptor{
		Command: fabric.Get,
		Mask:    fabric.NotifyResponder,
		To:      fabric.Address{Node: p.node, VPID: e.cfg.RMA},
		Length:  a.length,
		Remote:  a.source,
	}
	if e.untold != p {
		e.Tell()
	}
	e.untold = p
	err := e.inPlace.GetInPlace(&e.get, u.f)
	u.peer = nil
	if errors.Is(err, fabric.ErrFull) {
		return false
	}
	e.stats.count(RXGets)
	switch {
	case u.done:
		e.stats.count(RXGetsInPlace)
	case len(u.gathered) == a.length:
		e.stats.count(RXRendezvous)
		e.up(p, u.gathered, a.vnet, true)
	default: // a fault; a requester notification reports it, too
		e.stats.count(RXFault)
		e.nack(p, a)
	}
	return true
}

// Tell raises the interrupt of the peer whose frames were fetched in place, if that is still due.
// Call it before sleeping, unless the last PollVELO left budget unused.
func (e *Engine) Tell() {
	e.deferred = 0
	if e.untold == nil {
		return
	}
	e.inPlace.Raise(fabric.Address{Node: e.untold.node, VPID: e.cfg.RMA})
	e.untold = nil
}

// useSource is the sink of a GET in place. If the frame comes in several pieces of memory, it
// gathers them first.
func (e *Engine) useSource(src []byte) error {
	u := &e.use
	switch {
	case len(src) == u.advert.length:
		u.done = true
		e.stats.count(RXRendezvous)
		e.up(u.peer, src, u.advert.vnet, true)
	case len(u.gathered)+len(src) <= e.cfg.BufferSize:
		if u.buffer == nil {
			u.buffer = make([]byte, 0, e.cfg.BufferSize)
			u.gathered = u.buffer
		}
		u.gathered = append(u.gathered, src...)
	}
	return nil
}

// startGet fetches a frame into a buffer. It returns false when the fabric has no room.
func (e *Engine) startGet(p *peer, o *ordered, now time.Duration) bool {
	if e.sinks == nil {
		var err error
		if e.sinks, err = newPool(e.node, e.rma, e.cfg.Buffers, e.cfg.BufferSize, 0); err != nil {
			e.sinks = nil
		}
	}
	var sink *Buffer
	if e.sinks != nil && e.gets.room() {
		sink = e.sinks.take()
	}
	if sink == nil {
		e.stats.count(RXNoSink)
		e.nack(p, o.advert)
		o.state = orderFailed
		return true
	}
	e.get = fabric.RMADescriptor{
		Command: fabric.Get,
		Mask:    fabric.NotifyResponder | fabric.NotifyCompleter,
		To:      fabric.Address{Node: p.node, VPID: e.cfg.RMA},
		Length:  o.advert.length,
		Local:   sink.nla(0),
		Remote:  o.advert.source,
	}
	if err := e.rma.Post(&e.get); err != nil {
		e.sinks.release(sink)
		if errors.Is(err, fabric.ErrFull) {
			return false
		}
		e.stats.count(RXFault)
		e.nack(p, o.advert)
		o.state = orderFailed
		return true
	}
	e.stats.count(RXGets)
	o.state, o.sink = orderFetching, sink
	k := matchKey{fabric.KindCompleter, p.node, fabric.LastPacket(sink.nla(0), o.advert.length)}
	if e.gets.expect(k, pendingGet{p, o.slot}, now+e.cfg.Timeout) {
		o.state = orderFetched
	}
	return true
}

// failGet ends a failed GET. Its sink may still be written, so it is poisoned.
func (e *Engine) failGet(g pendingGet) {
	if o := g.peer.order.at(g.slot); o != nil && o.state == orderFetching {
		e.sinks.poison(o.sink)
		o.state = orderFailed
		e.nack(g.peer, o.advert)
	}
}

// PollRMA takes up to budget notifications. It returns their number and the bytes of their
// transfers.
func (e *Engine) PollRMA(now time.Duration, budget int) (work, bytes int) {
	for work < budget {
		most := min(batch, budget-work)
		n := e.rma.Poll(e.notifications[:most])
		for i := range n {
			bytes += e.notifications[i].Count
			e.notification(&e.notifications[i], now)
		}
		work += n
		if n < most {
			break
		}
	}
	return work, bytes
}

func (e *Engine) notification(n *fabric.Notification, now time.Duration) {
	k := matchKey{n.Kind, n.Peer.Node, n.Local}
	var forgot, parked bool
	switch {
	case n.Fault != fabric.FaultNone:
		// The requester's address is the start of the sink (RMA-7). A GET in place has no
		// entry: it was counted when it failed.
		k.kind, k.local = fabric.KindCompleter, fabric.LastPacket(n.Local, max(1, n.Count))
		g, ok := e.gets.take(k)
		if !ok {
			return
		}
		e.stats.count(RXFault)
		e.failGet(g)
		e.deliver(g.peer, now)
	case n.Kind == fabric.KindResponder && n.Command == fabric.Get:
		var s sentFrame
		if s, parked, forgot = e.sent.notify(k, now); parked {
			e.fetched(s)
			if s.peer.queue.n > 0 {
				e.flush(s.peer, now)
			}
		}
		parked = !parked
	case n.Kind == fabric.KindCompleter && n.Command == fabric.Get:
		var g pendingGet
		if g, parked, forgot = e.gets.notify(k, now); parked {
			if o := g.peer.order.at(g.slot); o != nil {
				o.state = orderFetched
				e.stats.count(RXRendezvous)
			}
			e.deliver(g.peer, now)
		}
		parked = !parked
	default:
		e.stats.count(RXUnmatched)
	}
	if parked {
		e.stats.count(RXEarly)
	}
	if forgot {
		e.stats.count(RXUnmatched)
	}
}
