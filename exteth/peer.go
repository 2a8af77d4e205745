package exteth

import (
	"errors"
	"time"

	"exnet/fabric"
	"exnet/mtu"
)

// A peer is the engine's state for another node.
type peer struct {
	node fabric.NodeID
	busy bool // in Engine.busy

	// From its HELLO.
	met      bool
	caps     Caps
	mtu      mtu.Link
	version  uint8
	instance uint64
	greeting greeting

	// Sending.
	active  bool // frames for it are under way
	counted bool // in Engine.active: active and not stalled
	stalled bool // the last news of its receiving was a time-out
	full    bool // VELO had no room for it at the last send
	window  int  // adverts that may be outstanding
	out     int  // adverts that are outstanding
	waiting int  // frames in the queue that hold a buffer
	queue   frameQueue

	// Receiving.
	unicast, multicast assembly
	order              orderQueue
}

type greeting uint8

const (
	greetNone   greeting = iota
	greetHello           // a HELLO waits for room
	greetAnswer          // the same, for a HELLO that wants no answer
)

// A peerTable finds peers by node ID in two steps, like the routing tables of the fabric (NET-5).
type peerTable [64]*[1024]*peer

func (t *peerTable) get(n fabric.NodeID) *peer {
	if s := t[n.Segment()]; s != nil {
		return s[n.Local()]
	}
	return nil
}

func (t *peerTable) set(n fabric.NodeID, p *peer) {
	s := t[n.Segment()]
	if s == nil {
		s = new([1024]*peer)
		t[n.Segment()] = s
	}
	s[n.Local()] = p
}

func (t *peerTable) delete(n fabric.NodeID) {
	if s := t[n.Segment()]; s != nil {
		s[n.Local()] = nil
	}
}

// peer finds or makes a peer. Node IDs come from the fabric, which knows who is attached, so the
// number of peers is bounded.
func (e *Engine) peer(n fabric.NodeID) *peer {
	p := e.peers.get(n)
	if p == nil {
		p = &peer{node: n, mtu: e.cfg.MTU, version: Version, window: e.maxWindow()}
		e.peers.set(n, p)
	}
	return p
}

// maxWindow leaves a quarter of the buffers to other peers.
func (e *Engine) maxWindow() int { return e.cfg.Buffers * 3 / 4 }

// watch adds a peer to the list that Advance goes through.
func (e *Engine) watch(p *peer) {
	if !p.busy {
		p.busy = true
		e.busy = append(e.busy, p)
	}
}

// settle updates the count of active peers. A stalled peer is not counted: it may be dead, so
// nobody waits for it, and frames for the others need not expire sooner because of it.
func (e *Engine) settle(p *peer) {
	if p.active = p.out > 0 || p.queue.n > 0; p.active {
		e.watch(p)
	}
	counts := p.active && !p.stalled
	if counts == p.counted {
		return
	}
	if p.counted = counts; counts {
		e.active++
	} else {
		e.active--
	}
}

// hasTime reports whether Advance has to look at the peer.
func (p *peer) hasTime() bool {
	return p.active || p.greeting != greetNone || p.unicast.active || p.multicast.active || p.order.n > 0
}

// nextOf returns when the peer needs Advance; see Engine.Next.
func (e *Engine) nextOf(p *peer, now time.Duration) time.Duration {
	at := time.Duration(1<<63 - 1)
	if p.greeting != greetNone {
		at = now + QueueTime
	}
	if p.queue.n > 0 {
		at = min(at, e.expires(p, p.queue.head()))
	}
	for _, a := range []*assembly{&p.unicast, &p.multicast} {
		if a.active {
			at = min(at, a.since+ReassemblyTime)
		}
	}
	if p.order.n > 0 && p.order.head().state == orderAdvert {
		at = min(at, now+QueueTime) // a GET waits for room in the fabric
	}
	return at
}

// greet sends a HELLO. A node that is not ready yet will greet us when it is.
func (e *Engine) greet(p *peer, answer bool) {
	if p.node == e.self {
		return
	}
	h := hello{version: Version, answer: answer, caps: e.cfg.Caps, mtu: e.cfg.MTU, instance: e.cfg.Instance}
	p.greeting = greetNone
	if errors.Is(e.send(p, tagHello, 0, h.append(e.scratch[:0])), fabric.ErrFull) {
		p.greeting = greetHello
		if answer {
			p.greeting = greetAnswer
		}
		e.watch(p)
	}
}

// SetCaps changes what Receive takes and tells the peers. Frames sent before they hear of it still
// come as before.
func (e *Engine) SetCaps(c Caps) {
	if c == e.cfg.Caps {
		return
	}
	e.cfg.Caps = c
	for _, n := range e.node.Peers() {
		p := e.peer(n)
		e.greet(p, p.greeting != greetHello) // no answer is needed, except to a first HELLO
	}
}

// greeted takes a peer's HELLO.
func (e *Engine) greeted(p *peer, h hello) {
	if p.met && p.instance != h.instance {
		e.reset(p, TXNodeLeft, RXNodeLeft) // restarted: all earlier state is invalid
	}
	p.met, p.instance, p.version = true, h.instance, h.version
	p.caps, p.mtu = h.caps&CapAll, h.mtu
	if !h.answer {
		e.greet(p, true)
	}
}

// reset gives up everything under way with a peer, and counts it.
func (e *Engine) reset(p *peer, tx, rx Counter) {
	for {
		_, s, ok := e.sent.takePeer(p.node)
		if !ok {
			break
		}
		e.stats.count(tx)
		e.tx.poison(s.buffer)
		e.ended(s)
	}
	for p.queue.n > 0 {
		e.stats.count(tx)
		e.dequeue(p)
	}
	for {
		_, g, ok := e.gets.takePeer(p.node)
		if !ok {
			break
		}
		e.failGet(g)
	}
	for p.order.n > 0 {
		e.stats.count(rx)
		e.popOrder(p)
	}
	p.unicast.active, p.multicast.active = false, false
	p.window, p.stalled, p.full = e.maxWindow(), false, false
	e.settle(p)
}

// Peer is what is known of a node.
type Peer struct {
	Node    fabric.NodeID
	Met     bool // its HELLO came; false: the other fields are assumptions
	Version uint8
	Caps    Caps
	MTU     mtu.Link
	Out     int // adverts that it has not fetched yet
	Waiting int // frames that wait for it
	Window  int // adverts it may have outstanding
}

// Peer returns what is known of a node; ok is false when nothing is.
func (e *Engine) Peer(n fabric.NodeID) (Peer, bool) {
	p := e.peers.get(n)
	if p == nil {
		return Peer{}, false
	}
	return Peer{p.node, p.met, p.version, p.caps, p.mtu, p.out, p.queue.n, p.window}, true
}
