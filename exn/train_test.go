package exn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/mtu"
	"exnet/napi"
)

// A segment describes a packet of TCP over IPv4 as a kernel sends it.
type segment struct {
	payload, gso     int // gso 0: one packet
	options          int // words of TCP options
	id, window       uint16
	seq, ack         uint32
	flags, tos, ttl  uint8
	port             uint16
	fragment         uint16 // of IP, with its flags
	complete, urgent bool
	stamp            byte // in the TCP options
	ecn              exteth.GSOType
}

func plainSegment(payload, gso int) segment {
	return segment{payload: payload, gso: gso, options: 3, seq: 1, ack: 7, window: 500, flags: 0x10, ttl: 64, port: 80, fragment: 0x4000}
}

func (s segment) packet() packet {
	header := mtu.TCPHeader + 4*s.options
	n := mtu.IPv4Header + header + s.payload
	p := make([]byte, n)
	p[0], p[1], p[8], p[9] = 0x45, s.tos, s.ttl, 6
	binary.BigEndian.PutUint16(p[2:], uint16(n))
	binary.BigEndian.PutUint16(p[4:], s.id)
	binary.BigEndian.PutUint16(p[6:], s.fragment)
	from, to := addr4(0).As4(), addr4(1).As4()
	copy(p[12:], from[:])
	copy(p[16:], to[:])
	binary.BigEndian.PutUint16(p[10:], ^exteth.OnesSum(0, p[:20]))
	t := p[20:]
	binary.BigEndian.PutUint16(t, 1000)
	binary.BigEndian.PutUint16(t[2:], s.port)
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = byte(header/4)<<4, s.flags
	binary.BigEndian.PutUint16(t[14:], s.window)
	if s.urgent {
		t[19] = 1
	}
	for k := mtu.TCPHeader; k < header; k++ {
		t[k] = 1 + s.stamp
	}
	for k := range s.payload {
		t[header+k] = byte((s.seq + uint32(k)) * 7 >> 3)
	}
	v := exteth.VNet{Flags: exteth.NeedsChecksum, CsumStart: 20, CsumOffset: 16, HdrLen: uint16(20 + header)}
	binary.BigEndian.PutUint16(t[16:], exteth.OnesSum(uint64(6+len(t)), p[12:20]))
	if s.gso > 0 {
		v.GSO, v.GSOSize = exteth.GSOTCPv4|s.ecn, uint16(s.gso)
	}
	if s.complete {
		f := frameOf(p)
		_, _ = exteth.CompleteChecksum(f, v.Shift(mtu.MACHeader))
		p, v = f[mtu.MACHeader:], exteth.VNet{}
	}
	return packet{p, v}
}

func frameOf(p []byte) []byte {
	return append([]byte{12: 8, 13: 0}, p...)
}

// onWire returns the packets on the wire that packets stand for, without fields that have no
// meaning. push reports whether the last one had PSH.
func onWire(t interface{ Fatalf(string, ...any) }, packets []packet) (wire [][]byte, push bool) {
	take := func(f []byte) {
		p := append([]byte(nil), f[mtu.MACHeader:]...)
		if exteth.OnesSum(0, p[:20]) != 0xffff {
			t.Fatalf("IP checksum of % x", p[:40])
		}
		if pseudo := exteth.OnesSum(uint64(6+len(p)-20), p[12:20]); exteth.OnesSum(uint64(pseudo), p[20:]) != 0xffff {
			t.Fatalf("TCP checksum of % x, %d bytes", p[:40], len(p))
		}
		push = p[33]&tcpPSH != 0
		p[33] &^= tcpPSH
		clear(p[4:6])
		clear(p[10:12])
		clear(p[36:38])
		wire = append(wire, p)
	}
	for _, p := range packets {
		f, v := frameOf(p.data), p.vnet.Shift(mtu.MACHeader)
		if partial := exteth.OnesSum(uint64(6+len(p.data)-20), p.data[12:20]); v.Flags != 0 && binary.BigEndian.Uint16(p.data[36:])%0xffff != partial%0xffff {
			t.Fatalf("the partial checksum of %d bytes is %#x, not %#x", len(p.data), p.data[36:38], partial)
		}
		if v.GSO == exteth.GSONone {
			if _, err := exteth.CompleteChecksum(f, v); err != nil {
				t.Fatalf("%v", err)
			}
			take(f)
			continue
		}
		n := len(wire)
		for f := range exteth.Segments(f, v, make([]byte, 1<<17)) {
			take(f)
		}
		if len(wire) == n {
			t.Fatalf("%+v stands for nothing", v)
		}
	}
	return wire, push
}

