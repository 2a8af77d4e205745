package exteth

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
)

// RDV-2: a frame of up to 8 MiB with its MAC header takes one RMA transaction.
func TestRDV2Largest(t *testing.T) {
	s := newNet(t, 2, func(_ int, d *double, c *Config) { c.MTU, c.Buffers, d.mapped = mtu.MaxLink, 4, true })
	f := ethernet(node(1), 0, int(mtu.MaxFrame), 3)
	s.mustSend(0, f, VNet{})
	s.run()
	if len(s.got[1]) != 1 || !bytes.Equal(s.got[1][0].data, f) {
		t.Fatal("an 8 MiB frame did not arrive")
	}
	s.idle()
}

// RDV-4: small and large frames arrive in the order in which they were sent, while GETs take their
// time and the fabric is full now and then.
func TestRDV4Order(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newNet(t, 2, func(i int, d *double, c *Config) {
				set(i, d, c)
				if i == 1 {
					d.hold = true
				}
			})
			sizes := []int{60, 5000, 60, 300, 1514, 60, 70, 20000, 480, 481, 60}
			for i, n := range sizes {
				s.mustSend(0, ethernet(node(1), 0, n, i), VNet{})
				s.run()
			}
			if mode == "copy" {
				if len(s.got[1]) != 1 {
					t.Errorf("%d frames overtook one that is being fetched", len(s.got[1])-1)
				}
				s.want(1, map[Counter]uint64{RXGets: 4}) // GETs overlap
			}
			s.w.nodes[1].release()
			s.run()
			for i, n := range sizes {
				if i >= len(s.got[1]) || len(s.got[1][i].data) != n {
					t.Fatalf("frame %d of %d bytes is missing or late", i, n)
				}
			}
			s.idle()
		})
	}
}

