package emu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"exnet/fabric"
)

// Sizes on the wire, in bytes. A VELO message is its slot without the unused end (VEL-1). An RMA
// packet has a header of 16 bytes (RMA-3).
const (
	veloHeader    = fabric.VELOStatusLen
	rmaHeader     = fabric.RMAPacketHeader
	rmaRequest    = 24            // the descriptor of a GET (RMA-2)
	rmaImmediate  = rmaHeader + 9 // 72 bits in the descriptor (RMA-4)
	rmaAck        = rmaHeader     // the target's verdict
	creditPacket  = 8             // a cell (NET-4)
	groupsPacket  = rmaHeader     // a change of memberships
	nanoPerSecond = float64(time.Second)
)

// LinkStats count what one direction of a link did. A packet counts each time that it is sent.
// Packets = Delivered + CRCErrors + Lost, and likewise for bytes.
type LinkStats struct {
	Packets, Bytes            uint64 // put on the wire
	Delivered, DeliveredBytes uint64
	CRCErrors, CRCErrorBytes  uint64 // hit by bit errors
	Lost, LostBytes           uint64 // sent while the link was down
	Retransmissions           uint64
	Failures                  uint64 // messages and operations given up
}

func (s *LinkStats) add(o *LinkStats) {
	s.Packets += o.Packets
	s.Bytes += o.Bytes
	s.Delivered += o.Delivered
	s.DeliveredBytes += o.DeliveredBytes
	s.CRCErrors += o.CRCErrors
	s.CRCErrorBytes += o.CRCErrorBytes
	s.Lost += o.Lost
	s.LostBytes += o.LostBytes
	s.Retransmissions += o.Retransmissions
	s.Failures += o.Failures
}

// A link is one direction between two nodes.
type link struct {
	net      *Network
	from, to fabric.NodeID
	rank     uint64
	rng      *rand.Rand

	latency, jitter time.Duration
	bandwidth       float64 // bits per second, 0: unlimited
	bitErrors       float64
	retries         int
	retryWait       time.Duration
	creditDelay     time.Duration
	stalled         time.Duration // until this time
	down, dead      bool

	queue     []*parcel
	scheduled bool          // transmit is scheduled
	free      time.Duration // when the transmitter is free
	arrived   time.Duration // when the last packet arrives: nothing overtakes it
	tries     int           // failures in a row
	stats     LinkStats
}

func newLink(n *Network, from, to fabric.NodeID) *link {
	pair := uint64(from)<<16 | uint64(to)
	return &link{
		net: n, from: from, to: to, rank: rankScript + 1 + pair,
		rng:     rand.New(rand.NewPCG(n.cfg.Seed, pair)),
		retries: 16, retryWait: time.Microsecond,
	}
}

// A parcel waits in a link: one packet, or the packets of an RMA transfer, which leave one after
// the other.
type parcel struct {
	what   string
	size   int        // on the wire; with data, see bytes
	data   *stream    // nil: one packet
	op     *operation // RMA: the link may give it up, by op.fail; nil: never
	arrive func()     // called on arrival, without data
	lost   func()     // called if the link dies, without op
}

// bytes returns the size of the next packet on the wire.
func (p *parcel) bytes() int {
	if p.data != nil {
		return rmaHeader + p.data.next()
	}
	return p.size
}

// put queues a parcel.
func (l *link) put(p *parcel) {
	if l.dead {
		l.giveUp(p, fabric.FaultLink)
		return
	}
	l.queue = append(l.queue, p)
	l.kick()
}

// kick makes sure that the queue will be looked at.
func (l *link) kick() {
	if !l.scheduled && len(l.queue) > 0 {
		l.look(max(l.net.soon(), l.free, l.stalled))
	}
}

func (l *link) look(at time.Duration) {
	l.scheduled = true
	l.net.schedule(at, l.rank, l.transmit)
}