// couplesOf joins packets to trains as the loop does.
func couplesOf(packets []packet) (out []packet) {
	for len(packets) > 0 {
		p := make([]byte, device.BigPacket+4096)
		n := copy(p, packets[0].data)
		t, ok := newTrain(p, n, packets[0].vnet)
		if !ok {
			out, packets = append(out, packets[0]), packets[1:]
			continue
		}
		packets = packets[1:]
		for room := t.room(); room != nil && len(packets) > 0; room = t.room() {
			next := packets[0]
			h := make([]byte, t.header)
			if rest := next.data[copy(h, next.data):]; copy(room, rest) != len(rest) {
				panic("no room")
			}
			if len(next.data) < t.header || !t.add(h, len(next.data), next.vnet) {
				break
			}
			packets = packets[1:]
		}
		n, v := t.couple()
		out = append(out, packet{p[:n], v})
	}
	return out
}

// Packets stand for the same packets on the wire with and without trains. Any difference between
// two of them except IDs and PSH separates them.
func TestTrainsMeanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := plainSegment(0, 0)
		s.seq = rapid.SampledFrom([]uint32{1, 1<<32 - 100000}).Draw(t, "seq")
		s.options = rapid.IntRange(0, 10).Draw(t, "options")
		size := rapid.SampledFrom([]int{1448, 8948, 60000, 65535 - 20 - 20 - 4*s.options}).Draw(t, "size")
		var packets []packet
		parted := true // from the packet before
		trains := 0
		for range rapid.IntRange(1, 9).Draw(t, "packets") {
			whole := (65535 - 20 - 20 - 4*s.options) / size
			s.gso, s.payload = size, size*rapid.IntRange(max(1, whole/2), whole).Draw(t, "segments")
			s.id = uint16(rapid.IntRange(0, 65535).Draw(t, "id"))
			s.flags = rapid.SampledFrom([]uint8{0x10, 0x18}).Draw(t, "flags")
			if s.payload == size {
				s.gso = 0
			}
			odd := s
			change := rapid.IntRange(0, 25).Draw(t, "change")
			switch change {
			case 0:
				odd.payload = rapid.IntRange(1, s.payload).Draw(t, "payload") // the last of a train
				if odd.payload <= size {
					odd.gso = 0
				}
			case 1:
				odd.seq += rapid.SampledFrom([]uint32{1, 1 << 31, ^uint32(0)}).Draw(t, "shift")
			case 2:
				odd.ack++
			case 3:
				odd.window++
			case 4:
				odd.flags |= rapid.SampledFrom([]uint8{1, 2, 4, 0x20, 0x40, 0x80}).Draw(t, "flag")
			case 5:
				odd.tos = 2
			case 6:
				odd.ttl--
			case 7:
				odd.port++
			case 8:
				odd.fragment = rapid.SampledFrom([]uint16{0, 0x6000, 0x8000}).Draw(t, "fragment")
			case 9:
				odd.complete = odd.gso == 0
			case 10:
				odd.urgent = true
			case 11:
				odd.stamp = 1
			case 12:
				odd.options = (odd.options + 1) % 11
				odd.payload = min(odd.payload, 65535-20-20-4*odd.options)
			case 13:
				if odd.gso > 0 {
					odd.gso--
				}
			case 14:
				if odd.gso > 0 {
					odd.ecn = exteth.GSOECN
				}
			}
			p := odd.packet()
			if len(packets) == 0 || parted || change > 0 && change <= 14 {
				trains++
			}
			parted = odd.payload%size != 0 || change > 0 && change <= 14
			s.seq = odd.seq + uint32(odd.payload)
			packets = append(packets, p)
		}
		got := couplesOf(packets)
		want, push := onWire(t, packets)
		have, pushed := onWire(t, got)
		if !slices.EqualFunc(have, want, bytes.Equal) || push && !pushed {
			t.Fatalf("%d packets became %d, which stand for %d instead of %d", len(packets), len(got), len(have), len(want))
		}
		if len(got) > len(packets) {
			t.Fatalf("%d packets became %d", len(packets), len(got))
		}
	})
}