// RDV-3: at the window's bound a peer's frames wait in its queue, in order, at most 64 of them.
func TestRDV3QueueBound(t *testing.T) {
	s := newNet(t, 3, func(i int, d *double, c *Config) {
		if i == 1 {
			d.ringSize = 4
		}
	})
	full := s.w.nodes[1]
	for i := range 70 {
		err := s.send(0, ethernet(node(1), 0, 60+i, i), VNet{})
		if want := i >= 4+QueueFrames; (err == ErrDropped) != want || err != nil && !want {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if !s.e[0].Blocked() {
		t.Error("the only peer in use is at its bound, and reading goes on")
	}
	// Another peer is not delayed.
	s.mustSend(0, ethernet(node(2), 0, 5000, 1), VNet{})
	s.e[2].PollVELO(s.now, 64)
	if len(s.e[0].busy) != 2 || s.e[0].Blocked() {
		t.Error("blocked although another peer is in use")
	}
	for range 100 {
		s.e[0].Advance(s.now)
		s.e[1].PollVELO(s.now, 3)
		if len(full.ring) > 4 {
			t.Fatal("the ring overflows")
		}
	}
	s.run()
	if len(s.got[1]) != 4+QueueFrames {
		t.Fatalf("%d frames arrived", len(s.got[1]))
	}
	for i, r := range s.got[1] {
		if len(r.data) != 60+i {
			t.Fatalf("frame %d has %d bytes", i, len(r.data))
		}
	}
	s.want(0, map[Counter]uint64{TXQueueFull: 2, TXQueued: 64, TXPackets: 69})
	s.run()
	s.idle()
}

// RDV-3: a frame that waited too long is dropped: after 1 ms where other peers wait, after 20 ms
// where none does, but only until one has expired. A frame of which some fragments were sent does
// not damage the next one.
func TestRDV3QueueExpiry(t *testing.T) {
	s := newNet(t, 3, func(i int, d *double, c *Config) {
		if i == 1 {
			d.ringSize = 2
		}
		d.deaf = i == 2
	})
	expires := func(after time.Duration) {
		t.Helper()
		before := s.e[0].Statistics().Get(TXQueueExpired)
		// two of four fragments fit, then no more
		s.mustSend(0, ethernet(node(1), 0, 480, 1), VNet{})
		s.now += after - 1
		s.e[0].Advance(s.now)
		s.want(0, map[Counter]uint64{TXQueueExpired: before})
		if wait, ok := s.e[0].Next(s.now); !ok || wait != 1 {
			t.Errorf("next in %v, %v", wait, ok)
		}
		s.now++
		s.e[0].Advance(s.now)
		s.want(0, map[Counter]uint64{TXQueueExpired: before + 1, TXFragments: 2, TXPackets: 0})
	}
	expires(SoleQueueTime)
	expires(QueueTime)
	s.run()
	s.mustSend(0, ethernet(node(1), 0, 200, 2), VNet{})
	s.run()
	if len(s.got[1]) != 1 || !bytes.Equal(s.got[1][0].data, ethernet(node(1), 0, 200, 2)) {
		t.Fatalf("got %d frames", len(s.got[1]))
	}
	s.want(1, map[Counter]uint64{RXFragmentLost: 1, RXPackets: 1})
	s.idle()

	// The peer receives, so it counts as in use again; but now another peer is in use, too.
	s.mustSend(0, ethernet(node(2), 0, 5000, 1), VNet{})
	s.mustSend(0, ethernet(node(1), 0, 480, 1), VNet{})
	s.now += QueueTime
	s.e[0].Advance(s.now)
	s.want(0, map[Counter]uint64{TXQueueExpired: 3})
}

// RDV-3: a peer that never fetches loses only its own frames. After the time-out the buffers come
// back with stale addresses, and the peer's window is one.
func TestRDV3Timeout(t *testing.T) {
	s := newNet(t, 3, func(i int, d *double, c *Config) {
		if i == 1 {
			d.deaf = true
		}
	})
	var stale []fabric.NLA
	for i := range 60 {
		b := s.e[0].Borrow()
		copy(b.Bytes, ethernet(node(1), 0, 5000, i))
		stale = append(stale, b.nla(0))
		_ = s.e[0].Send(b, 0, 5000, VNet{}, s.now)
	}
	if free := len(s.e[0].tx.free); free < 8 {
		t.Errorf("one peer leaves %d buffers to the others", free)
	}
	for range 3 { // the other peers go on
		s.mustSend(0, ethernet(node(2), 0, 5000, 1), VNet{})
		s.run()
	}
	s.now += QueueTime
	s.run()
	s.now = DefaultTimeout - 1
	s.run()
	s.want(0, map[Counter]uint64{TXTimeout: 0})
	s.now++
	s.run()
	s.want(0, map[Counter]uint64{TXTimeout: 48, TXPackets: 3})
	s.idle()
	for _, a := range stale[:48] {
		if _, f := s.w.nodes[0].atu.Table().Lookup(a, 5000, 0, fabric.RemoteRead); f != fabric.FaultStale {
			t.Fatalf("%v is not poisoned: %v", a, f)
		}
	}
	if p, _ := s.e[0].Peer(1); p.Window != 1 {
		t.Errorf("window %d after time-outs", p.Window)
	}
	for i := range 4 {
		_ = s.send(0, ethernet(node(1), 0, 5000, i), VNet{})
	}
	if free := len(s.e[0].tx.free); free < DefaultBuffers-2 {
		t.Errorf("a dead peer holds %d buffers", DefaultBuffers-free)
	}
	// The peer comes back: once it has fetched one frame, many find room at once.
	s.w.nodes[1].deaf = false
	s.now += DefaultTimeout
	s.run()
	s.mustSend(0, ethernet(node(1), 0, 5000, 0), VNet{})
	s.run()
	for i := range 40 {
		s.mustSend(0, ethernet(node(1), 0, 5000, i), VNet{})
	}
	s.run()
	if p, _ := s.e[0].Peer(1); p.Window != 48 || len(s.got[1]) != 41 {
		t.Errorf("window %d, %d frames", p.Window, len(s.got[1]))
	}
	s.idle()
}

// RDV-3: one stopped node out of four costs the others nothing, with all buffers in use and
// whatever the sizes. The engine never blocks for it alone for longer than a queue's time.
func TestRDV3StalledPeer(t *testing.T) {
	var got [4]int
	s := newNet(t, 4, func(i int, d *double, c *Config) {
		d.mapped, d.deaf = true, i == 1
		c.Receive = func(*Frame) error { got[i]++; return nil }
	})
	for round := range 4000 { // two and a half time-outs
		for i := 1; i < 4; i++ {
			if s.e[0].Blocked() {
				t.Fatalf("round %d: blocked while others could be sent to", round)
			}
			b := s.e[0].Borrow()
			to, n := node(i), []int{60, 1514, 9014, 65550}[(round+i)%4]
			copy(b.Bytes[50:], to[:])
			if err := s.e[0].Send(b, 50, n, VNet{}, s.now); err != nil && i > 1 {
				t.Fatalf("round %d: a frame for node %d: %v", round, i, err)
			}
		}
		if round%4 < 3 {
			continue
		}
		for _, e := range s.e {
			e.PollVELO(s.now, 64)
			e.PollRMA(s.now, 64)
			e.Advance(s.now)
		}
		if got[2] != round+1 || got[3] != round+1 {
			t.Fatalf("round %d: the others got %v", round, got)
		}
		s.now += 500 * time.Microsecond
	}
	if s.e[0].stats.Get(TXTimeout) == 0 {
		t.Error("the stalled node was never noticed")
	}
}

// A stopped peer delays nobody, though its ring still takes small frames, which it may never read.
// It does not count: the only other peer in use is the only one.
func TestRDV3StalledPeerIsNotInUse(t *testing.T) {
	s := newNet(t, 3, func(i int, d *double, c *Config) {
		d.deaf = i == 1
		if i == 2 {
			d.ringSize = 2
		}
	})
	s.mustSend(0, ethernet(node(1), 0, 5000, 1), VNet{})
	s.now += DefaultTimeout
	s.e[0].Advance(s.now)
	s.want(0, map[Counter]uint64{TXTimeout: 1})
	for range 3 {
		s.mustSend(0, ethernet(node(1), 0, 60, 1), VNet{})
		s.mustSend(0, ethernet(node(1), 0, 5000, 1), VNet{}) // all but the first wait
		if s.e[0].Blocked() {
			t.Fatal("a peer that stopped holds the device")
		}
		s.now += QueueTime
		s.e[0].Advance(s.now)
	}
	s.want(0, map[Counter]uint64{TXQueueExpired: 2})

	s.mustSend(0, ethernet(node(2), 0, 480, 1), VNet{}) // two of four fragments fit
	if !s.e[0].Blocked() {
		t.Error("the only peer in use that receives is at its bound, and reading goes on")
	}
	s.now += SoleQueueTime - 1
	s.e[0].Advance(s.now)
	s.want(0, map[Counter]uint64{TXQueueExpired: 2})
	s.run()
	if len(s.got[2]) != 1 || s.e[0].Blocked() {
		t.Errorf("%d frames arrived, blocked %v", len(s.got[2]), s.e[0].Blocked())
	}

	// Once back, it counts as in use at once: its fetches show that it receives.
	s.w.nodes[1].deaf = false
	s.now += DefaultTimeout
	s.run()
	s.mustSend(0, ethernet(node(1), 0, 5000, 2), VNet{})
	s.run()
	s.mustSend(0, ethernet(node(1), 0, 5000, 3), VNet{})
	if s.e[0].active != 1 {
		t.Errorf("%d peers in use", s.e[0].active)
	}
	s.run()
	s.idle()
}

// RDV-3: a receiver without a free sink says so; the sender frees the buffer and counts.
func TestRDV3Nack(t *testing.T) {
	s := newNet(t, 2, func(i int, d *double, c *Config) {
		c.Eager = 120
		if i == 1 {
			d.hold, c.Buffers = true, 4
		}
	})
	for i := range 6 {
		s.mustSend(0, ethernet(node(1), 0, 1000+i, i), VNet{})
	}
	s.run()
	s.want(1, map[Counter]uint64{RXNoSink: 2, RXNacks: 2})
	s.want(0, map[Counter]uint64{TXNacked: 2})
	s.w.nodes[1].release()
	s.run()
	s.want(0, map[Counter]uint64{TXRendezvous: 4})
	s.want(1, map[Counter]uint64{RXPackets: 4})
	s.idle()
}

// A GET that fails, or never completes, drops its frame and no other.
func TestRDV3FailedGet(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newNet(t, 2, set)
			s.w.nodes[1].failGets = fabric.FaultLink
			s.mustSend(0, ethernet(node(1), 0, 1000, 1), VNet{})
			s.mustSend(0, ethernet(node(1), 0, 60, 2), VNet{})
			s.run()
			s.w.nodes[1].failGets = fabric.FaultNone
			s.mustSend(0, ethernet(node(1), 0, 1000, 3), VNet{})
			s.run()
			s.want(1, map[Counter]uint64{RXFault: 1, RXNacks: 1, RXPackets: 2})
			s.want(0, map[Counter]uint64{TXNacked: 1, TXPackets: 2})
			s.idle()
		})
	}
	t.Run("never done", func(t *testing.T) {
		s := newNet(t, 2, nil)
		s.w.nodes[1].hold = true
		s.mustSend(0, ethernet(node(1), 0, 1000, 1), VNet{})
		s.mustSend(0, ethernet(node(1), 0, 60, 2), VNet{})
		s.run()
		sink := s.w.nodes[1].held[0].desc.Local
		s.now += DefaultTimeout
		s.run()
		if _, f := s.w.nodes[1].atu.Table().Lookup(sink, 1000, 0, 0); f != fabric.FaultStale {
			t.Errorf("a late GET can still write into the sink: %v", f)
		}
		s.want(1, map[Counter]uint64{RXTimeout: 1, RXPackets: 1})
		s.want(0, map[Counter]uint64{TXTimeout: 1})
		if len(s.e[0].tx.limbo) != 1 || len(s.e[1].sinks.limbo) != 1 {
			t.Error("memory is used again that a GET under way reads or writes")
		}
		s.w.nodes[1].release()
		s.run()
		s.want(1, map[Counter]uint64{RXPackets: 1, RXFault: 0})
		s.idle()
	})
}

