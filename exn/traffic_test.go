package exn

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/mtu"
	"exnet/multicast"
	"exnet/napi"
)

// igmp makes an IGMPv2 message of the kernel.
func igmp(from netip.Addr, kind byte, group netip.Addr) []byte {
	p := []byte{0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, 2, 0, 0}
	p = append(append(p, from.AsSlice()...), group.AsSlice()...)
	p = append(p, 0x94, 4, 0, 0)
	p = append(append(p, kind, 0, 0, 0), group.AsSlice()...)
	binary.BigEndian.PutUint16(p[10:], sum(p[:24]))
	binary.BigEndian.PutUint16(p[26:], sum(p[24:]))
	return p
}

func sum(b []byte) uint16 {
	s := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// MCS-1: multicast reaches the nodes that joined; broadcast reaches all.
func TestGroups(t *testing.T) {
	simulate(t, 3, nil, func(r *rig) {
		const v2Report, v2Leave = 0x16, 0x17
		group := netip.MustParseAddr("239.1.2.3")
		r.n[1].dev.send(igmp(addr4(1), v2Report, group))
		r.settle()
		for _, n := range r.n {
			n.dev.take() // drop the report itself
		}
		if g := r.n[1].Snapshot().Groups; len(g) != 1 || g[0].Addr != group {
			t.Errorf("groups %+v", g)
		}
		for _, n := range []int{100, 1400, 20000} { // eager, eager in many fragments, rendezvous
			p := udp(addr4(0), group, n, n)
			r.n[0].dev.send(p)
			r.settle()
			r.n[1].want(t, p)
			r.n[2].want(t)
		}
		r.n[1].dev.send(igmp(addr4(1), v2Leave, group))
		time.Sleep(multicast.LeaveTime + time.Second)
		for _, n := range r.n {
			n.dev.take()
		}
		r.n[0].dev.send(udp(addr4(0), group, 100, 1))
		r.settle()
		r.n[1].want(t)
		for _, to := range []string{"255.255.255.255", "10.2.0.255", "224.0.0.251", "ff02::1"} {
			a, from := netip.MustParseAddr(to), addr4(0)
			if a.Is6() {
				from = addr6(0)
			}
			p := udp(from, a, 60, 1)
			r.n[0].dev.send(p)
			r.settle()
			r.n[1].want(t, p)
			r.n[2].want(t, p)
			r.n[0].want(t)
		}
	})
}

// On a TAP, frames go by their MAC address, even ARP, and no netstack is involved.
func TestTAP(t *testing.T) {
	simulate(t, 3, func(_ int, c *Config, d *fakeDevice) { d.kind, d.mtu = device.TAP, int(mtu.MaxTAP) }, func(r *rig) {
		if r.n[0].resolver != nil {
			t.Error("netstack on a TAP")
		}
		frame := func(to arp.MAC, n int) []byte {
			f := append(append([]byte(nil), to[:]...), r.n[0].mac[:]...)
			return append(append(f, 0x08, 0x00), udp(addr4(0), addr4(1), n, n)...)
		}
		for _, n := range []int{20, 1000, 65000} {
			f := frame(macOf(2), n)
			r.n[0].dev.send(f)
			r.settle()
			r.n[1].want(t, f)
			r.n[2].want(t)
		}
		request := arp.Packet{Op: arp.Request, SenderMAC: r.n[0].mac, Sender: addr4(0), Target: netip.MustParseAddr("10.2.0.9")}
		for _, f := range [][]byte{request.AppendFrame(nil, arp.Broadcast), frame(arp.Broadcast, 300)} {
			r.n[0].dev.send(f)
			r.settle()
			r.n[1].want(t, f)
			r.n[2].want(t, f)
		}
		r.n[0].dev.send(frame(arp.MAC{0x02, 1, 2, 3, 4, 5}, 10))
		r.settle()
		if n := r.n[0].counter("tx_foreign"); n != 1 {
			t.Errorf("tx_foreign = %d", n)
		}
	})
}

// A receiver that cannot take super-packets or partial checksums gets neither.
func TestOffloads(t *testing.T) {
	for caps := range exteth.CapAll + 1 {
		if caps&exteth.CapChecksum == 0 && caps != 0 || testing.Short() && caps%7 != 0 && caps != exteth.CapChecksum {
			continue
		}
		simulate(t, 2, func(k int, _ *Config, d *fakeDevice) {
			if k == 1 {
				d.caps = caps
			}
		}, func(r *rig) {
			p := udp(addr4(0), addr4(1), 30000, 1)
			r.n[0].dev.sendAs(udpSuper, p)
			r.settle()
			got, bytes := r.n[1].dev.take(), 0
			for _, g := range got {
				if needs, _ := g.vnet.Needs(); needs&^caps != 0 {
					t.Fatalf("a receiver with %v got %+v", caps, g.vnet)
				}
				bytes += len(g.data) - mtu.IPv4Header - mtu.UDPHeader
			}
			whole := len(got) == 1
			if bytes != 30000 || whole != (caps&exteth.CapUSO != 0) {
				t.Errorf("a receiver with %v got %d packets, %d bytes", caps, len(got), bytes)
			}
		})
	}
}

// udpSuper is the virtio header of a super-packet of UDP over IPv4.
var udpSuper = exteth.VNet{Flags: exteth.NeedsChecksum, GSO: exteth.GSOUDP, GSOSize: 1400, CsumStart: 20, CsumOffset: 6}

// While super-packets of UDP arrive, a poll takes as many as a socket holds and asks to yield. For
// others it takes its budget.
func TestBursts(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		n := r.n[1]
		r.n[0].dev.send(udp(addr4(0), addr4(1), 40, 1)) // which resolves its neighbour
		r.settle()
		full, burst, none := napi.Result{Work: 8}, napi.Result{Work: 3, Yield: true}, napi.Result{}
		tcp := exteth.VNet{Flags: exteth.NeedsChecksum, GSO: exteth.GSOTCPv4, GSOSize: 1400, CsumStart: 20, CsumOffset: 16}
		for _, c := range []struct {
			what        string
			poll, other func(int) napi.Result
			size        int
			v           exteth.VNet
			n           int
			want        []napi.Result
		}{
			{"small packets", n.pollVELO, n.pollRMA, 40, exteth.VNet{}, 17, []napi.Result{full, full, {Work: 1}, none}},
			{"small bursts", n.pollVELO, n.pollRMA, 40, udpSuper, 15, []napi.Result{{Work: 8, Yield: true}, burst, burst, {Work: 1, Yield: true}, none}},
			{"small packets again", n.pollVELO, n.pollRMA, 40, exteth.VNet{}, 9, []napi.Result{{Work: 3}, {Work: 6}, none}},
			{"large packets", n.pollRMA, n.pollVELO, 30000, exteth.VNet{}, 17, []napi.Result{full, full, {Work: 1}, none}},
			{"large bursts", n.pollRMA, n.pollVELO, 30000, udpSuper, 15, []napi.Result{{Work: 8, Yield: true}, burst, burst, {Work: 1, Yield: true}, none}},
			{"super-packets of TCP", n.pollRMA, n.pollVELO, 30000, tcp, 9, []napi.Result{{Work: 3}, {Work: 6}, none}},
			{"large packets again", n.pollRMA, n.pollVELO, 30000, exteth.VNet{}, 9, []napi.Result{full, {Work: 1}, none}},
		} {
			var got []napi.Result
			n.ask(func() { // the loop waits meanwhile
				for k := range c.n {
					p := udp(addr4(0), addr4(1), c.size, k)
					if c.v == tcp {
						p[9], p[32] = 6, 5<<4
					}
					r.n[0].dev.sendAs(c.v, p)
				}
				time.Sleep(time.Millisecond)
				if c.size == 30000 { // adverts come first
					for n.pollVELO(8).Work > 0 {
					}
					time.Sleep(time.Millisecond)
				}
				for len(got) < 10 {
					c.other(8) // an unrelated packet
					p := c.poll(8)
					if c.v == udpSuper && p.Bytes < p.Work*c.size {
						// also counts frames of which only a message came
						// by this poll
						t.Errorf("%d %s: %d bytes of %d packets", c.n, c.what, p.Bytes, p.Work)
					}
					p.Bytes = 0
					if got = append(got, p); p.Work == 0 {
						return
					}
				}
			})
			r.settle()
			if !slices.Equal(got, c.want) {
				t.Errorf("%d %s: polls of %+v, want %+v", c.n, c.what, got, c.want)
			}
		}
		n.ask(func() {
			for k := range 6 {
				r.n[0].dev.sendAs(udpSuper, udp(addr4(0), addr4(1), 40, k))
			}
			time.Sleep(time.Millisecond)
			for range 3 {
				if got := n.pollVELO(2).Work; got != 2 {
					t.Errorf("with a budget of 2 a poll took %d", got)
				}
			}
		})
	})
}

