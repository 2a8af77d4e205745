package exteth

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/multicast"
)

// ETH-1, EAG-1, RDV-1, RDV-2: frames of every size arrive whole, once and unpadded, in the expected
// number of messages, on every path.
func TestETH1Sizes(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newNet(t, 2, func(i int, d *double, c *Config) {
				set(i, d, c)
				c.MTU = mtu.Link(100000)
			})
			sizes := []int{14, 42, 119, 120, 121, 240, 241, 300, 480, 481, 495, 496, 497, 992, 1514, 9014, 65549, 65550, 100014}
			for i, n := range sizes {
				f := ethernet(node(1), 0, n, i)
				before := s.w.nodes[0].sends
				s.mustSend(0, f, VNet{})
				messages := (n + 119) / 120
				if n > 480 {
					messages = 1
				}
				if got := s.w.nodes[0].sends - before; got != messages {
					t.Errorf("%d bytes took %d messages, want %d", n, got, messages)
				}
				s.run()
				if len(s.got[1]) != i+1 || !bytes.Equal(s.got[1][i].data, f) || s.got[1][i].from != 0 {
					t.Fatalf("%d bytes did not arrive", n)
				}
			}
			s.want(0, map[Counter]uint64{TXPackets: 19, TXEager: 9, TXRendezvous: 10, TXAdverts: 10})
			s.want(1, map[Counter]uint64{RXPackets: 19, RXEager: 9, RXRendezvous: 10, RXAdverts: 10, RXGets: 10})
			s.idle()
		})
	}
}

// EAG-1: the thesis' example: 300 bytes become fragments of 120, 120 and 60.
func TestEAG1Fragments(t *testing.T) {
	s := newNet(t, 2, nil)
	f := ethernet(node(1), 0, 300, 1)
	s.mustSend(0, f, VNet{})
	if len(s.e[0].tx.free) != DefaultBuffers {
		t.Error("EAG-2: the buffer is not free after the send")
	}
	var lengths []int
	for i, m := range s.w.nodes[1].ring {
		lengths = append(lengths, m.Status.Len())
		if m.Status.UserTag() != uint8(i) || !bytes.Equal(m.Payload(), f[i*120:min(i*120+120, 300)]) {
			t.Errorf("fragment %d has index %d", i, m.Status.UserTag())
		}
	}
	if !slices.Equal(lengths, []int{120, 120, 60}) {
		t.Errorf("fragments of %v bytes", lengths)
	}
	s.run()
	s.idle()
}

// EAG-1: the threshold is inclusive and configurable.
func TestEAG1Threshold(t *testing.T) {
	for _, threshold := range []int{120, 300, 480, MaxEager} {
		s := newNet(t, 2, func(_ int, _ *double, c *Config) { c.Eager = threshold })
		s.mustSend(0, ethernet(node(1), 0, threshold, 1), VNet{Flags: NeedsChecksum, CsumStart: 34, CsumOffset: 16})
		s.mustSend(0, ethernet(node(1), 0, threshold+1, 1), VNet{})
		s.run()
		s.want(0, map[Counter]uint64{TXEager: 1, TXRendezvous: 1})
		s.want(1, map[Counter]uint64{RXPackets: 2})
		s.idle()
	}
	for _, bad := range []Config{{Eager: -1}, {Eager: MaxEager + 1}, {MulticastEager: MaxMulticastEager + 1}, {Buffers: 3}, {BufferSize: 4096}, {MTU: 60}, {Prefix: arp.Prefix{1}}} {
		bad.Receive = func(*Frame) error { return nil }
		if _, err := New(newWire(1).nodes[0], bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	if _, err := New(newWire(1).nodes[0], Config{}); err == nil {
		t.Error("an engine without a receiver is accepted")
	}
}

// EAG-3: fragments that cannot form a frame are dropped and counted by reason.
func TestEAG3Fragments(t *testing.T) {
	s := newNet(t, 2, nil)
	velo := doubleVELO{double: s.w.nodes[0]}
	piece := func(tag, index uint8, n int) {
		f := ethernet(node(1), 0, max(n, 14), 0)
		if err := velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: 1}, MTT: tag, UserTag: index}, f[:n]); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, want map[Counter]uint64) {
		t.Helper()
		s.run()
		for c := RXEager; c <= RXRefused; c++ {
			if c == RXFragments {
				continue
			}
			if got := s.e[1].stats.counters[c].Swap(0); got != want[c] {
				t.Errorf("%s: %v = %d, want %d", name, c, got, want[c])
			}
		}
	}
	check("start", map[Counter]uint64{})
	piece(tagFrag, 1, 120)
	piece(tagFragLast, 2, 20)
	check("no beginning", nil)
	piece(tagFrag, 0, 120)
	piece(tagFragLast, 2, 20)
	check("a gap", map[Counter]uint64{RXFragmentLost: 1})
	piece(tagFrag, 0, 120)
	piece(tagFrag, 0, 120)
	piece(tagFragLast, 1, 20)
	check("begun again", map[Counter]uint64{RXFragmentLost: 1, RXEager: 1})
	piece(tagFragLast, 0, 13)
	check("too short", map[Counter]uint64{RXBadMessage: 1})
	piece(tagFragLast|tagVNet, 0, 9)
	check("no virtio header", map[Counter]uint64{RXBadMessage: 1})
	for i := range uint8(64) {
		piece(tagFrag, i, 120)
	}
	check("no end", map[Counter]uint64{RXFragmentLost: 1})
	for tag := range uint8(16) {
		switch tag {
		case tagFrag, tagFragLast, tagFrag | tagVNet, tagFragLast | tagVNet:
		default:
			piece(tag, 0, 1)
			check(fmt.Sprintf("tag %d", tag), map[Counter]uint64{RXBadMessage: 1})
		}
	}
	piece(tagFrag, 0, 120)
	s.run()
	s.now += ReassemblyTime
	check("unfinished", map[Counter]uint64{RXReassemblyExpired: 1})
	s.idle()
}

