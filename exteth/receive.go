package exteth

import (
	"encoding/binary"
	"time"

	"exnet/fabric"
	"exnet/mtu"
)

// An assembly is an eager frame of which some fragments have arrived. Each source has two: one for
// unicast and one for multicast.
type assembly struct {
	active bool
	vnet   bool
	next   uint8  // index of the fragment that is due
	number uint16 // of a multicast frame
	data   []byte // memory reused for the next frame
	since  time.Duration
}

// PollVELO takes up to budget messages. It returns their number and bytes. If it used the whole
// budget, senders may still have to be told of fetched frames; see [Engine.Tell].
func (e *Engine) PollVELO(now time.Duration, budget int) (work, bytes int) {
	for work < budget {
		most := min(batch, budget-work)
		n := e.velo.Poll(e.messages[:most])
		for i := range n {
			m := &e.messages[i]
			bytes += m.Status.Len()
			e.message(m, now)
		}
		work += n
		if n < most {
			break
		}
	}
	if e.deferred += work; work < budget || e.deferred >= tellEvery {
		e.Tell()
	}
	return work, bytes
}

func (e *Engine) message(m *fabric.Message, now time.Duration) {
	src, tag, payload := m.Status.Source(), m.Status.MTT(), m.Payload()
	if src.Node == e.self || src.VPID != e.cfg.VELO {
		e.stats.count(RXBadMessage)
		return
	}
	p := e.peer(src.Node)
	if tag == tagHello && !m.Status.Multicast() {
		if h, ok := parseHello(payload); ok {
			e.greeted(p, h)
			e.settle(p)
			return
		}
		e.stats.count(RXBadMessage)
		return
	}
	if p.version != Version {
		e.stats.count(RXVersion)
		return
	}
	switch {
	case tag == tagFrag, tag == tagFragLast, tag == tagFrag|tagVNet, tag == tagFragLast|tagVNet:
		e.stats.count(RXFragments)
		if m.Status.Multicast() {
			e.groupFragment(p, tag, m.Status.UserTag(), payload, now)
		} else {
			e.fragment(p, &p.unicast, tag, m.Status.UserTag(), 0, payload, now)
		}
	case m.Status.Multicast():
		e.stats.count(RXBadMessage)
	case tag == tagGetInfo:
		e.advertised(p, payload, now)
	case tag == tagGetNack:
		n, ok := parseNack(payload)
		if !ok {
			e.stats.count(RXBadMessage)
			return
		}
		s, ok := e.sent.take(matchKey{fabric.KindResponder, p.node, fabric.LastPacket(n.source, n.length)})
		if !ok {
			e.stats.count(RXUnmatched)
			return
		}
		e.stats.count(TXNacked)
		// The GET may be under way. Its notification must not end a later advert of the
		// same buffer, and it must not read what the buffer holds by then.
		e.tx.poison(s.buffer)
		e.ended(s)
	default:
		e.stats.count(RXBadMessage)
	}
}

func (e *Engine) groupFragment(p *peer, tag, index uint8, payload []byte, now time.Duration) {
	if len(payload) <= numberLen || tag&tagVNet != 0 {
		e.stats.count(RXBadMessage)
		return
	}
	e.fragment(p, &p.multicast, tag, index, binary.LittleEndian.Uint16(payload), payload[numberLen:], now)
}

// fragment takes the next fragment of a frame. Index 0 starts a new frame, whatever came before.
// Any other index must be the one that is due.
func (e *Engine) fragment(p *peer, a *assembly, tag, index uint8, number uint16, piece []byte, now time.Duration) {
	vnet, last := tag&tagVNet != 0, tag&^tagVNet == tagFragLast
	if a.active && (index != a.next || number != a.number || vnet != a.vnet) {
		a.active = false
		e.stats.count(RXFragmentLost)
	}
	if index == 0 {
		if last { // the whole frame: no copy
			e.eager(p, piece, vnet, now)
			return
		}
		a.active, a.vnet, a.number, a.next, a.since = true, vnet, number, 0, now
		a.data = a.data[:0]
		e.watch(p)
	} else if !a.active {
		return // the rest of a frame whose loss is counted already
	}
	if a.data == nil {
		a.data = make([]byte, 0, maxFragments*Fragment)
	}
	a.data = append(a.data, piece...)
	a.next++
	switch {
	case last:
		a.active = false
		e.eager(p, a.data, vnet, now)
	case a.next == maxFragments:
		a.active = false
		e.stats.count(RXFragmentLost)
	}
}

// eager takes a complete eager frame, with its virtio header in front if it has one.
func (e *Engine) eager(p *peer, data []byte, vnet bool, now time.Duration) {
	var v VNet
	if vnet {
		if len(data) < mtu.VNetHeader {
			e.stats.count(RXBadMessage)
			return
		}
		v, data = parseVNet(data), data[mtu.VNetHeader:]
	}
	if !e.takes(v, len(data)) {
		return
	}
	e.stats.count(RXEager)
	if p.order.n > 0 {
		e.orderEager(p, data, v, now)
		return
	}
	e.up(p, data, v, false)
}

// takes checks the length and the virtio header of a frame, and counts refusals.
func (e *Engine) takes(v VNet, n int) bool {
	if n < mtu.MACHeader || !v.Check(n) || v.needs(n)&^e.cfg.Caps != 0 {
		e.stats.count(RXBadMessage)
		return false
	}
	if v.GSO == GSONone && n > int(e.cfg.MTU.Frame()) || n > e.cfg.BufferSize ||
		v.GSO != GSONone && v.needs(n)&CapBig == 0 && n > mtu.MACHeader+int(mtu.MaxIPv6) {
		e.stats.count(RXTooLong)
		return false
	}
	return true
}

// up passes a frame to the receiver if it is for this node.
func (e *Engine) up(p *peer, data []byte, v VNet, rendezvous bool) {
	f := &e.frame
	f.From, f.VNet, f.Data, f.Rendezvous = p.node, v, data, rendezvous
	copy(f.Header[:], data)
	group := false
	switch to := f.Destination(); {
	case to.Multicast():
		group = true
		if e.cfg.Accept != nil && !e.cfg.Accept(to) {
			e.stats.count(RXFiltered)
			return
		}
	case to != e.mac && !e.cfg.Promiscuous:
		e.stats.count(RXForeign)
		return
	}
	if len(e.taps) > 0 {
		e.tapReceived(f)
	}
	err := e.cfg.Receive(f)
	f.Data = nil
	if err != nil {
		e.stats.count(RXRefused)
		return
	}
	e.stats.count(RXPackets)
	e.stats.add(RXBytes, len(data))
	if group {
		e.stats.count(RXMulticast)
	}
}