// When the fabric has no room for a GET, the GET is retried and finally refused.
func TestRDV3FullForGets(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newNet(t, 2, set)
			s.w.nodes[1].noteSize = 0
			for i := range 3 {
				s.mustSend(0, ethernet(node(1), 0, 1000, i), VNet{})
				s.mustSend(0, ethernet(node(1), 0, 60, i), VNet{})
			}
			s.run()
			if len(s.got[1]) != 0 {
				t.Fatal("a frame overtook")
			}
			if wait, ok := s.e[1].Next(s.now); !ok || wait > QueueTime {
				t.Errorf("tried again in %v, %v", wait, ok)
			}
			s.now += 10 * time.Millisecond
			s.w.nodes[1].noteSize = 1 << 20
			s.run()
			for i, r := range s.got[1] {
				if want := []int{1000, 60}[i%2]; len(r.data) != want {
					t.Errorf("frame %d has %d bytes", i, len(r.data))
				}
			}
			s.want(1, map[Counter]uint64{RXPackets: 6})
			s.idle()

			// Room comes back just before a later advert, which must not come first.
			s.got[1] = nil
			s.w.nodes[1].noteSize = 0
			s.mustSend(0, ethernet(node(1), 0, 1001, 1), VNet{})
			s.run()
			s.w.nodes[1].noteSize = 1 << 20
			s.mustSend(0, ethernet(node(1), 0, 1002, 1), VNet{})
			s.run()
			if len(s.got[1]) != 2 || len(s.got[1][0].data) != 1001 {
				t.Errorf("the later of %d frames was first", len(s.got[1]))
			}
			s.idle()

			// Room never comes back.
			s.w.nodes[1].noteSize = 0
			s.mustSend(0, ethernet(node(1), 0, 1003, 1), VNet{})
			s.mustSend(0, ethernet(node(1), 0, 70, 1), VNet{})
			s.run()
			s.now += DefaultTimeout
			s.run()
			s.want(1, map[Counter]uint64{RXPackets: 9, RXTimeout: 1})
			s.idle()
		})
	}
}

