package exn

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"exnet/arp"
	"exnet/mtu"
)

// ARP-1, NDP-1: a node that wants the address of another learns which node has it, and does not
// disturb that node.
func TestConflict(t *testing.T) {
	for name, prefix := range map[string]netip.Prefix{
		"IPv4": netip.PrefixFrom(addr4(0), 24),
		"IPv6": netip.PrefixFrom(addr6(0), 64),
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 2, nil, func(r *rig) {
				n := r.start(2, func(_ int, c *Config, _ *fakeDevice) { c.Addresses = []netip.Prefix{prefix} })
				err := <-n.err
				var conflict *ConflictError
				if !errors.As(err, &conflict) || !errors.Is(err, ErrConflict) || conflict.Addr != prefix.Addr() {
					t.Errorf("Run: %v", err)
				}
				if prefix.Addr().Is4() && (!conflict.Known || conflict.Node != 1) {
					t.Errorf("rival: %+v", conflict)
				}
				n.err <- nil
				p := udp(r.n[1].own(prefix), prefix.Addr(), 100, 1)
				r.n[1].dev.send(p)
				r.settle()
				r.n[0].want(t, p)
			})
		})
	}
}

// own is the node's address in the family of a prefix.
func (n *rigNode) own(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return n.addresses[0].prefix.Addr()
	}
	return n.addresses[1].prefix.Addr()
}

// An address in use is defended, and no node can take it away, whatever it tries.
func TestDefence(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		raw := newRaw(t, r.net, 9, nil)
		defer raw.stop()
		claim := arp.Packet{Op: arp.Request, SenderMAC: raw.mac(), Sender: addr4(0), Target: addr4(0)}
		for range 50 {
			raw.send(claim.AppendFrame(nil, arp.Broadcast))
			time.Sleep(500 * time.Millisecond)
		}
		if n := r.n[0].counter("address_conflicts"); n < 3 {
			t.Errorf("%d conflicts", n)
		}
		defended := 0
		for _, f := range raw.take() {
			if p, ok := arp.ParseFrame(f); ok && p.Announcement() && p.Sender == addr4(0) && p.SenderMAC == macOf(1) {
				defended++
			}
		}
		if defended < 3 || defended > 10 {
			t.Errorf("defended %d times in 25 s", defended)
		}
		// A claim in the name of another node is not believed.
		claim.SenderMAC = macOf(7)
		raw.send(claim.AppendFrame(nil, arp.Broadcast))
		r.settle()
		if n := r.n[0].counter("rx_spoofed"); n != 1 {
			t.Errorf("rx_spoofed = %d", n)
		}
		p := udp(addr4(1), addr4(0), 10, 1)
		time.Sleep(20 * time.Second) // until the last announcement
		r.n[1].dev.send(p)
		r.settle()
		r.n[0].want(t, p)
	})
}

// Packets to an address without a node wait for at most 3 s, whole, and their sender gets an error.
func TestUnreachable(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		n := r.n[0]
		for _, to := range []netip.Addr{netip.MustParseAddr("10.2.0.200"), netip.MustParseAddr("fd00::200")} {
			from := addr4(0)
			if to.Is6() {
				from = addr6(0)
			}
			for k := range arp.PendingPackets + 5 {
				n.dev.send(udp(from, to, 3000, k))
			}
			time.Sleep(arp.PendingWait + 100*time.Millisecond)
			got := n.dev.take()
			if len(got) != arp.PendingPackets {
				t.Fatalf("%d answers, want %d", len(got), arp.PendingPackets)
			}
			for _, p := range got {
				kind, code := p.data[mtu.IPv4Header], p.data[mtu.IPv4Header+1]
				if to.Is6() {
					kind, code = p.data[mtu.IPv6Header], p.data[mtu.IPv6Header+1]
				}
				if to.Is4() && (kind != 3 || code != 1) || to.Is6() && (kind != 1 || code != 3) {
					t.Fatalf("answer %x", p.data)
				}
			}
		}
		if full := n.counter("tx_pending_full"); full != 10 {
			t.Errorf("tx_pending_full = %d", full)
		}
		if sum := n.counter("tx_unreachable") + n.counter("tx_pending_expired"); sum != 2*arp.PendingPackets {
			t.Errorf("%d packets given up", sum)
		}
		if n.pendingLen != 0 {
			t.Errorf("%d bytes still wait", n.pendingLen)
		}
		// A scan with long packets does not hold more than its share of memory.
		for k := range 1000 {
			n.dev.send(udp(addr4(0), netip.AddrFrom4([4]byte{10, 2, 1 + byte(k/250), byte(k)}), 60000, k))
		}
		r.settle()
		n.ask(func() {
			if n.pendingLen > pendingMemory {
				t.Errorf("%d bytes wait", n.pendingLen)
			}
		})
		if n.counter("tx_pending_memory") == 0 {
			t.Error("no packet was refused")
		}
	})
}

