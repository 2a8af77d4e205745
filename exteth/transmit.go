package exteth

import (
	"encoding/binary"
	"errors"
	"time"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/multicast"
)

// errWait means that the peer is at its bound, or that the fabric is full.
var errWait = errors.New("exteth: no room now")

// A sentFrame is an outstanding advert.
type sentFrame struct {
	peer   *peer
	buffer *Buffer
	length int
	group  bool
}

// Send sends the frame in n bytes of b, starting at off. The virtio header v says what is still to
// be done to it. From then on the engine owns the buffer, except after ErrTooBig. Send counts every
// error, so the caller may ignore them.
func (e *Engine) Send(b *Buffer, off, n int, v VNet, now time.Duration) error {
	if off < 0 || n < mtu.MACHeader || off > len(b.Bytes)-n || !v.Check(n) {
		return e.refuse(b, TXBadFrame, ErrFrame)
	}
	if len(e.taps) > 0 {
		e.tapSent(b.Bytes[off:off+n], v)
	}
	if v.Plain() {
		v = VNet{}
	}
	to := arp.MAC(b.Bytes[off:])
	if to.Multicast() {
		return e.sendGroup(b, off, n, v, now)
	}
	node, ok := e.cfg.Prefix.Node(to)
	switch {
	case !ok:
		return e.refuse(b, TXForeign, ErrForeign)
	case node == e.self:
		return e.refuse(b, TXSelf, ErrForeign)
	}
	p := e.peers.get(node)
	switch {
	case p == nil:
		return e.refuse(b, TXNoNode, ErrNoNode)
	case p.version != Version:
		return e.refuse(b, TXVersion, ErrNoNode)
	}
	frame := b.Bytes[off : off+n]
	if _, tooBig, ok := e.tooBig(frame, v, p.mtu); !ok {
		return e.refuse(b, TXBadFrame, ErrFrame)
	} else if tooBig {
		e.stats.count(TXTooBig)
		return ErrTooBig
	}
	if needs := v.needs(n); needs&^p.caps != 0 {
		if v.GSO != GSONone {
			return e.cut(p, b, off, n, v, now)
		}
		// This cannot fail: v was checked.
		_, _ = CompleteChecksum(frame, v)
		e.stats.count(TXChecksums)
		v = VNet{}
	}
	return e.submit(p, b, off, n, v, false, now)
}

func (e *Engine) refuse(b *Buffer, why Counter, err error) error {
	e.stats.count(why)
	e.tx.release(b)
	return err
}

// TooBig returns the MTU to report to the sender of a frame that Send refused with ErrTooBig.
func (e *Engine) TooBig(frame []byte, v VNet) mtu.IP {
	link := e.cfg.MTU
	if node, ok := e.cfg.Prefix.Node(arp.MAC(frame)); ok {
		if p := e.peers.get(node); p != nil {
			link = p.mtu
		}
	}
	tell, _, _ := e.tooBig(frame, v, link)
	return tell
}

func (e *Engine) tooBig(frame []byte, v VNet, peer mtu.Link) (tell mtu.IP, tooBig, ok bool) {
	n := len(frame) - mtu.MACHeader
	if v.GSO != GSONone {
		s, err := newSegmenter(frame, v)
		if err != nil {
			return 0, false, false
		}
		n = s.gso().SegmentIP()
	}
	link, family := mtu.Path(e.cfg.MTU, peer), mtu.IPv4
	if binary.BigEndian.Uint16(frame[12:]) == etherTypeIPv6 {
		family = mtu.IPv6
	}
	tell, _ = link.TooBig(family, n)
	return tell, n > int(link), true
}

