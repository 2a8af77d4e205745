package ofi

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// attend does for a peer what is due by time, and says when to look again.
func (n *Node) attend(p *peer) time.Time {
	far := n.now.Add(time.Hour)
	if p.self || n.stopped {
		return far
	}
	if !p.up {
		if n.closing {
			return far
		}
		if !n.now.Before(p.helloAt) {
			p.greet()
			p.helloAt = n.now.Add(p.helloGap)
			p.helloGap = min(2*p.helloGap, helloMost)
		}
		return p.helloAt
	}
	silence := n.now.Sub(p.heard)
	if silence >= n.config.Timeout {
		p.end(true)
		return p.helloAt
	}
	if silence >= silentTime && n.dials && !p.asking && n.now.Sub(p.dialed) >= silentTime/2 {
		p.asking, p.dialed = true, n.now
		p.ask()
	}
	next := p.sent.Add(beatTime)
	if !n.now.Before(next) {
		p.answer(flagAnswer)
		next = n.now.Add(beatTime)
	}
	if p.session.posted > p.session.acked {
		if ask := p.asked.Add(askTime); !n.now.Before(ask) {
			p.asked = n.now
			p.answer(flagAnswer)
		} else if ask.Before(next) {
			next = ask
		}
	}
	if _, later := p.session.owes(); later {
		p.answer(0)
	}
	return next
}

// answer has an ack frame sent.
func (p *peer) answer(flags uint8) {
	p.answerOwed = true
	p.answerFlags |= flags
	p.n.touch(p)
}

// ask finds out whether the process of a silent peer still listens. If its
// host refuses a connection it is dead; all else means nothing.
func (p *peer) ask() {
	n, id, place := p.n, p.session.id, p.place
	n.wg.Go(func() {
		conn, err := n.dialer.DialContext(n.life, "tcp", place.String())
		if err == nil {
			conn.Close()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if p.session.id != id {
			return
		}
		p.asking = false
		if errors.Is(err, unix.ECONNREFUSED) && p.up && !n.stopped {
			p.end(true)
		}
	})
}

// absent finds out which nodes do not listen at all, so that Attach need not
// wait for them.
func (n *Node) absent(p *peer) bool {
	if !n.dials {
		return false
	}
	d := net.Dialer{Timeout: n.config.attachPatience()}
	conn, err := d.DialContext(n.life, "tcp", p.place.String())
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// flush sends what is due to a peer, as far as there is room.
func (n *Node) flush(p *peer) {
	p.blocked = false
	if p.helloOwed {
		switch {
		case n.closing, p.sendHello():
			p.helloOwed = false
		case n.now.After(p.helloUntil):
			p.helloOwed = false
		default:
			p.blocked = true
		}
	}
	if p.up && p.doomed {
		p.violates(fabric.RegDroppedFlow)
	}
	if !p.up {
		return
	}
	n.pump(p)
	n.post(p)
	if now, _ := p.session.owes(); now || p.answerOwed {
		h := header{kind: frameAck, flags: p.answerFlags, session: p.session.id, seq: p.session.posted, ack: p.session.taken}
		if p.session.gap {
			h.flags |= flagGap
		}
		if p.sendControl(h, nil) {
			p.session.told = p.session.taken
			p.answerOwed, p.answerFlags = false, 0
			if h.flags&flagGap != 0 {
				p.session.gap = false
			}
		} else {
			p.blocked = true
		}
	}
}

// post gives the provider the frames that are sealed, and the open one if the
// provider has nothing of this peer's to do: what comes meanwhile shares the
// next frame.
func (n *Node) post(p *peer) {
	for {
		seq, ok := p.session.due()
		if !ok {
			if p.open == none || p.posts > 0 && !p.leaving || n.frames.all[p.open].n == headerSize {
				return
			}
			p.seal()
			continue
		}
		i := p.window[seq%sessionWindow]
		if !n.transmit(p, i) {
			p.blocked = true
			return
		}
		p.session.post()
	}
}

// seal closes the open frame and numbers it.
func (p *peer) seal() {
	fr := &p.n.frames.all[p.open]
	seq := p.session.seal()
	h := header{kind: frameData, from: p.n.id, session: p.session.id, seq: seq, ack: p.session.taken}
	h.encode(fr.b)
	p.session.told = p.session.taken
	if p.session.posted == p.session.acked {
		p.asked = p.n.now
	}
	p.window[seq%sessionWindow] = p.open
	p.open = none
}

// space makes sure that the open frame has room for so many bytes, leaving
// some frames of the window to others.
func (p *peer) space(size int, reserve uint64) bool {
	n := p.n
	if p.open != none {
		if n.frames.all[p.open].n+size <= frameSize {
			return true
		}
		p.seal()
		n.post(p)
	}
	if !p.session.room(reserve) {
		return false
	}
	p.open = n.frames.take(p, false)
	return p.open != none
}

// add writes a record into the open frame, which has room.
func (p *peer) add(r *record) {
	fr := &p.n.frames.all[p.open]
	fr.n += r.encode(fr.b[fr.n:])
}

// outboxMost bounds what a peer can make us owe it.
const outboxMost = 8192

// put sends a record without data, now or as soon as there is room, in order.
func (p *peer) put(r record) {
	if len(p.outbox) == 0 && p.space(r.size(), 0) {
		p.add(&r)
	} else if len(p.outbox) < outboxMost {
		p.outbox = append(p.outbox, r)
	} else {
		p.doomed = true
	}
	p.n.touch(p)
}

// pump fills frames with what waits for room.
func (n *Node) pump(p *peer) {
	sent := 0
	for ; sent < len(p.outbox) && p.space(p.outbox[sent].size(), 0); sent++ {
		p.add(&p.outbox[sent])
	}
	p.outbox = p.outbox[:copy(p.outbox, p.outbox[sent:])]
	if len(p.outbox) > 0 {
		return
	}
	n.returnCredits(p)
	n.releaseHeld(p)
	n.begin(p)
	n.serveGets(p)
}

// returnCredits tells the peer what was consumed.
func (n *Node) returnCredits(p *peer) {
	for unit, c := range []*credits{&p.velo, &p.rma} {
		for w := range c.dirty {
			for v := fabric.VPID(64 * w); c.dirty[w] != 0; v++ {
				if c.dirty[w]>>(v%64)&1 == 0 {
					continue
				}
				r := record{kind: recCredit, a: uint8(unit), dst: uint8(v), x: uint64(c.consumed[v])}
				if !p.space(r.size(), 0) {
					return
				}
				p.add(&r)
				c.told[v] = c.consumed[v]
				c.dirty[w] &^= 1 << (v % 64)
			}
		}
	}
}