// RDV-1: adverts with impossible contents are refused and cannot name this node's memory.
func TestRDV1HostileAdverts(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newNet(t, 2, set)
			velo := doubleVELO{double: s.w.nodes[0]}
			for i, c := range []struct {
				a    advert
				want Counter
			}{
				{advert{source: 0, length: 1000}, RXFault},
				{advert{source: 1<<64 - 1, length: 1000}, RXFault},
				{advert{source: s.e[0].tx.all[0].nla(0), length: DefaultBufferSize + 1}, RXTooLong},
				{advert{source: s.e[0].tx.all[0].nla(0), length: 65551}, RXTooLong},
				{advert{source: s.e[0].tx.all[0].nla(DefaultBufferSize - 999), length: 1000}, RXFault},
				{advert{length: 1000, vnet: VNet{GSO: 7}}, RXBadMessage},
				{advert{length: 1000, vnet: VNet{Flags: NeedsChecksum, CsumStart: 999}}, RXBadMessage},
				{advert{length: 13}, RXBadMessage},
			} {
				before := s.e[1].stats.Get(c.want)
				_ = velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: 1}, MTT: tagGetInfo}, c.a.append(nil))
				s.run()
				if got := s.e[1].stats.Get(c.want) - before; got != 1 {
					t.Errorf("advert %d: %v counts %d", i, c.want, got)
				}
			}
			s.want(1, map[Counter]uint64{RXPackets: 0})
			s.idle()
		})
	}
}