// MAC-1: a frame for an address that is no node of this fabric is not sent.
func TestMAC1Destinations(t *testing.T) {
	s := newNet(t, 2, nil)
	for _, c := range []struct {
		to   arp.MAC
		err  error
		want Counter
	}{
		{arp.MAC{2, 0, 0, 0, 0, 1}, ErrForeign, TXForeign},
		{node(0), ErrForeign, TXSelf},
		{node(77), ErrNoNode, TXNoNode},
	} {
		if err := s.send(0, ethernet(c.to, 0, 60, 1), VNet{}); err != c.err {
			t.Errorf("%v: %v", c.to, err)
		}
		s.want(0, map[Counter]uint64{c.want: 1})
	}
	b := s.e[0].Borrow()
	if err := s.e[0].Send(b, 0, 13, VNet{}, 0); err != ErrFrame {
		t.Errorf("a frame of 13 bytes: %v", err)
	}
	b = s.e[0].Borrow()
	if err := s.e[0].Send(b, len(b.Bytes)-10, 60, VNet{}, 0); err != ErrFrame {
		t.Errorf("a frame beyond its buffer: %v", err)
	}
	// A frame for another MAC address is not for us.
	_ = doubleVELO{double: s.w.nodes[0]}.Send(fabric.VELODescriptor{To: fabric.Address{Node: 1}, MTT: tagFragLast}, ethernet(node(5), 0, 60, 1))
	s.run()
	s.want(1, map[Counter]uint64{RXForeign: 1, RXPackets: 0})
	s.idle()
}

// MCS-1, MCS-2: short multicast frames are sent once, and each member fetches long ones. The filter
// drops unwanted groups. No frame returns to its sender.
func TestMCS2Group(t *testing.T) {
	group := arp.MAC{1, 0, 0x5e, 1, 2, 3}
	g := multicast.GroupOf(group)
	s := newNet(t, 4, func(i int, d *double, c *Config) {
		d.mapped = i%2 == 0
		if i > 0 && i < 3 {
			d.groups |= 1 << g
		}
		if i == 2 { // joins a group that collides with the same fabric group
			c.Accept = func(m arp.MAC) bool { return m == arp.Broadcast }
		}
	})
	for _, n := range []int{60, 120, 1514, 1515, 40000} {
		for _, to := range []arp.MAC{group, arp.Broadcast} {
			f := ethernet(to, 0, n, n)
			before := s.w.nodes[0].sends
			s.mustSend(0, f, VNet{})
			members := 1
			switch {
			case n <= 1514:
				members = (n + 117) / 118
			case to == group:
				members = 2
			default:
				members = 3
			}
			if got := s.w.nodes[0].sends - before; got != members {
				t.Errorf("%d bytes to %v took %d messages, want %d", n, to, got, members)
			}
			s.run()
			for i := range 4 {
				want := i == 1 || i > 1 && to == arp.Broadcast
				got := len(s.got[i]) == 1 && bytes.Equal(s.got[i][0].data, f)
				if got != want {
					t.Errorf("%d bytes to %v: node %d got %d frames", n, to, i, len(s.got[i]))
				}
				s.got[i] = nil
			}
		}
	}
	s.want(0, map[Counter]uint64{TXMulticast: 10, TXPackets: 10})
	s.want(2, map[Counter]uint64{RXFiltered: 5, RXMulticast: 5})
	s.idle()
}