// Offloads can be switched while packets flow. They hold for packets sent from then on.
func TestSetOffloads(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		for _, caps := range []exteth.Caps{0, exteth.CapAll, exteth.CapChecksum, exteth.CapAll} {
			if err := r.n[1].SetOffloads(caps); err != nil {
				t.Fatal(err)
			}
			r.settle()
			if s := r.n[0].Snapshot(); s.Peers[0].Takes != caps.String() || r.n[1].Snapshot().Settings.Offloads != caps.String() {
				t.Errorf("the other takes %s, want %v", s.Peers[0].Takes, caps)
			}
			r.n[0].dev.sendAs(udpSuper, udp(addr4(0), addr4(1), 30000, 1))
			r.settle()
			if got := len(r.n[1].dev.take()); (got == 1) != (caps == exteth.CapAll) || got == 0 {
				t.Errorf("a receiver with %v got %d packets", caps, got)
			}
		}
		// Offloads may also change by themselves.
		d := r.n[1].dev
		for _, caps := range []exteth.Caps{exteth.CapAll &^ exteth.CapBig, exteth.CapAll} {
			r.n[1].ask(func() { d.caps = caps })
			d.changed(r.n[1].cfg.Addresses)
			r.settle()
			if s := r.n[0].Snapshot(); s.Peers[0].Takes != caps.String() {
				t.Errorf("the other takes %s, want %v", s.Peers[0].Takes, caps)
			}
		}
	})
}

