package ofi

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// Times of a session. A process that dies on a host that can be reached is
// noticed after silentTime and one refused connection.
const (
	helloFirst = 50 * time.Millisecond // between hellos to a node that has not answered
	helloMost  = 2 * time.Second
	helloTry   = 500 * time.Millisecond // how long the provider is asked to connect for each
	beatTime   = 400 * time.Millisecond // a node is never silent for longer
	silentTime = time.Second            // then it is asked whether it lives
	askTime    = 200 * time.Millisecond // for an acknowledgement that does not come
	repairTime = 50 * time.Millisecond  // between two repairs of one gap
)

// A peer is another node of the fabric, attached or not. All is under Node.mu.
//
//	absent ── hello with our nonce, or a frame of the new session ──► up
//	up ── bye, silence, a violation, a new nonce that is proven ──► absent
type peer struct {
	n     *Node
	id    fabric.NodeID
	place netip.AddrPort
	to    libfabric.Address
	known bool // to is valid
	self  bool

	up     bool
	me     party // as this peer is told
	it     party // as it has told; nonce 0 before
	groups uint64
	other  uint8 // its version of the wire format, if it is not ours
	session

	heard, sent time.Time // last; of a session
	helloAt     time.Time // the next hello
	helloGap    time.Duration
	helloUntil  time.Time // as long as the provider refuses to take it
	helloOwed   bool
	answerOwed  bool // an ack frame with these flags is due
	answerFlags uint8
	asked       time.Time // for an acknowledgement
	repaired    time.Time
	asking      bool // whether its process lives
	dialed      time.Time
	failures    uint64 // sends that the provider could not complete
	posts       int    // frames that the provider has not completed
	busy        bool   // in Node.busy
	blocked     bool   // the provider has refused a frame
	open        int32  // the frame that is being filled, or none
	window      [sessionWindow]int32
	outbox      []record // answers and the like that have found no room yet
	velo, rma   credits
	held        []heldMessage
	first, last int32
	next        int32 // the first operation that has not begun
	byRMA       int   // operations by RMA that have begun and are not over
	opNumber    uint64
	leases      map[leaseKey]*lease
	grants      map[*window]bool
	inPut       inboundPut
	gets        []outboundGet
	leaving     bool     // a bye was sent or queued
	flushing    flushing // answers that it owes
	doomed      bool     // it made us owe more than an honest peer can
}

// A credits says how much may be sent to each VPID of the peer, and how much it
// may send here: the receiver has room for creditWindow more than it has
// consumed. The counts never go back while the session lasts, so the latest
// word is all that counts, and a port that is closed and opened again has its
// room at once.
type credits struct {
	sent, acked    [fabric.VPIDCount]uint32 // there
	came, consumed [fabric.VPIDCount]uint32 // here
	told           [fabric.VPIDCount]uint32
	dirty          [fabric.VPIDCount / 64]uint64
}

// creditWindow is the room of a port for one peer, in messages or notifications.
const creditWindow = 256

func (c *credits) room(v fabric.VPID) bool { return c.sent[v]-c.acked[v] < creditWindow }

// consume says that k of a port were taken; it is worth telling at a quarter.
func (c *credits) consume(v fabric.VPID, k uint32) (tell bool) {
	c.consumed[v] += k
	if c.consumed[v]-c.told[v] >= creditWindow/4 {
		c.dirty[v/64] |= 1 << (v % 64)
		return true
	}
	return false
}

func newNonce() uint64 { return rand.Uint64() | 1 }

func (n *Node) newPeer(id fabric.NodeID, place netip.AddrPort) *peer {
	p := &peer{n: n, id: id, place: place, self: id == n.id}
	p.reset()
	p.me = party{n.id, n.instance, newNonce()}
	return p
}

// reset forgets all of a session.
func (p *peer) reset() {
	p.up, p.leaving, p.doomed = false, false, false
	p.it = party{id: p.id}
	p.groups, p.session = 0, session{}
	p.open, p.first, p.last, p.next = none, none, none, none
	p.byRMA = 0
	p.outbox, p.held, p.gets = p.outbox[:0], p.held[:0], p.gets[:0]
	p.velo, p.rma = credits{}, credits{}
	p.leases, p.grants = map[leaseKey]*lease{}, map[*window]bool{}
	p.inPut = inboundPut{}
	p.answerOwed, p.asking, p.blocked = false, false, false
	p.helloGap = helloFirst
	for i := range p.window {
		p.window[i] = none
	}
}

// greet sends a hello, now or as soon as the provider takes it.
func (p *peer) greet() {
	n := p.n
	if n.closing || p.self {
		return
	}
	p.helloOwed = true
	p.helloUntil = n.now.Add(helloTry)
	n.touch(p)
}

// sendHello reports whether there is nothing left to do.
func (p *peer) sendHello() bool {
	n := p.n
	h := hello{n.instance, p.me.nonce, p.it.nonce, n.groups}
	var b [helloSize]byte
	h.encode(b[:])
	return p.sendControl(header{kind: frameHello}, b[:])
}

// sendControl sends a frame that is not numbered. It reports whether the
// provider took it.
func (p *peer) sendControl(h header, body []byte) bool {
	n := p.n
	i := n.frames.take(p, true)
	if i == none {
		return false
	}
	fr := &n.frames.all[i]
	h.from = n.id
	h.encode(fr.b)
	fr.n = headerSize + copy(fr.b[headerSize:], body)
	if !n.transmit(p, i) {
		n.frames.release(i)
		return false
	}
	return true
}