// cut sends a super-packet as separate packets, to a peer or, if p is nil, to the group of its
// destination. Several packets share a buffer.
func (e *Engine) cut(p *peer, b *Buffer, off, n int, v VNet, now time.Duration) (err error) {
	defer e.tx.release(b)
	s, err := newSegmenter(b.Bytes[off:off+n], v)
	if err != nil {
		e.stats.count(TXBadFrame)
		return ErrFrame
	}
	e.stats.count(TXSegmented)
	var into *Buffer
	at := 0
	for l := s.nextLen(); l > 0; l = s.nextLen() {
		if into == nil || at+l > len(into.Bytes) {
			if into != nil {
				e.tx.release(into)
			}
			if into = e.tx.take(); into == nil {
				e.stats.add(TXNoBuffer, s.gso().Segments()-s.index)
				return ErrDropped
			}
			at = 0
		}
		s.next(into.Bytes[at:])
		e.stats.count(TXSegments)
		into.refs++
		var lost error
		if p == nil {
			lost = e.submitGroup(into, at, l, now)
		} else {
			lost = e.submit(p, into, at, l, VNet{}, false, now)
		}
		if lost != nil {
			err = ErrDropped
		}
		at += (l + 63) &^ 63
	}
	if into != nil {
		e.tx.release(into)
	}
	return err
}

// submit sends a frame, or queues it behind others. It consumes one reference of b.
func (e *Engine) submit(p *peer, b *Buffer, off, n int, v VNet, group bool, now time.Duration) error {
	q := queued{buffer: b, off: off, n: n, vnet: v, group: group, deadline: now + QueueTime}
	err := errWait
	if p.queue.n == 0 {
		err = e.transmit(p, &q, b.Bytes[off:off+n], now)
	}
	if err == errWait {
		err = e.enqueue(p, &q)
	}
	e.tx.release(b)
	e.settle(p)
	return err
}

// transmit sends one frame, eagerly or by rendezvous. Before errWait it may have sent some
// fragments, which q remembers. It counts other errors.
func (e *Engine) transmit(p *peer, q *queued, frame []byte, now time.Duration) error {
	var err error
	if q.n <= e.cfg.Eager {
		err = e.sendEager(p, q, frame)
	} else {
		err = e.advertise(p, q, now)
	}
	switch {
	case err == nil || err == errWait:
		return err
	case errors.Is(err, fabric.ErrFull):
		return errWait
	case errors.Is(err, fabric.ErrNoNode), errors.Is(err, fabric.ErrNoPort):
		e.stats.count(TXNoNode)
		return ErrNoNode
	}
	e.stats.count(TXFabric)
	return err
}

// sendEager sends the fragments that are left (EAG-1). A virtio header and its frame are cut as one
// piece.
func (e *Engine) sendEager(p *peer, q *queued, frame []byte) error {
	prefix, vnetBit := 0, uint8(0)
	if !q.vnet.Plain() {
		prefix, vnetBit = mtu.VNetHeader, tagVNet
	}
	total := prefix + len(frame)
	for at := q.sent * Fragment; at < total; at += Fragment {
		tag := uint8(tagFrag)
		if at+Fragment >= total {
			tag = tagFragLast
		}
		var piece []byte
		if at == 0 && prefix > 0 {
			piece = q.vnet.append(e.scratch[:0])
			piece = append(piece, frame[:min(len(frame), Fragment-prefix)]...)
		} else {
			piece = frame[at-prefix : min(at-prefix+Fragment, len(frame))]
		}
		if err := e.send(p, tag|vnetBit, uint8(q.sent), piece); err != nil {
			return err
		}
		e.stats.count(TXFragments)
		q.sent++
	}
	e.stats.count(TXEager)
	if !q.group {
		e.stats.count(TXPackets)
		e.stats.add(TXBytes, len(frame))
	}
	return nil
}

// send sends a message. If there is room after there was none, the peer receives. Room alone does
// not show that: a stopped peer has some until its ring is full.
func (e *Engine) send(p *peer, tag, userTag uint8, payload []byte) error {
	err := e.velo.Send(fabric.VELODescriptor{
		To:      fabric.Address{Node: p.node, VPID: e.cfg.VELO},
		MTT:     tag,
		UserTag: userTag,
	}, payload)
	switch {
	case err == nil && p.full:
		p.full, p.stalled = false, false
		e.settle(p)
	case errors.Is(err, fabric.ErrFull):
		p.full = true
	}
	return err
}