// A member with a full ring loses single messages of a group. It never gets a mixture of two
// frames.
func TestMCS1LostFragments(t *testing.T) {
	for lost := 1; lost < 12; lost++ {
		s := newNet(t, 2, nil)
		s.mustSend(0, ethernet(arp.Broadcast, 0, 472, 0), VNet{}) // 4 fragments
		s.w.nodes[1].ring = s.w.nodes[1].ring[:2]                 // two have arrived
		s.w.nodes[1].loseGroup = lost
		for i := range 4 {
			s.mustSend(0, ethernet(arp.Broadcast, 0, 472, i+1), VNet{})
		}
		s.run()
		if len(s.got[1]) != 4-(lost+3)/4 {
			t.Errorf("%d messages lost: %d frames", lost, len(s.got[1]))
		}
		for i, r := range s.got[1] {
			if !bytes.Equal(r.data, ethernet(arp.Broadcast, 0, 472, 5-len(s.got[1])+i)) {
				t.Errorf("%d messages lost: frame %d is a mixture", lost, i)
			}
		}
		s.idle()
	}
}

// Frames of a node that leaves are dropped. A restarted node starts afresh.
func TestNodeLeavesAndRestarts(t *testing.T) {
	s := newNet(t, 2, func(i int, d *double, c *Config) { d.hold = true })
	for i := range 10 {
		s.mustSend(0, ethernet(node(1), 0, 1000, i), VNet{})
		s.mustSend(1, ethernet(node(0), 1, 1000, i), VNet{})
		s.mustSend(1, ethernet(node(0), 1, 60, i), VNet{})
	}
	s.mustSend(0, ethernet(node(1), 0, 300, 1), VNet{})
	s.run()
	s.e[0].NodeEvent(fabric.Event{Node: 1}, s.now)
	if n := s.e[0].sent.expecting() + s.e[0].gets.expecting() + s.e[0].active; n != 0 {
		t.Errorf("%d things are left of a node that left", n)
	}
	s.want(0, map[Counter]uint64{TXNodeLeft: 10, RXNodeLeft: 20})
	if err := s.send(0, ethernet(node(1), 0, 60, 1), VNet{}); err != ErrNoNode {
		t.Errorf("send to a node that left: %v", err)
	}

	s = newNet(t, 2, func(i int, d *double, c *Config) { d.hold = true })
	s.mustSend(0, ethernet(node(1), 0, 1000, 1), VNet{})
	s.mustSend(0, ethernet(node(1), 0, 300, 1), VNet{})
	s.run()
	s.e[1].Close()
	s.w.nodes[1].ring, s.w.nodes[1].held = nil, nil
	s.w.nodes[1].hold = false
	s.got[1] = nil
	s.e[1] = newEngine(t, s.w.nodes[1], Config{Instance: 99, Caps: CapTSO4, MTU: 1500, Receive: s.e[1].cfg.Receive})
	s.run()
	s.want(0, map[Counter]uint64{TXNodeLeft: 1})
	if p, _ := s.e[0].Peer(1); p.Caps != CapTSO4 || p.MTU != 1500 || !p.Met {
		t.Errorf("the new engine is %+v", p)
	}
	s.mustSend(0, ethernet(node(1), 0, 1000, 7), VNet{})
	s.run()
	if len(s.got[1]) != 1 {
		t.Errorf("%d frames", len(s.got[1]))
	}
	s.idle()
}

// A receiver can change what it takes. Its peers are told, and then complete what it no longer
// takes, or stop completing. Full rings only delay that.
func TestSetCaps(t *testing.T) {
	s := newNet(t, 2, func(i int, d *double, c *Config) { d.mapped = true })
	for round, caps := range []Caps{CapChecksum, CapAll, 0, CapAll} {
		s.w.nodes[0].ringSize = 1
		s.mustSend(1, ethernet(node(0), 1, 60, 1), VNet{}) // fills the ring
		s.e[1].SetCaps(caps)
		s.run()
		if p, _ := s.e[0].Peer(1); p.Caps != caps || !p.Met {
			t.Errorf("round %d: the peer is %+v, want %v", round, p, caps)
		}
		sup := super{payload: 5000, size: 1000, to: node(1), flags: 0x10}
		f, v := sup.frame()
		s.got[1] = nil
		s.mustSend(0, f, v)
		s.run()
		if needs, _ := v.Needs(); (needs&^caps == 0) != (len(s.got[1]) == 1) || len(s.got[1]) == 0 {
			t.Errorf("round %d: a receiver with %v got %d frames", round, caps, len(s.got[1]))
		}
	}
	sends := s.w.nodes[1].sends
	s.e[1].SetCaps(CapAll)
	if s.w.nodes[1].sends != sends {
		t.Error("what has not changed is told")
	}
	s.idle()
}