// RDV-4: frames of one group keep their order even when a long one has to wait.
func TestRDV4Multicast(t *testing.T) {
	s := newNet(t, 2, func(i int, d *double, c *Config) {
		if i == 1 {
			d.ringSize = 3
		}
	})
	for i := range 10 {
		_ = s.send(0, ethernet(arp.Broadcast, 0, []int{100, 3000}[i%2]+i, i), VNet{})
	}
	s.run()
	if len(s.got[1]) != 10 {
		t.Errorf("%d frames arrived", len(s.got[1]))
	}
	for i, r := range s.got[1] {
		if len(r.data) != []int{100, 3000}[i%2]+i {
			t.Errorf("frame %d has %d bytes", i, len(r.data))
		}
	}
	s.idle()
}

// RDV-3: a GET that its receiver gave up completes late, after the sender was told. Its
// notification must not free the buffer of the next frame, which the receiver has yet to fetch: the
// receiver would get the bytes of a third frame.
func TestRDV3LateGetAfterNack(t *testing.T) {
	s := newNet(t, 2, func(i int, d *double, c *Config) {
		d.hold = i == 1
		if i == 0 {
			c.Timeout = time.Hour
		}
	})
	s.mustSend(0, ethernet(node(1), 0, 1000, 1), VNet{})
	s.run()
	s.now += DefaultTimeout
	s.run()
	s.want(0, map[Counter]uint64{TXNacked: 1})
	late := s.w.nodes[1]
	s.mustSend(0, ethernet(node(1), 0, 1000, 2), VNet{})
	s.run()
	late.complete()
	s.run()
	s.mustSend(0, ethernet(node(1), 0, 1000, 3), VNet{})
	s.run()
	late.release()
	s.run()
	for i := range 2 {
		if i >= len(s.got[1]) || !bytes.Equal(s.got[1][i].data, ethernet(node(1), 0, 1000, i+2)) {
			t.Fatalf("frame %d is missing or has the bytes of another", i+2)
		}
	}
	s.idle()
}

