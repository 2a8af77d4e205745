package arp

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var (
	ours   = netip.MustParseAddr("10.2.0.8")
	me     = DefaultPrefix.MAC(8)
	rival  = DefaultPrefix.MAC(9)
	theirs = announcement(rival, ours)
	asks   = probe(rival, ours)
)

// run advances the claim until nothing is due or the limit is reached. It returns the times at
// which frames went out, by kind.
func run(t *testing.T, c *Claim, limit time.Duration) (probes, announcements []time.Duration) {
	t.Helper()
	for {
		at, ok := c.Next()
		if !ok || at > limit {
			return probes, announcements
		}
		if f := c.Advance(at-1, nil); f != nil {
			t.Fatalf("a frame %v before it is due", time.Duration(1))
		}
		f := c.Advance(at, nil)
		if f == nil {
			continue
		}
		p, ok := ParseFrame(f)
		switch {
		case !ok || p.SenderMAC != me || p.Target != ours || MAC(f[:6]) != Broadcast:
			t.Fatalf("bad frame % x", f)
		case p.Probe():
			probes = append(probes, at)
		case p.Announcement():
			announcements = append(announcements, at)
		}
	}
}

func newClaim(seed uint64, tm Timing) *Claim {
	return NewClaim(ours, me, tm, rand.New(rand.NewPCG(seed, 1)), 0)
}

// ARP-1, RFC 5227: three probes, then two announcements, at the given intervals.
func TestClaimTiming(t *testing.T) {
	for seed := range uint64(200) {
		c := newClaim(seed, RFC5227)
		p, a := run(t, c, time.Hour)
		if len(p) != 3 || len(a) != 2 || c.State() != Held {
			t.Fatalf("%d probes, %d announcements, %v", len(p), len(a), c.State())
		}
		if p[0] > time.Second || a[0]-p[2] != 2*time.Second || a[1]-a[0] != 2*time.Second {
			t.Fatalf("probes %v, announcements %v", p, a)
		}
		for _, gap := range []time.Duration{p[1] - p[0], p[2] - p[1]} {
			if gap < time.Second || gap > 2*time.Second {
				t.Fatalf("probes %v", p)
			}
		}
	}
	c := newClaim(1, FabricTiming)
	if _, a := run(t, c, time.Hour); a[0] > 450*time.Millisecond {
		t.Errorf("the fabric's timing takes %v", a[0])
	}
}

func TestClaimConflictWhileProbing(t *testing.T) {
	for name, p := range map[string]Packet{"owner answers": theirs, "somebody else probes": asks} {
		c := newClaim(1, RFC5227)
		run(t, c, 500*time.Millisecond)
		if f := c.Receive(&p, time.Second, nil); f != nil || c.State() != Lost || c.Rival() != rival {
			t.Errorf("%s: %v, frame % x", name, c.State(), f)
		}
		if f := c.Advance(time.Hour, nil); f != nil {
			t.Errorf("%s: a lost claim sends % x", name, f)
		}
	}
	other := probe(rival, netip.MustParseAddr("10.2.0.9"))
	mine := announcement(me, ours)
	c := newClaim(1, RFC5227)
	c.Receive(&other, 0, nil)
	c.Receive(&mine, 0, nil)
	if c.State() != Probing {
		t.Errorf("a probe for another address or our own packet is a conflict: %v", c.State())
	}
}

// RFC 5227, 2.4 (b): the claim defends once, and gives up at a second conflict within 10 s.
func TestClaimDefence(t *testing.T) {
	c := newClaim(1, RFC5227)
	run(t, c, time.Hour)
	now := time.Hour
	if f := c.Receive(&asks, now, nil); f != nil || c.State() != Held {
		t.Fatalf("a probe is netstack's to answer: % x, %v", f, c.State())
	}
	for range 3 { // conflicts far apart are defended for ever
		now += 10 * time.Second
		f := c.Receive(&theirs, now, nil)
		if p, ok := ParseFrame(f); !ok || !p.Announcement() || c.State() != Held {
			t.Fatalf("no defence: % x, %v", f, c.State())
		}
	}
	if f := c.Receive(&theirs, now+10*time.Second-1, nil); f != nil || c.State() != Lost {
		t.Errorf("second conflict within 10 s: % x, %v", f, c.State())
	}
}