// Each difference separates two packets, and without one they are not separated.
func TestTrainsPart(t *testing.T) {
	const size = 32768
	first := plainSegment(size, 0)
	next := first
	next.seq += size
	for what, c := range map[string]struct {
		change func(a, b *segment)
		parts  bool
	}{
		"nothing":             {func(_, _ *segment) {}, false},
		"the ID":              {func(_, b *segment) { b.id = 5 }, false},
		"PSH of both":         {func(a, b *segment) { a.flags |= tcpPSH; b.flags |= tcpPSH }, false},
		"a short one":         {func(_, b *segment) { b.payload = 1 }, false},
		"an early short one":  {func(a, b *segment) { a.gso = 1448 }, true},
		"a longer one":        {func(_, b *segment) { b.payload++ }, true},
		"a gap":               {func(_, b *segment) { b.seq++ }, true},
		"a repetition":        {func(_, b *segment) { b.seq -= size }, true},
		"an acknowledgement":  {func(_, b *segment) { b.ack++ }, true},
		"the window":          {func(_, b *segment) { b.window++ }, true},
		"FIN":                 {func(_, b *segment) { b.flags |= 1 }, true},
		"CWR of both":         {func(a, b *segment) { a.flags |= 0x80; b.flags |= 0x80 }, true},
		"ECN":                 {func(_, b *segment) { b.tos = 3 }, true},
		"the TTL":             {func(_, b *segment) { b.ttl-- }, true},
		"the port":            {func(_, b *segment) { b.port++ }, true},
		"may be cut, both":    {func(a, b *segment) { a.fragment, b.fragment = 0, 0 }, true},
		"a fragment":          {func(_, b *segment) { b.fragment = 0x6000 }, true},
		"complete checksums":  {func(a, b *segment) { a.complete, b.complete = true, true }, true},
		"a complete checksum": {func(_, b *segment) { b.complete = true }, true},
		"urgent":              {func(_, b *segment) { b.urgent = true }, true},
		"an option":           {func(_, b *segment) { b.stamp = 1 }, true},
		"more options":        {func(_, b *segment) { b.options++ }, true},
		"the size":            {func(a, b *segment) { a.gso, b.gso = size/2, size/4 }, true},
		"small ones":          {func(a, b *segment) { a.payload, b.payload, b.seq = 1448, 1448, a.seq+1448 }, true},
		"no payload":          {func(_, b *segment) { b.payload = 0 }, true},
	} {
		a, b := first, next
		c.change(&a, &b)
		got := couplesOf([]packet{a.packet(), b.packet()})
		if parted := len(got) == 2; parted != c.parts {
			t.Errorf("%s: %d packets", what, len(got))
		}
	}
	for what, change := range map[string]func(a, b *packet){
		"nothing":            func(_, _ *packet) {},
		"options of IP":      func(a, b *packet) { a.data[0], b.data[0] = 0x46, 0x46 },
		"another protocol":   func(a, b *packet) { a.data[9], b.data[9] = 132, 132 },
		"a wrong length":     func(_, b *packet) { b.data[3]++ },
		"a short header":     func(a, b *packet) { a.data[32], b.data[32] = 4<<4, 4<<4 },
		"a wrong address":    func(_, b *packet) { b.data[19]++ },
		"the other's":        func(_, b *packet) { b.data[15]++ },
		"the port there":     func(_, b *packet) { b.data[21]++ },
		"reserved bits":      func(_, b *packet) { b.data[32] |= 1 },
		"complete checksums": func(a, b *packet) { a.vnet.Flags, b.vnet.Flags = 0, 0 },
	} {
		a, b := first.packet(), next.packet()
		change(&a, &b)
		if got := couplesOf([]packet{a, b}); (len(got) == 1) != (what == "nothing") {
			t.Errorf("%s: %d packets", what, len(got))
		}
	}
}

