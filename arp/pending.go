package arp

import (
	"net/netip"
	"time"
)

const (
	// PendingPackets is how many packets may wait for one neighbour: as many as one poll's
	// budget.
	PendingPackets = 64
	// PendingWait is how long they wait: three resolution attempts, one second apart.
	PendingWait = 3 * time.Second
	// PendingNeighbours bounds the neighbours being resolved, so a scan of a /8 costs no more
	// than 512 × 64 packets. netstack's own table has the same length.
	PendingNeighbours = 512
)

// Pending holds packets whose neighbour is not resolved yet, in order. It belongs to one goroutine.
// Each packet leaves exactly once: by Resolve, or by the drop function given to NewPending.
type Pending[P any] struct {
	drop   func(P, PendingDrop)
	queues map[netip.Addr]*pendingQueue[P]
	oldest *pendingQueue[P] // list by time of the first packet
	newest *pendingQueue[P]
}

// PendingDrop is the reason for which a waiting packet was dropped.
type PendingDrop uint8

// The reasons.
const (
	DropFull        PendingDrop = iota // the oldest of 64 made room for a new one
	DropTimeout                        // 3 s passed
	DropUnreachable                    // resolution failed
	DropNeighbours                     // too many neighbours are being resolved
)

func (d PendingDrop) String() string {
	return [...]string{"queue full", "timeout", "unreachable", "too many neighbours"}[d&3]
}

type pendingQueue[P any] struct {
	addr           netip.Addr
	since          time.Duration
	packets        []P
	older, younger *pendingQueue[P]
}

// NewPending makes an empty queue. It calls drop for every packet that is given up.
func NewPending[P any](drop func(P, PendingDrop)) *Pending[P] {
	return &Pending[P]{drop: drop, queues: make(map[netip.Addr]*pendingQueue[P])}
}

// Add queues a packet. first reports that nothing waited for this neighbour yet, so the caller has
// to start its resolution. At the bound the oldest packet is dropped, because the newest is the
// most likely to be still wanted (RFC 4861, 7.2.2).
func (p *Pending[P]) Add(a netip.Addr, packet P, now time.Duration) (first bool) {
	q := p.queues[a]
	if q == nil {
		if len(p.queues) >= PendingNeighbours {
			p.drop(packet, DropNeighbours)
			return false
		}
		q = &pendingQueue[P]{addr: a, since: now, older: p.newest}
		p.queues[a] = q
		if p.newest != nil {
			p.newest.younger = q
		} else {
			p.oldest = q
		}
		p.newest = q
		first = true
	}
	if len(q.packets) == PendingPackets {
		oldest := q.packets[0]
		copy(q.packets, q.packets[1:])
		q.packets = q.packets[:PendingPackets-1]
		p.drop(oldest, DropFull)
	}
	q.packets = append(q.packets, packet)
	return first
}

// Resolve takes the packets that waited for a neighbour, oldest first.
func (p *Pending[P]) Resolve(a netip.Addr) []P {
	q := p.queues[a]
	if q == nil {
		return nil
	}
	p.remove(q)
	return q.packets
}

// Fail drops the packets that waited for a neighbour that cannot be resolved.
func (p *Pending[P]) Fail(a netip.Addr) {
	for _, packet := range p.Resolve(a) {
		p.drop(packet, DropUnreachable)
	}
}

// Expire drops packets that waited too long.
func (p *Pending[P]) Expire(now time.Duration) {
	for q := p.oldest; q != nil && now-q.since >= PendingWait; q = p.oldest {
		p.remove(q)
		for _, packet := range q.packets {
			p.drop(packet, DropTimeout)
		}
	}
}

// Next returns when Expire is due; ok is false if nothing waits.
func (p *Pending[P]) Next() (at time.Duration, ok bool) {
	if p.oldest == nil {
		return 0, false
	}
	return p.oldest.since + PendingWait, true
}

// Len returns the number of neighbours being resolved.
func (p *Pending[P]) Len() int { return len(p.queues) }

func (p *Pending[P]) remove(q *pendingQueue[P]) {
	delete(p.queues, q.addr)
	if q.older != nil {
		q.older.younger = q.younger
	} else {
		p.oldest = q.younger
	}
	if q.younger != nil {
		q.younger.older = q.older
	} else {
		p.newest = q.older
	}
}