// transmit posts a frame to the provider.
func (n *Node) transmit(p *peer, i int32) bool {
	if !p.known {
		to, err := n.engine.Insert(p.place)
		if err != nil {
			return false
		}
		p.to, p.known = to, true
	}
	fr := &n.frames.all[i]
	if n.underWay >= n.mostUnderWay || n.engine.Send(p.to, fr.b[:fr.n], n.slab, contextSend|uint64(i)) != nil {
		if !n.refused {
			n.refused = true
			n.progress.kick()
		}
		return false
	}
	fr.posts++
	n.underWay++
	p.posts++
	p.sent = n.now
	return true
}

// receive handles a frame off the wire. What is not a legal frame of a node
// that is known is counted and dropped; a session ends only by what its own
// peer has sent.
func (n *Node) receive(b []byte) {
	h, ok := decodeHeader(b)
	if !ok {
		n.count(fabric.RegDroppedControl, 1)
		return
	}
	p := n.peers[h.from]
	if p == nil || p.self {
		n.count(fabric.RegDroppedControl, 1)
		return
	}
	if h.kind == frameHello {
		p.hello(h, b[headerSize:])
		return
	}
	if !p.up && p.it.nonce != 0 && h.session == sessionID(p.me, p.it) && !n.closing {
		p.establish() // who knows the number has got our hello
	}
	if !p.up || h.session != p.session.id {
		n.count(fabric.RegDroppedControl, 1) // of an earlier session, or a stranger's
		return
	}
	p.heard = n.now
	if !p.acknowledged(h.ack) {
		p.violates(fabric.RegDroppedCredit)
		return
	}
	switch h.kind {
	case frameAck:
		if h.flags&flagGap != 0 && n.now.Sub(p.repaired) >= repairTime {
			p.repaired = n.now
			n.count(fabric.RegLinkRetransmissions, uint64(p.session.again()))
		}
		if h.flags&flagAnswer != 0 {
			p.session.probe(h.seq)
			p.answerOwed = true
		}
	case frameData:
		switch p.session.arrive(h.seq) {
		case take:
			p.records(b[headerSize:])
		case duplicate, missing:
			n.soon()
		}
	}
	if p.up {
		if now, later := p.session.owes(); now || later || p.answerOwed {
			n.soon()
		}
		n.touch(p)
	}
}

// acknowledged gives the frames back that the peer has; false for a lie.
func (p *peer) acknowledged(ack uint64) bool {
	n := p.n
	from, to, ok := p.session.acknowledge(ack)
	for seq := from; seq <= to; seq++ {
		i := p.window[seq%sessionWindow]
		p.window[seq%sessionWindow] = none
		n.frames.all[i].kept = false
		n.frames.release(i)
	}
	if to >= from {
		p.asked = n.now
		n.room(p)
	}
	return ok
}

// hello is the handshake. A nonce that is not the one of the session is
// believed only with ours beside it: a late frame of an earlier life has not.
func (p *peer) hello(h header, body []byte) {
	n := p.n
	if h.version != wireVersion {
		p.other = h.version
		n.count(fabric.RegDroppedControl, 1)
		n.met()
		return
	}
	m, ok := decodeHello(body)
	if !ok {
		n.count(fabric.RegDroppedControl, 1)
		return
	}
	if n.closing {
		return
	}
	p.other = 0
	it := party{p.id, m.instance, m.mine}
	proven := m.yours == p.me.nonce
	if p.up {
		if it == p.it {
			if !proven {
				p.greet() // it does not know us yet
			}
			return
		}
		if !proven {
			kept := p.it
			p.it = it // as the hello is to say
			p.sendHello()
			p.it = kept
			return
		}
		p.end(true)
	}
	p.it, p.groups = it, m.groups
	if proven && p.me.nonce == m.yours {
		p.establish()
	}
	p.greet()
}

// establish begins the session.
func (p *peer) establish() {
	n := p.n
	p.up = true
	p.session = session{id: sessionID(p.me, p.it)}
	p.heard, p.sent, p.asked, p.repaired = n.now, n.now, n.now, time.Time{}
	p.asking = false
	n.count(fabric.RegPeers, 1)
	n.count(fabric.RegChannels, 1)
	n.tellWatchers(fabric.Event{Node: p.id, Joined: true})
	n.met()
	n.closeOnExec()
}

// violates ends the session of a peer that does what no honest one does.
func (p *peer) violates(counted fabric.Register) {
	p.n.count(counted, 1)
	p.end(true)
}

// end ends the session. Nothing of it is resumed: the next one has another nonce.
func (p *peer) end(crashed bool) {
	n := p.n
	if !p.up {
		return
	}
	p.up = false
	p.me.nonce = newNonce()
	for seq := p.session.acked + 1; seq <= p.session.sealed; seq++ {
		if i := p.window[seq%sessionWindow]; i != none {
			n.frames.all[i].kept = false
			n.frames.release(i)
		}
	}
	if p.open != none {
		n.frames.all[p.open].kept = false
		n.frames.release(p.open)
	}
	p.abandon()
	p.forgetFlushing()
	for i := range p.held {
		p.held[i].port.heldHere--
	}
	for v := range fabric.VPIDCount {
		if port := n.veloPorts[v]; port != nil {
			port.forget(p)
		}
		if port := n.rmaPorts[v]; port != nil {
			port.forget(p)
		}
	}
	for w := range p.grants {
		w.ungrant(p)
	}
	if p.inPut.window != nil {
		p.inPut.window.drop()
	}
	for _, g := range p.gets {
		g.source.window.drop()
	}
	p.reset()
	p.helloAt = n.now.Add(p.helloGap)
	n.uncount(fabric.RegPeers, 1)
	n.uncount(fabric.RegChannels, 1)
	if crashed {
		n.count(fabric.RegPeersLost, 1)
	}
	n.tellWatchers(fabric.Event{Node: p.id, Crashed: crashed})
	n.room(p)
}