// What the kernel refuses is counted by reason and stops nothing.
func TestRefused(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		d := r.n[1].dev
		for _, err := range []error{device.ErrDown, device.ErrRefused} {
			d.mu.Lock()
			d.fail = err
			d.mu.Unlock()
			r.n[0].dev.send(udp(addr4(0), addr4(1), 10, 1), udp(addr4(0), addr4(1), 5000, 1))
			r.settle()
		}
		d.mu.Lock()
		d.fail = nil
		d.mu.Unlock()
		s := r.n[1].Snapshot()
		if s.Counters["rx_refused"] != 4 || s.Counters["rx_refused_down"] != 2 || s.Counters["rx_refused_kernel"] != 2 || s.Statistics.RXDropped != 4 {
			t.Errorf("%v", s.Counters)
		}
		r.n[0].dev.send([]byte{0x00, 1, 2}, []byte{0x45}, []byte{}, make([]byte, 60000))
		p := udp(addr4(0), addr4(1), 10, 2)
		r.n[0].dev.send(p)
		r.settle()
		r.n[1].want(t, p)
		if n := r.n[0].counter("tx_not_ip"); n != 4 {
			t.Errorf("tx_not_ip = %d", n)
		}
	})
}

// A capture shows each frame once on each side, and whether it was eager.
func TestCapture(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		var sent, received []CaptureFrame
		stop0 := r.n[0].Capture(func(c *CaptureFrame) {
			if c.Sent && !c.Multicast && c.Frame[12] == 8 && c.Frame[13] == 0 {
				sent = append(sent, *c)
			}
		})
		stop1 := r.n[1].Capture(func(c *CaptureFrame) {
			if !c.Sent && !c.Multicast && c.Frame[13] == 0 {
				received = append(received, *c)
			}
		})
		r.n[0].dev.send(udp(addr4(0), addr4(1), 10, 1), udp(addr4(0), addr4(1), 5000, 2))
		r.settle()
		stop0()
		stop1()
		r.n[0].dev.send(udp(addr4(0), addr4(1), 10, 1)) // after the capture: not captured
		r.settle()
		for _, all := range [][]CaptureFrame{sent, received} {
			if len(all) != 2 || all[0].Rendezvous || !all[1].Rendezvous || len(all[1].Frame) != mtu.MACHeader+mtu.IPv4Header+mtu.UDPHeader+5000 {
				t.Fatalf("%+v", all)
			}
		}
		if sent[0].Peer != 2 || received[0].Peer != 1 {
			t.Errorf("peers %d and %d", sent[0].Peer, received[0].Peer)
		}
	})
}