// advertise offers a frame for fetching (RDV-1).
func (e *Engine) advertise(p *peer, q *queued, now time.Duration) error {
	if p.out >= p.window || !e.sent.room() {
		return errWait
	}
	a := advert{source: q.buffer.nla(q.off), length: q.n, vnet: q.vnet}
	if err := e.send(p, tagGetInfo, 0, a.append(e.scratch[:0])); err != nil {
		return err
	}
	e.stats.count(TXAdverts)
	p.out++
	q.buffer.refs++
	s := sentFrame{peer: p, buffer: q.buffer, length: q.n, group: q.group}
	k := matchKey{fabric.KindResponder, p.node, fabric.LastPacket(a.source, a.length)}
	if e.sent.expect(k, s, now+e.cfg.Timeout) {
		e.fetched(s)
	}
	return nil
}

// fetched completes an advert whose frame was fetched.
func (e *Engine) fetched(s sentFrame) {
	e.stats.count(TXRendezvous)
	if !s.group {
		e.stats.count(TXPackets)
		e.stats.add(TXBytes, s.length)
	}
	s.peer.window, s.peer.stalled = e.maxWindow(), false
	e.ended(s)
}

// ended releases what an advert held.
func (e *Engine) ended(s sentFrame) {
	s.peer.out--
	e.tx.release(s.buffer)
	e.settle(s.peer)
}

// sendGroup sends a multicast frame to the members of its group.
func (e *Engine) sendGroup(b *Buffer, off, n int, v VNet, now time.Duration) error {
	frame := b.Bytes[off : off+n]
	if _, tooBig, ok := e.tooBig(frame, v, e.cfg.MTU); !ok {
		return e.refuse(b, TXBadFrame, ErrFrame)
	} else if tooBig {
		e.stats.count(TXTooBig)
		return ErrTooBig
	}
	if v.GSO != GSONone {
		return e.cut(nil, b, off, n, v, now)
	}
	if v.Flags&NeedsChecksum != 0 {
		_, _ = CompleteChecksum(frame, v)
		e.stats.count(TXChecksums)
	}
	return e.submitGroup(b, off, n, now)
}

// submitGroup sends a complete multicast frame. A short one goes by VELO multicast; each member
// fetches a long one (MCS-2). It consumes one reference of b.
func (e *Engine) submitGroup(b *Buffer, off, n int, now time.Duration) error {
	frame := b.Bytes[off : off+n]
	g := multicast.GroupOf(arp.MAC(frame))
	if n <= e.cfg.MulticastEager && e.multicastWaiting == 0 {
		return e.multicastEager(b, g, frame)
	}
	var err error
	for _, m := range e.node.Members(g) {
		p := e.peers.get(m)
		if m == e.self || p == nil || p.version != Version {
			continue
		}
		b.refs++
		if e.submit(p, b, off, n, VNet{}, true, now) != nil {
			err = ErrDropped
		}
	}
	e.stats.count(TXMulticast)
	e.stats.count(TXPackets)
	e.stats.add(TXBytes, n)
	e.tx.release(b)
	return err
}

// multicastEager sends fragments to a group. A member whose ring is full loses single messages, so
// each fragment carries the number of its frame.
func (e *Engine) multicastEager(b *Buffer, g fabric.Group, frame []byte) error {
	defer e.tx.release(b)
	const room = Fragment - numberLen
	d := fabric.VELODescriptor{
		To:        fabric.Address{Node: fabric.NodeID(g), VPID: e.cfg.VELO},
		Multicast: true,
		MTT:       tagFrag,
	}
	e.multicastNumber++
	for at := 0; at < len(frame); at += room {
		piece := binary.LittleEndian.AppendUint16(e.scratch[:0], e.multicastNumber)
		piece = append(piece, frame[at:min(at+room, len(frame))]...)
		if at+room >= len(frame) {
			d.MTT = tagFragLast
		}
		if err := e.velo.Send(d, piece); errors.Is(err, fabric.ErrFull) {
			e.stats.count(TXMulticastFull)
			return ErrDropped
		} else if err != nil {
			e.stats.count(TXFabric)
			return err
		}
		e.stats.count(TXFragments)
		d.UserTag++
	}
	e.stats.count(TXEager)
	e.stats.count(TXMulticast)
	e.stats.count(TXPackets)
	e.stats.add(TXBytes, len(frame))
	return nil
}