// Nodes of different versions exchange nothing, and count that.
func TestVersions(t *testing.T) {
	s := newNet(t, 2, nil)
	velo := doubleVELO{double: s.w.nodes[1]}
	h := hello{version: Version + 1, answer: true, mtu: 1500}
	_ = velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: 0}, MTT: tagHello}, h.append(nil))
	s.run()
	if err := s.send(0, ethernet(node(1), 0, 60, 1), VNet{}); err != ErrNoNode {
		t.Errorf("send to another version: %v", err)
	}
	s.mustSend(1, ethernet(node(0), 1, 60, 1), VNet{})
	s.run()
	s.want(0, map[Counter]uint64{TXVersion: 1, RXVersion: 1, RXPackets: 0})
}

// MTU-1: a frame above the receiver's MTU is refused, with the MTU to report to its sender.
func TestMTU1Unequal(t *testing.T) {
	s := newNet(t, 2, func(i int, _ *double, c *Config) {
		if i == 1 {
			c.MTU = 1500
		}
	})
	f := ethernet(node(1), 0, 1514, 1)
	s.mustSend(0, f, VNet{})
	b := s.e[0].Borrow()
	copy(b.Bytes, ethernet(node(1), 0, 1515, 1))
	if err := s.e[0].Send(b, 0, 1515, VNet{}, s.now); err != ErrTooBig {
		t.Fatalf("1501 bytes of payload: %v", err)
	}
	if tell := s.e[0].TooBig(b.Bytes[:1515], VNet{}); tell != 1500 {
		t.Errorf("tell %d", tell)
	}
	s.e[0].Return(b)
	s.run()
	s.want(0, map[Counter]uint64{TXTooBig: 1, TXPackets: 1})
	s.idle()
}

// STA-1: the layout and the fields match Listing 5.1, and every counter has a name.
func TestSTA1Fields(t *testing.T) {
	names := map[string]bool{}
	for c := range Counters {
		if c.String() == "" || names[c.String()] {
			t.Errorf("counter %d has no name of its own: %q", c, c)
		}
		names[c.String()] = true
	}
	var s Statistics
	for c, n := range map[Counter]int{RXPackets: 22, RXBytes: 1572, TXPackets: 22, TXBytes: 1572, RXFault: 1, RXTimeout: 1, RXNoSink: 3, RXOrderFull: 4, RXFragmentLost: 5,
		TXTimeout: 6, TXQueueFull: 7, TXMulticastFull: 8, TXNoNode: 9, RXFiltered: 100} {
		s.add(c, n)
	}
	const want = "RX packets 22  bytes 1572 (1.5 KiB)\nRX errors 2  dropped 3  overruns 4  frame 5\n" +
		"TX packets 22  bytes 1572 (1.5 KiB)\nTX errors 6  dropped 7 overruns 8  carrier 9  collisions 0\n"
	if got := s.Interface().String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The engine allocates nothing per frame: either way, small and large, with virtio headers.
func TestEngineAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes more values escape to the heap")
	}
	for mode, set := range modes {
		s := newNet(t, 2, func(i int, d *double, c *Config) {
			set(i, d, c)
			c.Receive = func(*Frame) error { return nil }
			d.ring, d.notes = make([]fabric.Message, 0, 64), make([]fabric.Notification, 0, 64)
		})
		frames := [][]byte{ethernet(node(1), 0, 60, 1), ethernet(node(1), 0, 400, 1), ethernet(node(1), 0, 60000, 1), ethernet(arp.Broadcast, 0, 300, 1)}
		v := VNet{Flags: NeedsChecksum, CsumStart: 34, CsumOffset: 16}
		turn := func() {
			for _, f := range frames {
				b := s.e[0].Borrow()
				copy(b.Bytes[50:], f)
				if err := s.e[0].Send(b, 50, len(f), v, s.now); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range s.e {
				e.PollVELO(s.now, 64)
				e.PollRMA(s.now, 64)
				e.Advance(s.now)
				e.Next(s.now)
			}
			s.e[0].PollRMA(s.now, 64)
			s.now += time.Microsecond
		}
		turn()
		if n := testing.AllocsPerRun(200, turn); n != 0 {
			t.Errorf("%s: %v allocations for four frames", mode, n)
		}
	}
}