// Any goroutine may take a snapshot at any time.
func TestSnapshotWhileRunning(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		var looking sync.WaitGroup
		for range 4 {
			looking.Go(func() {
				for range 50 {
					if s := r.n[0].Snapshot(); s.Name != "fake0" || len(s.Peers) != 1 || !s.Peers[0].Met || len(s.Addresses) != 3 {
						t.Errorf("%+v", s)
						return
					}
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		for k := range 500 {
			r.n[0].dev.send(udp(addr4(0), addr4(1), 500, k))
			time.Sleep(20 * time.Microsecond)
		}
		looking.Wait()
		r.settle()
		if n := len(r.n[1].dev.take()); n != 500 {
			t.Errorf("%d packets arrived", n)
		}
	})
}

// A node that no longer polls loses only its own packets.
func TestStalledPeer(t *testing.T) {
	simulate(t, 4, nil, func(r *rig) {
		node, err := r.net.Attach(9)
		if err != nil {
			t.Fatal(err)
		}
		dead, err := exteth.New(node, exteth.Config{Receive: func(*exteth.Frame) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		r.settle()
		n := r.n[0]
		stalled := netip.MustParseAddr("10.2.0.99")
		n.cache.OnNeighborAdded(0, entry(stalled, macOf(9)))
		for k := 1; k < 4; k++ { // resolve it
			n.dev.send(udp(addr4(0), addr4(k), 10, 0))
			r.settle()
			r.n[k].dev.take()
		}
		// Packets to all nodes, the dead one included, in rounds of 100 µs.
		rounds := 20_000
		if testing.Short() {
			rounds = 4_000
		}
		lost, late := 0, 0
		for k := range rounds {
			n.dev.send(udp(addr4(0), stalled, 3000, k))
			if k%4 == 0 {
				n.dev.send(udp(addr4(0), addr4(1+k/4%3), 3000, k))
			}
			time.Sleep(100 * time.Microsecond)
			if k%4 == 0 {
				if got := r.n[1+k/4%3].dev.take(); len(got) == 0 {
					late++
				} else {
					lost -= len(got) - 1
				}
			}
		}
		time.Sleep(time.Second)
		for k := 1; k < 4; k++ {
			lost -= len(r.n[k].dev.take())
		}
		lost += late
		sent := rounds / 4
		t.Logf("of %d packets %d were late, %d lost", sent, late, lost)
		// Until it is found dead, it delays all others once.
		if most := int(exteth.SoleQueueTime / (400 * time.Microsecond)); lost > 0 || late > most+5 {
			t.Errorf("of %d packets to nodes that live %d were late and %d lost", sent, late, lost)
		}
		n.ask(func() {
			if n.eth.Blocked() {
				t.Error("still blocked")
			}
		})
		_ = dead.Close()
		_ = node.Close()
	})
}

func entry(a netip.Addr, m arp.MAC) stack.NeighborEntry {
	return stack.NeighborEntry{Addr: tcpip.AddrFromSlice(a.AsSlice()), LinkAddr: tcpip.LinkAddress(m[:]), State: stack.Static}
}

// Frames of a hostile node, of every kind and content, end in counters.
func TestHostileFrames(t *testing.T) {
	// More frames brought the race detector's runtime down, inside itself (Go 1.26).
	const frames = 200
	simulate(t, 2, nil, func(r *rig) {
		raw := newRaw(t, r.net, 9, nil)
		defer raw.stop()
		random := rand.New(rand.NewPCG(1, 2))
		for range frames {
			raw.send(hostile(random, raw.mac()))
			time.Sleep(10 * time.Microsecond)
		}
		r.settle()
		r.n[0].dev.take()
		r.n[1].dev.take()
		time.Sleep(30 * time.Second) // by then every address that it claimed is defended
		for _, p := range [][]byte{udp(addr4(0), addr4(1), 1000, 1), udp(addr6(0), addr6(1), 100, 1)} {
			r.n[0].dev.send(p)
			r.settle()
			r.n[1].want(t, p)
		}
		for _, n := range r.n {
			if n.cache.Len() > 512 {
				t.Errorf("%d neighbours", n.cache.Len())
			}
		}
	})
}

// hostile makes a frame: random bytes, or an ARP or discovery message with random bytes in it.
func hostile(r *rand.Rand, from arp.MAC) []byte {
	to := [...]arp.MAC{macOf(1), macOf(2), arp.Broadcast, {0x33, 0x33, 0, 0, 0, 1}, {1, 0, 0x5e, 0, 0, 1}}[r.IntN(5)]
	f := append(append([]byte(nil), to[:]...), from[:]...)
	switch r.IntN(5) {
	case 0:
		p := arp.Packet{Op: arp.Op(1 + r.IntN(2)), SenderMAC: from, Sender: addr4(r.IntN(4)), TargetMAC: macOf(1), Target: addr4(r.IntN(4))}
		f = p.AppendFrame(nil, to)
	case 1:
		f = arp.AppendUnsolicitedNA(nil, from, addr6(r.IntN(3)))
		copy(f, to[:])
	case 2:
		f = multicast.AppendMLDQuery(nil, from, arp.LinkLocal(from))
	case 3:
		f = append(append(f, 0x08, 0x00), udp(addr4(r.IntN(3)), addr4(r.IntN(3)), r.IntN(3000), 1)...)
	default:
		f = binary.BigEndian.AppendUint16(f, [...]uint16{0x0800, 0x0806, 0x86dd, uint16(r.Uint32())}[r.IntN(4)])
		for range r.IntN(200) {
			f = append(f, byte(r.Uint32()))
		}
	}
	for range r.IntN(4) {
		f[12+r.IntN(len(f)-12)] = byte(r.Uint32())
	}
	return f[:14+r.IntN(len(f)-13)]
}