// 24 hours of traffic of every kind: neighbours expire and are probed, and that loses no packet.
func TestDay(t *testing.T) {
	hours := 24
	if testing.Short() {
		hours = 2
	}
	simulate(t, 3, nil, func(r *rig) {
		end := time.Now().Add(time.Duration(hours) * time.Hour)
		for k := 0; time.Now().Before(end); k++ {
			// Node 0 sends to node 1 without an answer, and exchanges packets with node
			// 2.
			one, there, back := udp(addr4(0), addr4(1), 100, k), udp(addr6(0), addr6(2), 1000, k), udp(addr6(2), addr6(0), 1000, k)
			r.n[0].dev.send(one, there)
			r.n[2].dev.send(back)
			r.settle()
			r.n[1].want(t, one)
			r.n[2].want(t, there)
			r.n[0].want(t, back)
			time.Sleep([]time.Duration{time.Second, 20 * time.Second, 47 * time.Second, 6 * time.Minute}[k%4])
		}
		for _, n := range r.n {
			if s := n.Snapshot(); s.Statistics.TXDropped+s.Statistics.TXErrors+s.Statistics.RXErrors != 0 {
				t.Errorf("node %d lost packets: %v", s.Node, s.Counters)
			}
		}
	})
}

// A node that crashed and came back is reached again within a second by nodes that never stopped
// sending.
func TestRestart(t *testing.T) {
	simulate(t, 3, nil, func(r *rig) {
		old := r.n[1]
		for range 20 {
			r.n[0].dev.send(udp(addr4(0), addr4(1), 50, 1), udp(addr6(0), addr6(1), 50, 1))
			time.Sleep(5 * time.Millisecond)
		}
		old.node.Close()
		<-old.err
		old.leave(t)
		time.Sleep(300 * time.Millisecond)
		for range 10 {
			r.n[0].dev.send(udp(addr4(0), addr4(1), 50, 2), udp(addr6(0), addr6(1), 50, 2))
			time.Sleep(5 * time.Millisecond)
		}
		back := time.Now()
		n := r.start(1, func(_ int, _ *Config, d *fakeDevice) { d.adopted = true })
		var first4, first6 time.Duration
		for k := 0; k < 200 && (first4 == 0 || first6 == 0); k++ {
			r.n[0].dev.send(udp(addr4(0), addr4(1), 50, 3), udp(addr6(0), addr6(1), 50, 3))
			time.Sleep(10 * time.Millisecond)
			for _, p := range n.dev.take() {
				if p.data[0]>>4 == 4 && first4 == 0 {
					first4 = time.Since(back)
				} else if p.data[0]>>4 == 6 && first6 == 0 {
					first6 = time.Since(back)
				}
			}
		}
		if first4 == 0 || first6 == 0 || max(first4, first6) > time.Second {
			t.Errorf("reached again after %v and %v", first4, first6)
		}
		t.Logf("reached again after %v and %v", first4, first6)
	})
}

// Two nodes that ask for each other at the same moment find each other.
func TestMutual(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		one, two := udp(addr4(0), addr4(1), 10, 1), udp(addr4(1), addr4(0), 10, 2)
		r.n[0].dev.send(one)
		r.n[1].dev.send(two)
		r.settle()
		r.n[1].want(t, one)
		r.n[0].want(t, two)
	})
}

// An address that moved to another node is found there at once.
func TestMove(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		a := netip.MustParseAddr("10.2.0.77")
		first, second := newRaw(t, r.net, 8, arpReply(macOf(8))), newRaw(t, r.net, 9, nil)
		defer first.stop()
		defer second.stop()
		r.n[0].dev.send(udp(addr4(0), a, 10, 1))
		r.settle()
		first.answerWith(nil)
		second.answerWith(arpReply(second.mac()))
		move := arp.Packet{Op: arp.Request, SenderMAC: second.mac(), Sender: a, Target: a}
		second.send(move.AppendFrame(nil, arp.Broadcast))
		r.settle()
		first.take()
		second.take()
		r.n[0].dev.send(udp(addr4(0), a, 10, 2))
		r.settle()
		if f, s := first.packets(), second.packets(); f != 0 || s != 1 {
			t.Errorf("%d frames to the old node, %d to the new", f, s)
		}
	})
}