// MCS-2: a member that refuses a frame does not spoil it for the others.
func TestRDV3NackOfOneMember(t *testing.T) {
	s := newNet(t, 4, func(i int, d *double, c *Config) {
		if i == 1 {
			c.MTU = 1500
		}
	})
	f := ethernet(arp.Broadcast, 0, 9000, 1)
	s.mustSend(0, f, VNet{})
	s.e[1].PollVELO(s.now, 64) // refuses
	s.e[0].PollVELO(s.now, 64)
	s.want(0, map[Counter]uint64{TXNacked: 1})
	s.run()
	for i := 2; i < 4; i++ {
		if len(s.got[i]) != 1 || !bytes.Equal(s.got[i][0].data, f) {
			t.Errorf("node %d got %d frames", i, len(s.got[i]))
		}
	}
	s.want(1, map[Counter]uint64{RXTooLong: 1})
	s.idle()
}

// Notifications that wake nobody are taken before their frames count as missing.
func TestRDV3LazyNotifications(t *testing.T) {
	s := newNet(t, 2, nil)
	const frames = 10
	for k := range frames {
		if s.e[0].Awaiting() {
			t.Fatalf("a notification is waited for after %d frames, with %d buffers left", k, len(s.e[0].tx.free))
		}
		s.mustSend(0, ethernet(node(1), 0, 5000, k), VNet{})
		s.e[1].PollVELO(s.now, 64)
		s.e[1].PollRMA(s.now, 64)
	}
	s.now += DefaultTimeout
	s.e[0].Advance(s.now)
	s.want(0, map[Counter]uint64{TXTimeout: 0, TXPackets: frames})
	s.run()
	s.idle()

	for len(s.e[0].tx.free) > 0 && !s.e[0].Awaiting() { // nobody fetches
		s.mustSend(0, ethernet(node(1), 0, 5000, 1), VNet{})
	}
	if !s.e[0].Awaiting() || !s.e[0].Blocked() {
		t.Errorf("awaiting %v, blocked %v at the bound", s.e[0].Awaiting(), s.e[0].Blocked())
	}
}

// A sender is interrupted once for all of its buffers that become free in one poll.
func TestFetchedIsToldTogether(t *testing.T) {
	s := newNet(t, 3, func(_ int, d *double, _ *Config) { d.mapped = true })
	for _, frames := range []int{1, 20, 40} {
		for i := range frames {
			s.mustSend(0, ethernet(node(1), 0, 1000, i), VNet{})
		}
		d := s.w.nodes[0]
		d.raises, d.untoldMost = 0, 0
		s.run()
		if d.raises != 1 || d.untoldMost != frames {
			t.Errorf("%d frames: told %d times, of up to %d frames; want once of all", frames, d.raises, d.untoldMost)
		}
	}
	// While small polls use all of their budget, the sender is interrupted after a quarter of
	// its buffers. The last poll, or a Tell before sleeping, reports the rest.
	poll := func(frames int, ask func(), want ...int) {
		t.Helper()
		d := s.w.nodes[0]
		for i := range frames {
			s.mustSend(0, ethernet(node(1), 0, 1000, i), VNet{})
		}
		d.raises = 0
		var got []int
		for range want {
			s.e[1].PollVELO(s.now, 3)
			s.e[1].Advance(s.now)
			ask()
			got = append(got, d.raises)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d frames in polls of 3: after each it was told %d times, want %d", frames, got, want)
		}
		s.run()
	}
	poll(40, func() {}, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 3)
	poll(6, func() {}, 0, 0, 1)
	poll(6, s.e[1].Tell, 1, 2, 2)
	// With frames of two senders in turn, each is interrupted.
	for i := range 6 {
		s.mustSend(i%2, ethernet(node(2), i%2, 1000, i), VNet{})
	}
	s.run()
	s.want(2, map[Counter]uint64{RXPackets: 6})
	s.idle()
}
