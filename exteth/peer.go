package exteth

import (
	"errors"
	"time"

	"exnet/fabric"
	"exnet/mtu"
)

// A peer is what the engine knows of another node.
type peer struct {
	node fabric.NodeID
	busy bool // in Engine.busy

	// What its HELLO said.
	met      bool
	caps     Caps
	mtu      mtu.Link
	version  uint8
	instance uint64
	greeting greeting

	// Sending.
	active  bool // frames are under way to it
	counted bool // in Engine.active: active, and not stalled
	stalled bool // the last that was heard of its receiving is a time-out
	full    bool // VELO had no room for it when it was sent to last
	window  int  // adverts that may be out
	out     int  // adverts that are out
	waiting int  // frames in the queue that hold a buffer
	queue   frameQueue

	// Receiving.
	unicast, multicast assembly
	order              orderQueue
}

type greeting uint8

const (
	greetNone   greeting = iota
	greetHello           // to be sent when there is room
	greetAnswer          // the same, wanting no answer
)

// A peerTable finds peers by node ID in two steps, as the routing tables of the
// fabric do (NET-5).
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

// peer finds or makes a peer. Node IDs come from the fabric, which knows who is
// attached, so their number is bounded by it.
func (e *Engine) peer(n fabric.NodeID) *peer {
	p := e.peers.get(n)
	if p == nil {
		p = &peer{node: n, mtu: e.cfg.MTU, version: Version, window: e.maxWindow()}
		e.peers.set(n, p)
	}
	return p
}

// maxWindow leaves a quarter of the buffers to others.
func (e *Engine) maxWindow() int { return e.cfg.Buffers * 3 / 4 }

// watch puts a peer on the list of those that Advance looks at.
func (e *Engine) watch(p *peer) {
	if !p.busy {
		p.busy = true
		e.busy = append(e.busy, p)
	}
}

// settle brings the count of active peers up to date. One that has stalled is not
// counted: it may be dead, and nobody waits for it, or is kept waiting less long
// because of it.
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
		at = min(at, now+QueueTime) // a GET that found the fabric full
	}
	return at
}

// greet sends a HELLO. A node that is not ready yet greets us when it is.
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

// SetCaps says that from now on Receive takes something else, and tells the peers. What
// they sent before comes as it is.
func (e *Engine) SetCaps(c Caps) {
	if c == e.cfg.Caps {
		return
	}
	e.cfg.Caps = c
	for _, n := range e.node.Peers() {
		p := e.peer(n)
		e.greet(p, p.greeting != greetHello) // they need not answer, except for the first
	}
}

// greeted takes a peer's HELLO.
func (e *Engine) greeted(p *peer, h hello) {
	if p.met && p.instance != h.instance {
		e.reset(p, TXNodeLeft, RXNodeLeft) // restarted: nothing from before is valid
	}
	p.met, p.instance, p.version = true, h.instance, h.version
	p.caps, p.mtu = h.caps&CapAll, h.mtu
	if !h.answer {
		e.greet(p, true)
	}
}

// reset gives up all that is under way with a peer.
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

// Peer is what a node said of itself.
type Peer struct {
	Node    fabric.NodeID
	Met     bool // it has; else the rest is assumed
	Version uint8
	Caps    Caps
	MTU     mtu.Link
	Out     int // adverts that it has not fetched yet
	Waiting int // frames that wait for it
	Window  int // adverts it may have out
}

// Peer returns what is known of a node; ok is false when nothing is.
func (e *Engine) Peer(n fabric.NodeID) (Peer, bool) {
	p := e.peers.get(n)
	if p == nil {
		return Peer{}, false
	}
	return Peer{p.node, p.met, p.version, p.caps, p.mtu, p.out, p.queue.n, p.window}, true
}