// 10,000 neighbours come and go, and no memory grows.
func TestManyNeighbours(t *testing.T) {
	changes := 10_000
	if testing.Short() {
		changes = 2_000
	}
	simulate(t, 1, nil, func(r *rig) {
		raw := newRaw(t, r.net, 9, arpReply(macOf(9)))
		defer raw.stop()
		n := r.n[0]
		settled := func() (goroutines int, heap uint64) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		reached := 0
		visit := func(from, to int) {
			for k := from; k < to; k++ {
				n.dev.send(udp(addr4(0), netip.AddrFrom4([4]byte{10, 3, byte(k >> 8), byte(k)}), 20, k))
				time.Sleep(3 * time.Millisecond)
				reached += raw.packets()
			}
		}
		visit(0, 1000)
		time.Sleep(time.Minute)
		goroutines, heap := settled()
		visit(1000, changes)
		time.Sleep(time.Minute)
		if reached != changes {
			t.Errorf("%d of %d neighbours reached", reached, changes)
		}
		after, grown := settled()
		if after > goroutines+2 {
			t.Errorf("%d goroutines, were %d", after, goroutines)
		}
		if grown > heap+heap/4+1<<20 {
			t.Errorf("heap %d KiB, was %d", grown>>10, heap>>10)
		}
		if c := n.cache.Len(); c > 512 {
			t.Errorf("%d entries in the cache", c)
		}
		n.ask(func() {
			if n.pending.Len() != 0 || n.pendingLen != 0 {
				t.Errorf("%d neighbours, %d bytes pending", n.pending.Len(), n.pendingLen)
			}
		})
	})
}

// A route leads to its gateway, unless the link has the longer prefix.
func TestRoutes(t *testing.T) {
	simulate(t, 2, func(k int, c *Config, _ *fakeDevice) {
		c.Routes = []Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: addr4(1)},
			{Destination: netip.MustParsePrefix("10.2.0.0/16"), Gateway: netip.MustParseAddr("10.2.0.99")},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: addr6(1)},
		}
	}, func(r *rig) {
		for _, p := range [][]byte{
			udp(addr4(0), netip.MustParseAddr("192.0.2.1"), 10, 1),
			udp(addr6(0), netip.MustParseAddr("2001:db8::1"), 10, 2),
			udp(addr4(0), addr4(1), 10, 3),
		} {
			r.n[0].dev.send(p)
			r.settle()
			r.n[1].want(t, p)
		}
	})
}

// MTU-1: a packet too big for the receiver is answered with an ICMP error with the receiver's MTU.
func TestTooBig(t *testing.T) {
	simulate(t, 2, func(k int, _ *Config, d *fakeDevice) {
		if k == 1 {
			d.mtu = 1500
		}
	}, func(r *rig) {
		r.n[0].dev.send(udp(addr4(0), addr4(1), 1472, 1))
		r.settle()
		if n := len(r.n[1].dev.take()); n != 1 {
			t.Fatalf("%d packets of 1500 bytes", n)
		}
		r.n[0].dev.send(udp(addr4(0), addr4(1), 1473, 1))
		r.settle()
		got := r.n[0].dev.take()
		if len(got) != 1 || got[0].data[20] != 3 || got[0].data[21] != 4 || int(got[0].data[26])<<8|int(got[0].data[27]) != 1500 {
			t.Fatalf("answer: %s", describe(got))
		}
		if addr, _ := netip.AddrFromSlice(got[0].data[16:20]); addr != addr4(0) {
			t.Errorf("answered to %v", addr)
		}
		r.n[0].dev.send(udp(addr6(0), addr6(1), 1453, 1))
		r.settle()
		got = r.n[0].dev.take()
		if len(got) != 1 || got[0].data[40] != 2 || int(got[0].data[46])<<8|int(got[0].data[47]) != 1500 {
			t.Fatalf("answer: %s", describe(got))
		}
		if n := r.n[0].counter("icmp_too_big"); n != 2 {
			t.Errorf("icmp_too_big = %d", n)
		}
	})
}
