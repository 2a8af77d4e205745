package arp

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// # Theory of operation
//
// A Claim takes one IPv4 address into use and keeps it (RFC 5227).
//
//	         3 probes, nobody answers         2 announcements
//	probing ─────────────────────────► announcing ──────────► held ◄─┐ defend, at most
//	   │                                   │                   │ └───┘ once per 10 s
//	   └────────── conflict ───────────────┴─── second conflict┘
//	                  ▼                          within 10 s
//	                lost
//
// Events are packets ([Claim.Receive]) and time ([Claim.Advance]). Both may return a frame to send.
// A conflict is a packet from another MAC whose sender address is ours. While probing, a probe by
// another MAC for the same address is a conflict, too: two nodes that start together both give way,
// as the RFC says. Lost is final; the owner reports it, and the user chooses another address.
// Frames of our own MAC never conflict. Multicast does not come back to its sender, but a bridge
// may return it.

// Timing holds the constants of RFC 5227, section 1.1.
type Timing struct {
	ProbeWait        time.Duration // longest random delay before the first probe
	ProbeNum         int
	ProbeMin         time.Duration // between probes: random, from Min to Max
	ProbeMax         time.Duration
	AnnounceWait     time.Duration // after the last probe
	AnnounceNum      int
	AnnounceInterval time.Duration
	DefendInterval   time.Duration
}

// RFC5227 suits links that need seconds to come up. A claim takes 4 to 7 s.
var RFC5227 = Timing{
	ProbeWait: time.Second, ProbeNum: 3, ProbeMin: time.Second, ProbeMax: 2 * time.Second,
	AnnounceWait: 2 * time.Second, AnnounceNum: 2, AnnounceInterval: 2 * time.Second,
	DefendInterval: 10 * time.Second,
}

// FabricTiming suits a fabric, which neither loses frames nor waits for spanning trees. An answer
// takes microseconds, or one scheduling delay of a loaded host. A claim takes 300 to 450 ms.
var FabricTiming = Timing{
	ProbeWait: 50 * time.Millisecond, ProbeNum: 3, ProbeMin: 50 * time.Millisecond, ProbeMax: 100 * time.Millisecond,
	AnnounceWait: 200 * time.Millisecond, AnnounceNum: 2, AnnounceInterval: 2 * time.Second,
	DefendInterval: 10 * time.Second,
}

// A ClaimState is the state of a claim.
type ClaimState uint8

// The states. The address may be used in Announcing and Held.
const (
	Probing ClaimState = iota
	Announcing
	Held
	Lost
)

func (s ClaimState) String() string {
	return [...]string{"probing", "announcing", "held", "lost"}[s&3]
}

// A Claim claims one address for one MAC. It belongs to one goroutine.
type Claim struct {
	addr   netip.Addr
	mac    MAC
	timing Timing
	random *rand.Rand

	state    ClaimState
	left     int           // probes or announcements still to send
	due      time.Duration // of the next step; unused when Held or Lost
	defended time.Duration // the last time, if everDef
	everDef  bool
	rival    MAC
}

// NewClaim starts probing for an IPv4 address at time now.
func NewClaim(addr netip.Addr, mac MAC, timing Timing, random *rand.Rand, now time.Duration) *Claim {
	c := &Claim{addr: addr, mac: mac, timing: timing, random: random, left: timing.ProbeNum}
	c.due = now + c.between(0, timing.ProbeWait)
	return c
}

func (c *Claim) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(c.random.Int64N(int64(most-least)+1))
}

// State returns the state of the claim.
func (c *Claim) State() ClaimState { return c.state }

// Rival returns the MAC address of the last conflict.
func (c *Claim) Rival() MAC { return c.rival }

// Next returns when Advance is due; ok is false if nothing is.
func (c *Claim) Next() (at time.Duration, ok bool) {
	return c.due, c.state == Probing || c.state == Announcing
}

// Advance does at most one step that is due. It appends to b the frame to broadcast, if any.
func (c *Claim) Advance(now time.Duration, b []byte) []byte {
	if _, timed := c.Next(); !timed || now < c.due {
		return b
	}
	if c.state == Probing {
		if c.left > 0 {
			c.left--
			c.due = now + c.between(c.timing.ProbeMin, c.timing.ProbeMax)
			if c.left == 0 {
				c.due = now + c.timing.AnnounceWait
			}
			p := probe(c.mac, c.addr)
			return p.AppendFrame(b, Broadcast)
		}
		c.state, c.left = Announcing, c.timing.AnnounceNum
	}
	c.left--
	if c.due = now + c.timing.AnnounceInterval; c.left <= 0 {
		c.state = Held
	}
	return c.announce(b)
}

func (c *Claim) announce(b []byte) []byte {
	p := announcement(c.mac, c.addr)
	return p.AppendFrame(b, Broadcast)
}

// Receive looks at an ARP packet from the fabric. It appends the frame to broadcast in defence, if
// any. The packet goes on to netstack in any case.
func (c *Claim) Receive(p *Packet, now time.Duration, b []byte) []byte {
	if c.state == Lost || p.SenderMAC == c.mac {
		return b
	}
	theirs := p.Sender == c.addr
	if c.state == Probing {
		if theirs || p.Probe() && p.Target == c.addr {
			c.rival, c.state = p.SenderMAC, Lost
		}
		return b
	}
	if !theirs {
		return b
	}
	c.rival = p.SenderMAC
	if c.everDef && now-c.defended < c.timing.DefendInterval {
		c.state = Lost // RFC 5227, 2.4 (b): give up rather than fight for ever
		return b
	}
	c.everDef, c.defended = true, now
	return c.announce(b)
}