// trainOf returns packets of one connection that form one train.
func trainOf(n, size int) (packets []packet) {
	s := plainSegment(size, 0)
	for range n {
		packets = append(packets, s.packet())
		s.seq += uint32(size)
	}
	return packets
}

// A node that takes big packets gets trains of up to four of the longest; others get what was sent.
// Other packets between them stay where they are.
func TestTrains(t *testing.T) {
	const size = 65483
	other := plainSegment(40000, 0)
	other.port = 81
	for name, c := range map[string]struct {
		caps exteth.Caps
		want []int // how many packets each arriving packet is made of
	}{
		"big":     {exteth.CapAll, []int{4, 2, 1, 1, 1, 1, 1}},
		"not big": {exteth.CapAll &^ exteth.CapBig, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 2, func(k int, _ *Config, d *fakeDevice) {
				if k == 1 {
					d.caps = c.caps
				}
			}, func(r *rig) {
				r.n[0].dev.send(udp(addr4(0), addr4(1), 40, 1)) // which resolves its neighbour
				r.settle()
				r.n[1].dev.take()
				// a byte longer than the header of the one before
				packets := append(trainOf(6, size), other.packet(), packet{data: udp(addr4(0), addr4(1), 25, 1)})
				packets = append(packets, trainOf(1, size)...)
				packets = append(packets, packet{data: udp(addr4(0), addr4(1), 60000, 1)}, packet{data: udp(addr4(0), addr4(1), 1, 1)})
				d := r.n[0].dev
				d.sendPackets(packets...)
				r.settle()
				got := r.n[1].dev.take()
				if len(got) != len(c.want) {
					t.Fatalf("%d packets arrived, want %d", len(got), len(c.want))
				}
				for k, n := range c.want {
					want := packets[0]
					if n > 1 {
						want = couplesOf(packets[:n])[0]
					}
					if !bytes.Equal(got[k].data, want.data) || n > 1 && got[k].vnet != want.vnet {
						t.Errorf("packet %d, made of %d, is another one: %d bytes %+v, want %d %+v", k, n, len(got[k].data), got[k].vnet, len(want.data), want.vnet)
					}
					packets = packets[n:]
				}
				coupled := uint64(0)
				for _, n := range c.want {
					coupled += uint64(n) - 1
				}
				if n := r.n[0].counter("tx_coupled"); n != coupled {
					t.Errorf("tx_coupled is %d, want %d", n, coupled)
				}
			})
		})
	}
}

// Packets that a node is to forward reach it unchanged.
func TestTrainsEndAtTheNode(t *testing.T) {
	simulate(t, 2, func(k int, c *Config, _ *fakeDevice) {
		c.Routes = []device.Route{{Destination: netip.MustParsePrefix("10.3.0.0/16"), Gateway: addr4(1)}}
	}, func(r *rig) {
		r.n[0].dev.send(udp(addr4(0), addr4(1), 40, 1)) // which resolves its neighbour
		r.settle()
		r.n[1].dev.take()
		for round := range 2 * exteth.DefaultBuffers { // so that all buffers are used and come back
			beyond := round%2 == 1
			packets := trainOf(2, 60000)
			if beyond {
				for _, p := range packets {
					copy(p.data[16:], []byte{10, 3, 0, 5})
				}
			}
			d := r.n[0].dev
			d.sendPackets(packets...)
			r.settle()
			if got := len(r.n[1].dev.take()); (got == 2) != beyond || got == 0 {
				t.Errorf("to another node beyond it %v: %d packets", beyond, got)
			}
		}
	})
}

