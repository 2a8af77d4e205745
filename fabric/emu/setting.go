package emu

import (
	"time"

	"exnet/fabric"
)

// Links selects the links from one node to another. They need not exist yet. fabric.NodeAny stands
// for every node; a node's link to itself is selected only by name.
type Links struct {
	net      *Network
	from, to fabric.NodeID
}

// Link selects the link from one node to another, in one direction.
func (n *Network) Link(from, to fabric.NodeID) Links { return Links{n, from, to} }

// Set changes the links from now on, including links of nodes that attach later. It does not affect
// packets in the air.
func (l Links) Set(settings ...Setting) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.from != fabric.NodeAny && l.to != fabric.NodeAny {
		n.link(l.from, l.to)
	}
	for _, s := range settings {
		for _, k := range n.matching(l.from, l.to) {
			s.apply(k)
			k.kick()
		}
		if s.lasts && (l.from == fabric.NodeAny || l.to == fabric.NodeAny) {
			n.rules = append(n.rules, rule{l.from, l.to, s})
		}
	}
}

// Stats returns the sums over the links.
func (l Links) Stats() LinkStats {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	var sum LinkStats
	for _, k := range l.net.matching(l.from, l.to) {
		sum.add(&k.stats)
	}
	return sum
}

// A Setting is a property of a link, or something that happens to it. A value out of range means
// the nearest one in range.
type Setting struct {
	lasts bool // also applies to later links
	apply func(*link)
}

// longest bounds durations to 104 days, so that no sum of them overflows.
const longest time.Duration = 1 << 53

// span limits a duration to the possible range.
func span(d time.Duration) time.Duration { return min(max(d, 0), longest) }

func lasting(apply func(*link)) Setting { return Setting{true, apply} }

// Latency is the time that a packet is in the air.
func Latency(d time.Duration) Setting { return lasting(func(l *link) { l.latency = span(d) }) }

// Jitter adds a random time from 0 to d to the latency of each packet. It
// never changes the order.
func Jitter(d time.Duration) Setting { return lasting(func(l *link) { l.jitter = span(d) }) }

// Bandwidth is how many bits leave per second, at least 1; 0 means no limit.
func Bandwidth(bits float64) Setting {
	if bits != 0 {
		bits = max(bits, 1)
	}
	return lasting(func(l *link) { l.bandwidth = bits })
}

// BitErrors is the probability, from 0 to 1, that a bit is received wrongly. A packet with a wrong
// bit is sent again (NET-8).
func BitErrors(p float64) Setting {
	return lasting(func(l *link) { l.bitErrors = min(max(p, 0), 1) })
}

// Retries sets how often a packet is sent again before RMA operations are given up (default 16),
// and how long the link waits before each retry (default 1 µs, at least a nanosecond).
func Retries(n int, wait time.Duration) Setting {
	return lasting(func(l *link) { l.retries, l.retryWait = max(n, 0), max(span(wait), 1) })
}

// CreditDelay makes the receiver slow: credit for messages and notifications that came over this
// link returns that much later.
func CreditDelay(d time.Duration) Setting {
	return lasting(func(l *link) { l.creditDelay = span(d) })
}

// Stall stops the transmitter for a time. Nothing is lost.
func Stall(d time.Duration) Setting {
	return Setting{false, func(l *link) { l.stalled = max(l.stalled, l.net.clock.now()+span(d)) }}
}

var (
	// Down cuts the link: nothing gets through and retries fail, until Up.
	Down = lasting(func(l *link) { l.down = true })

	// Dead declares the link dead. What waits in it is lost and counted, even VELO messages.
	// Send returns ErrNoNode, and RMA fails with FaultLink, until Up.
	Dead = lasting(func(l *link) {
		l.dead = true
		l.abandon(fabric.FaultLink)
	})

	// Up ends Down and Dead.
	Up = lasting(func(l *link) { l.down, l.dead, l.tries = false, false, 0 })
)