// transmit puts the next packet on the wire, where it may fail.
func (l *link) transmit() {
	l.scheduled = false
	for len(l.queue) > 0 && l.queue[0].op != nil && l.queue[0].op.done {
		l.queue = l.queue[1:] // failed meanwhile
	}
	now := l.net.clock.now()
	switch {
	case len(l.queue) == 0:
		return
	case now < l.stalled:
		l.look(l.stalled)
		return
	case l.down && !slices.ContainsFunc(l.queue, func(p *parcel) bool { return p.op != nil }):
		return // waits for Up: there is nothing to give up
	}
	p := l.queue[0]
	size := p.bytes()
	off := now + l.duration(size) // when the last bit has left
	l.stats.Packets++
	l.stats.Bytes += uint64(size)
	switch {
	case l.down:
		l.stats.Lost++
		l.stats.LostBytes += uint64(size)
		l.failed(p, size, off, "lost")
	case l.corrupts(size):
		l.stats.CRCErrors++
		l.stats.CRCErrorBytes += uint64(size)
		l.net.count(l.to, fabric.RegLinkCRCErrors)
		l.failed(p, size, off, "bad CRC")
	default:
		l.stats.Delivered++
		l.stats.DeliveredBytes += uint64(size)
		l.delivered(p, size, off)
	}
	if len(l.queue) > 0 {
		l.look(max(now, l.free))
	}
}

func (l *link) delivered(p *parcel, size int, off time.Duration) {
	l.trace("sent", p, size)
	l.tries = 0
	l.free = off
	arrive, last := p.arrive, true
	if p.data != nil {
		arrive, last = p.data.leave()
	}
	if last {
		l.queue = l.queue[1:]
	}
	at := off + l.latency
	if l.jitter > 0 {
		at += time.Duration(l.rng.Int64N(int64(l.jitter) + 1))
	}
	l.arrived = max(at, l.arrived, l.net.soon())
	l.net.schedule(l.arrived, l.rank, func() {
		l.trace("arrived", p, size)
		arrive()
	})
}

// failed handles a packet that did not get through. It will be sent again, unless it was sent so
// often that the RMA operations in the queue are given up.
func (l *link) failed(p *parcel, size int, off time.Duration, why string) {
	l.trace(why, p, size)
	l.free = off + l.retryWait
	if l.tries++; l.tries > l.retries {
		l.tries = 0
		l.queue = slices.DeleteFunc(l.queue, func(p *parcel) bool {
			if p.op != nil {
				l.giveUp(p, fabric.FaultLink)
			}
			return p.op != nil
		})
	}
	if len(l.queue) > 0 && l.queue[0] == p {
		l.stats.Retransmissions++
		l.net.count(l.from, fabric.RegLinkRetransmissions)
	}
}

// abandon gives up everything in the queue.
func (l *link) abandon(f fabric.Fault) {
	queue := l.queue
	l.queue = nil
	for _, p := range queue {
		l.giveUp(p, f)
	}
}

func (l *link) giveUp(p *parcel, f fabric.Fault) {
	if p.op != nil && p.op.done {
		return
	}
	l.trace("gave up", p, p.bytes())
	l.stats.Failures++
	l.net.count(l.from, fabric.RegLinkFailures)
	if p.op != nil {
		p.op.fail(f)
	} else {
		p.lost()
	}
}

// duration returns how long so many bytes occupy the transmitter.
func (l *link) duration(bytes int) time.Duration {
	if l.bandwidth == 0 {
		return 0
	}
	return time.Duration(math.Ceil(float64(8*bytes) * nanoPerSecond / l.bandwidth))
}

// corrupts draws whether bit errors hit a packet.
func (l *link) corrupts(bytes int) bool {
	if l.bitErrors == 0 {
		return false
	}
	intact := math.Exp(float64(8*bytes) * math.Log1p(-l.bitErrors))
	return l.rng.Float64() >= intact
}

// trace writes a trace line about a packet.
func (l *link) trace(verb string, p *parcel, size int) {
	if w := l.net.cfg.Trace; w != nil {
		fmt.Fprintf(w, "%d %d->%d %s %s %d\n", l.net.clock.now(), l.from, l.to, verb, p.what, size)
	}
}