// If the kernel has no memory for a big packet in one piece, it gets it in pieces.
func TestBigIsCut(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		r.n[0].dev.send(udp(addr4(0), addr4(1), 40, 1)) // which resolves its neighbour
		r.settle()
		r.n[1].dev.take()
		r.n[1].dev.longest = int(mtu.MaxIPv4)
		packets := trainOf(4, 65483)
		d := r.n[0].dev
		d.sendPackets(packets...)
		r.settle()
		got := r.n[1].dev.take()
		want, _ := onWire(t, packets)
		have, _ := onWire(t, got)
		if len(got) != 4 || !slices.EqualFunc(have, want, bytes.Equal) {
			t.Errorf("%d packets arrived", len(got))
		}
		if s := r.n[1].Snapshot(); s.Counters["rx_refused"] != 0 || s.Statistics.RXDropped != 0 {
			t.Errorf("counted as lost: %v", s.Counters)
		}
		// But not in very many pieces.
		for _, size := range []int{536, 535} {
			var packets []packet
			s := plainSegment(65000/size*size, size)
			for range 2 {
				packets = append(packets, s.packet())
				s.seq += uint32(s.payload)
			}
			d.sendPackets(packets...)
			r.settle()
			if got := len(r.n[1].dev.take()); got != map[int]int{536: 2 * (65000 / 536), 535: 0}[size] {
				t.Errorf("%d packets of %d bytes arrived", got, size)
			}
		}
		if n := r.n[1].counter("rx_refused_kernel"); n != 1 {
			t.Errorf("rx_refused_kernel is %d", n)
		}
	})
}

// A train ends with the budget of the poll.
func TestTrainsKeepBudget(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		n, d := r.n[0], r.n[0].dev
		d.send(udp(addr4(0), addr4(1), 40, 1)) // which resolves its neighbour
		r.settle()
		r.n[1].dev.take()
		n.ask(func() {
			d.mu.Lock()
			d.out = append(d.out, trainOf(6, 60000)...)
			d.mu.Unlock()
			for _, want := range []napi.Result{{Work: 2, Bytes: 120104}, {Work: 3, Bytes: 180156}, {Work: 1, Bytes: 60052}, {Drained: true}} {
				if got := n.pollDevice(max(1, want.Work)); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
		r.settle()
		if got := len(r.n[1].dev.take()); got != 3 {
			t.Errorf("%d packets arrived", got)
		}
	})
}

// A poll takes fewer packets if they are longer: its budget counts packets of 64 KiB.
func TestBudgetOfBig(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		n := r.n[1]
		n.ask(func() {
			for _, c := range []struct{ longest, budget, want int }{
				{0, 16, 16}, {1000, 16, 16}, {65535, 16, 16}, {65536, 16, 8}, {196501, 16, 5}, {261984, 16, 4}, {261984, 3, 1},
			} {
				n.longest[1] = c.longest
				given := 0
				n.take(1, func(_ time.Duration, budget int) (int, int) { given = budget; return 0, 0 }, 0, c.budget)
				if given != c.want || n.longest[1] != c.longest {
					t.Errorf("after one of %d bytes a poll with a budget of %d has %d, want %d", c.longest, c.budget, given, c.want)
				}
			}
			n.longest = [2]int{}
			for k, longest := range []int{261984, 1000, 0, 261984} {
				want := []int{16, 4, 16, 16}[k]
				n.take(1, func(_ time.Duration, budget int) (int, int) {
					if budget != want {
						t.Errorf("poll %d has a budget of %d, want %d", k, budget, want)
					}
					n.written = max(n.written, longest)
					return min(longest, 1), longest
				}, 0, 16)
			}
		})
	})
}
