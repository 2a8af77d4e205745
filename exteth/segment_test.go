package exteth

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"pgregory.net/rapid"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
)

// A super describes a super-packet for tests.
type super struct {
	v6, udp        bool
	ipOptions      int // bytes of IPv4 options, or of IPv6 extension headers
	tcpOptions     int
	flags          uint8
	payload, size  int
	id             uint16
	seq            uint32
	to             arp.MAC
	completeOnly   bool // no GSO
	destinationIP4 [4]byte
}

func (s super) proto() uint8 {
	if s.udp {
		return protoUDP
	}
	return protoTCP
}

func (s super) gso() GSOType {
	switch {
	case s.completeOnly:
		return GSONone
	case s.udp:
		return GSOUDP
	case s.v6:
		return GSOTCPv6
	}
	return GSOTCPv4
}

// packet builds one complete packet of the super-packet, carrying payload[from:to], as a sender
// without offloads would.
func (s super) packet(payload []byte, from, to, index int, first, last bool) []byte {
	f := append([]byte{}, s.to[:]...)
	src := node(0)
	f = append(f, src[:]...)
	header4 := mtu.TCPHeader + s.tcpOptions
	if s.udp {
		header4 = mtu.UDPHeader
	}
	l4 := header4 + to - from
	var pseudo uint16
	if s.v6 {
		f = binary.BigEndian.AppendUint16(f, etherTypeIPv6)
		ip := make([]byte, mtu.IPv6Header+s.ipOptions)
		a, b := tcpip.AddrFrom16([16]byte{0xfe, 0x80, 15: 1}), tcpip.AddrFrom16([16]byte{0xfe, 0x80, 15: 2})
		next := s.proto()
		if s.ipOptions > 0 {
			next = 60
			ip[40], ip[41] = s.proto(), byte(s.ipOptions/8-1)
		}
		header.IPv6(ip).Encode(&header.IPv6Fields{PayloadLength: uint16(s.ipOptions + l4), TransportProtocol: tcpip.TransportProtocolNumber(next), HopLimit: 64, SrcAddr: a, DstAddr: b})
		f = append(f, ip...)
		pseudo = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(s.proto()), a, b, uint16(l4))
	} else {
		f = binary.BigEndian.AppendUint16(f, etherTypeIPv4)
		ip := make([]byte, mtu.IPv4Header+s.ipOptions)
		a, b := tcpip.AddrFrom4([4]byte{10, 0, 0, 1}), tcpip.AddrFrom4(s.destinationIP4)
		for i := mtu.IPv4Header; i < len(ip); i++ {
			ip[i] = 1 // IP option "no operation"
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+l4))
		ip[0], ip[8], ip[9] = 0x40|byte(len(ip)/4), 64, s.proto()
		binary.BigEndian.PutUint16(ip[4:], s.id+uint16(index))
		ip[6] = 0x40
		header.IPv4(ip).SetSourceAddress(a)
		header.IPv4(ip).SetDestinationAddress(b)
		header.IPv4(ip).SetChecksum(^checksum.Checksum(ip, 0))
		f = append(f, ip...)
		pseudo = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(s.proto()), a, b, uint16(l4))
	}
	t := make([]byte, header4)
	binary.BigEndian.PutUint16(t, 1234)
	binary.BigEndian.PutUint16(t[2:], 80)
	field := t[6:8]
	if s.udp {
		binary.BigEndian.PutUint16(t[4:], uint16(l4))
	} else {
		binary.BigEndian.PutUint32(t[4:], s.seq+uint32(from))
		binary.BigEndian.PutUint32(t[8:], 77)
		flags := s.flags
		if !last {
			flags &^= header5FinPsh
		}
		if !first {
			flags &^= 0x80
		}
		t[12], t[13] = byte(header4/4)<<4, flags
		binary.BigEndian.PutUint16(t[14:], 512)
		for i := 20; i < header4; i++ {
			t[i] = 1
		}
		field = t[16:18]
	}
	sum := ^checksum.Combine(checksum.Checksum(t, pseudo), checksum.Checksum(payload[from:to], 0))
	if len(t)%2 == 1 {
		panic("odd header")
	}
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
	return append(append(f, t...), payload[from:to]...)
}

const header5FinPsh = 0x01 | 0x08

func (s super) data() []byte {
	p := make([]byte, s.payload)
	for i := range p {
		p[i] = byte(i*13 + i>>8)
	}
	return p
}

// frame builds the super-packet, with a partial checksum and its virtio header.
func (s super) frame() ([]byte, VNet) {
	f := s.packet(s.data(), 0, s.payload, 0, true, true)
	ip, ok := parseIP(f)
	if !ok {
		panic("bad test packet")
	}
	off := uint16(16)
	if s.udp {
		off = 6
	}
	v := VNet{Flags: NeedsChecksum, GSO: s.gso(), CsumStart: uint16(ip.transport), CsumOffset: off}
	if v.GSO != GSONone {
		v.GSOSize = uint16(s.size)
		if s.flags&0x80 != 0 && !s.udp {
			v.GSO |= GSOECN
		}
	}
	// A partial checksum is the sum of the pseudo-header, not complemented.
	var pseudo uint16
	if s.v6 {
		h := header.IPv6(f[14:])
		pseudo = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(s.proto()), h.SourceAddress(), h.DestinationAddress(), uint16(ip.end-ip.transport))
	} else {
		h := header.IPv4(f[14:])
		pseudo = header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(s.proto()), h.SourceAddress(), h.DestinationAddress(), uint16(ip.end-ip.transport))
	}
	binary.BigEndian.PutUint16(f[ip.transport+int(off):], pseudo)
	return f, v
}

// reference builds each segment of the super-packet from scratch.
func (s super) reference() (out [][]byte) {
	size := s.size
	if s.completeOnly {
		size = s.payload
	}
	for from, i := 0, 0; from < s.payload; from, i = from+size, i+1 {
		to := min(from+size, s.payload)
		out = append(out, s.packet(s.data(), from, to, i, i == 0, to == s.payload))
	}
	return out
}

func drawSuper(t *rapid.T) super {
	s := super{
		v6: rapid.Bool().Draw(t, "v6"), udp: rapid.Bool().Draw(t, "udp"),
		ipOptions:  8 * rapid.IntRange(0, 4).Draw(t, "ip options"),
		tcpOptions: 4 * rapid.IntRange(0, 10).Draw(t, "tcp options"),
		flags:      uint8(rapid.SampledFrom([]int{0x10, 0x18, 0x19, 0x90, 0x99}).Draw(t, "flags")),
		payload:    rapid.IntRange(1, 20000).Draw(t, "payload"), size: rapid.IntRange(100, 9000).Draw(t, "size"),
		id: rapid.Uint16().Draw(t, "id"), seq: rapid.Uint32().Draw(t, "seq"),
		to: node(1), destinationIP4: [4]byte{10, 0, 0, 2},
	}
	return s
}

// The segments equal, byte for byte, what a sender without offloads sends.
func TestSegmentReference(t *testing.T) {
	check := func(t interface {
		Fatalf(string, ...any)
	}, s super) {
		f, v := s.frame()
		want := s.reference()
		g, err := newSegmenter(f, v)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if g.gso().Segments() != len(want) {
			t.Fatalf("%+v: %d segments, want %d", s, g.gso().Segments(), len(want))
		}
		var buf [70000]byte
		for i, w := range want {
			n := g.nextLen()
			if n != len(w) {
				t.Fatalf("%+v: segment %d has %d bytes, want %d", s, i, n, len(w))
			}
			g.next(buf[:n])
			if !bytes.Equal(buf[:n], w) {
				t.Fatalf("%+v: segment %d of %d differs:\n% x\n% x", s, i, len(want), buf[:min(n, 100)], w[:min(n, 100)])
			}
		}
		if g.nextLen() != 0 {
			t.Fatalf("%+v: more segments than %d", s, len(want))
		}
	}
	for _, v6 := range []bool{false, true} {
		for _, udp := range []bool{false, true} {
			for _, c := range []struct{ payload, size int }{{1448 * 45, 1448}, {1448*45 + 1, 1448}, {1448, 1448}, {1, 1448}, {1449, 1448}, {64000, 8948}} {
				check(t, super{v6: v6, udp: udp, tcpOptions: 12, flags: 0x99, payload: c.payload, size: c.size, id: 65530, seq: 1<<32 - 5000, to: node(1)})
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, drawSuper(t)) })
}

// A completed partial checksum equals what a sender without offloads sends.
func TestChecksumReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSuper(t)
		s.completeOnly = true
		f, v := s.frame()
		left, err := CompleteChecksum(f, v)
		if err != nil || !left.Plain() {
			t.Fatalf("%+v: %v, left %+v", s, err, left)
		}
		if want := s.reference()[0]; !bytes.Equal(f, want) {
			t.Fatalf("%+v: got\n% x\nwant\n% x", s, f[:80], want[:80])
		}
	})
	// RFC 768: a sum of zero is sent as all ones.
	f := make([]byte, 44)
	f[36], f[37] = 0xff, 0xff
	if _, err := CompleteChecksum(f, VNet{Flags: NeedsChecksum, CsumStart: 34, CsumOffset: 6}); err != nil || f[40] != 0xff || f[41] != 0xff {
		t.Errorf("zero became %x, %v", f[40:42], err)
	}
	if _, err := CompleteChecksum(f, VNet{Flags: NeedsChecksum, CsumStart: 34, CsumOffset: 9}); !errors.Is(err, ErrVNet) {
		t.Errorf("a field beyond the frame: %v", err)
	}
}

// The fast sum equals a straightforward one.
func TestOnesSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xff}), 0, 200).Draw(t, "bytes")
		var sum uint32
		for i := range b {
			if i%2 == 0 {
				sum += uint32(b[i]) << 8
			} else {
				sum += uint32(b[i])
			}
		}
		for sum>>16 != 0 {
			sum = sum>>16 + sum&0xffff
		}
		if got := OnesSum(0, b); uint32(got)%0xffff != sum%0xffff || (got == 0) != (sum == 0) {
			t.Fatalf("%x, want %x", got, sum)
		}
	})
	if got := fold(^uint64(0)); got != 0xffff {
		t.Errorf("fold: %x", got)
	}
}

// Super-packets that cannot be cut correctly are refused.
func TestSegmentRefuses(t *testing.T) {
	base := super{payload: 5000, size: 1000, to: node(1), flags: 0x10}
	for name, change := range map[string]func(f []byte, v *VNet) []byte{
		"no checksum":        func(f []byte, v *VNet) []byte { v.Flags = 0; return f },
		"no size":            func(f []byte, v *VNet) []byte { v.GSOSize = 0; return f },
		"wrong family":       func(f []byte, v *VNet) []byte { v.GSO = GSOTCPv6; return f },
		"wrong protocol":     func(f []byte, v *VNet) []byte { v.GSO = GSOUDP; return f },
		"wrong start":        func(f []byte, v *VNet) []byte { v.CsumStart++; return f },
		"wrong field":        func(f []byte, v *VNet) []byte { v.CsumOffset = 6; return f },
		"ether type":         func(f []byte, v *VNet) []byte { f[13] = 1; return f },
		"IP version":         func(f []byte, v *VNet) []byte { f[14] = 0x65; return f },
		"IP header length":   func(f []byte, v *VNet) []byte { f[14] = 0x44; return f },
		"IP length too long": func(f []byte, v *VNet) []byte { return f[:len(f)-1] },
		"IP length short":    func(f []byte, v *VNet) []byte { f[16], f[17] = 0, 10; return f },
		"TCP header length":  func(f []byte, v *VNet) []byte { f[46] = 0x40; return f },
		"no payload":         func(f []byte, v *VNet) []byte { f[16], f[17] = 0, 40; return f },
		"short frame":        func(f []byte, v *VNet) []byte { return f[:30] },
	} {
		f, v := base.frame()
		f = change(f, &v)
		if _, err := newSegmenter(f, v); !errors.Is(err, ErrVNet) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ParseVNet and Put are inverse, and respect where the device says the frame starts.
func TestVNetCodec(t *testing.T) {
	b := []byte{1, 1, 66, 0, 0xa8, 5, 20, 0, 16, 0, 9, 9} // as a TUN gives it
	v, ok := ParseVNet(b, mtu.MACHeader)
	if want := (VNet{Flags: NeedsChecksum, GSO: GSOTCPv4, HdrLen: 80, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}); !ok || v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	for _, n := range []int{10, 12} {
		got := make([]byte, n)
		v.Put(got, mtu.MACHeader)
		want := bytes.Clone(b[:n])
		if n == 12 {
			want[10], want[11] = 1, 0
		}
		if !bytes.Equal(got, want) {
			t.Errorf("% x, want % x", got, want)
		}
	}
	if _, ok := ParseVNet(b[:9], 0); ok {
		t.Error("9 bytes are a header")
	}
	if s := fmt.Sprint(CapAll, Caps(0), CapTSO4|1<<9); s != "csum+tso4+tso6+ecn+uso+big none tso4+0x200" {
		t.Error(s)
	}
}

// Super-packets and partial checksums reach a receiver whole or completed, depending on what it
// takes, for every combination.
func TestCapabilities(t *testing.T) {
	for caps := range capsEnd {
		for _, v6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				for _, completeOnly := range []bool{false, true} {
					for _, flags := range []uint8{0x10, 0x90} {
						if udp && flags != 0x10 {
							continue
						}
						s := super{v6: v6, udp: udp, completeOnly: completeOnly, flags: flags, payload: 5001, size: 1000, to: node(1)}
						testCapabilities(t, caps, s)
					}
				}
			}
		}
	}
}

func testCapabilities(t *testing.T, caps Caps, s super) {
	t.Helper()
	n := newNet(t, 2, func(i int, d *double, c *Config) {
		c.Caps, c.Buffers = caps, 8
		d.mapped = true
	})
	f, v := s.frame()
	sent := bytes.Clone(f)
	n.mustSend(0, f, v)
	n.run()
	needs, _ := v.Needs()
	if needs&^caps == 0 {
		if len(n.got[1]) != 1 || !bytes.Equal(n.got[1][0].data, sent) || n.got[1][0].vnet != v {
			t.Errorf("%v takes %+v, but did not get it whole", caps, v)
		}
		n.want(0, map[Counter]uint64{TXSegmented: 0, TXChecksums: 0})
	} else {
		want := s.reference()
		if len(n.got[1]) != len(want) {
			t.Fatalf("%v, %+v: %d frames, want %d", caps, v, len(n.got[1]), len(want))
		}
		for i, w := range want {
			if r := n.got[1][i]; !bytes.Equal(r.data, w) || !r.vnet.Plain() {
				t.Fatalf("%v, %+v: frame %d differs", caps, v, i)
			}
		}
	}
	n.idle()
}

// A super-packet longer than an IPv4 header can say goes whole to receivers that take such, and as
// separate packets to others. Other protocols have no such super-packets.
func TestBig(t *testing.T) {
	const bufferSize = 1 << 18
	for _, caps := range []Caps{CapAll, CapAll &^ CapBig, CapBig, 0} {
		n := newNet(t, 2, func(i int, d *double, c *Config) {
			c.Caps, c.Buffers, c.BufferSize = CapAll, 8, bufferSize
			if i == 1 {
				c.Caps = caps
			}
			d.mapped = true
		})
		s := super{flags: 0x18, payload: 200001, size: 60000, tcpOptions: 12, id: 7, seq: 1<<32 - 5000, to: node(1)}
		f, v := s.frame()
		clear(f[mtu.MACHeader+2 : mtu.MACHeader+4])
		sent := bytes.Clone(f)
		want := s.reference()
		if caps == CapAll {
			want = [][]byte{sent}
		}
		if got := n.e[0].Takes(1, CapBig|CapTSO4); got != (caps == CapAll) || n.e[0].Takes(2, 0) {
			t.Errorf("%v: Takes says %v", caps, got)
		}
		n.mustSend(0, f, v)
		n.run()
		if len(n.got[1]) != len(want) {
			t.Fatalf("%v: %d frames, want %d", caps, len(n.got[1]), len(want))
		}
		for i, w := range want {
			if !bytes.Equal(n.got[1][i].data, w) {
				t.Errorf("%v: frame %d differs", caps, i)
			}
		}
		short, shortV := super{flags: 0x18, payload: 5000, size: 1000, to: node(1)}.frame()
		clear(short[mtu.MACHeader+2 : mtu.MACHeader+4])
		if err := n.send(0, short, shortV); err != ErrFrame {
			t.Errorf("a short packet that does not say its length: %v", err)
		}
		n.idle()

		velo := doubleVELO{double: n.w.nodes[0]}
		for _, c := range []struct {
			gso      GSOType
			length   int
			accepted bool
		}{
			{GSOTCPv4, bufferSize + 1, false}, {GSOTCPv4, bufferSize, caps == CapAll}, {GSOTCPv4, 65550, caps == CapAll}, {GSOTCPv4, 65549, caps&CapTSO4 != 0},
			{GSOTCPv4 | GSOECN, 65550, caps == CapAll},
			{GSOTCPv6, 65590, false}, {GSOTCPv6, 65589, caps&CapTSO6 != 0}, {GSOUDP, 65590, false}, {GSONone, 65551, false},
		} {
			before := n.e[1].stats.Get(RXGets)
			a := advert{source: n.e[0].tx.all[0].nla(0), length: c.length, vnet: VNet{Flags: NeedsChecksum, GSO: c.gso, GSOSize: 1400, CsumStart: 34, CsumOffset: 16}}
			_ = velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: 1}, MTT: tagGetInfo}, a.append(nil))
			n.run()
			if got := n.e[1].stats.Get(RXGets) > before; got != c.accepted {
				t.Errorf("%v, %d bytes with GSO type %d: accepted %v", caps, c.length, c.gso, got)
			}
		}
	}
}

// A super-packet whose packets do not fit one buffer takes more buffers, and all come back.
func TestSegmentBuffers(t *testing.T) {
	s := super{payload: 60000, size: 200, to: node(1), flags: 0x10}
	n := newNet(t, 2, func(i int, _ *double, c *Config) { c.Caps = 0 })
	f, v := s.frame()
	n.mustSend(0, f, v)
	n.run()
	for i, w := range s.reference() {
		if i >= len(n.got[1]) || !bytes.Equal(n.got[1][i].data, w) {
			t.Fatalf("frame %d is wrong or missing", i)
		}
	}
	n.want(0, map[Counter]uint64{TXSegmented: 1, TXSegments: 300, TXPackets: 300})
	n.idle()
	// Without a free buffer all packets are dropped, and each is counted.
	var held []*Buffer
	for len(n.e[0].tx.free) > 1 {
		held = append(held, n.e[0].Borrow())
	}
	if err := n.send(0, f, v); err != ErrDropped {
		t.Errorf("no buffers: %v", err)
	}
	for _, b := range held {
		n.e[0].Return(b)
	}
	n.run()
	n.want(0, map[Counter]uint64{TXNoBuffer: 300, TXPackets: 300})
	n.idle()
}

// Frames to a group are always completed, since its members differ.
func TestCapabilitiesMulticast(t *testing.T) {
	for _, completeOnly := range []bool{false, true} {
		s := super{udp: true, completeOnly: completeOnly, payload: 20000, size: 1400, to: arp.MAC{1, 0, 0x5e, 0, 0, 1}, destinationIP4: [4]byte{224, 0, 0, 1}}
		n := newNet(t, 3, func(_ int, d *double, _ *Config) { d.mapped = true })
		f, v := s.frame()
		n.mustSend(0, f, v)
		n.run()
		for i := 1; i < 3; i++ {
			for k, w := range s.reference() {
				if k >= len(n.got[i]) || !bytes.Equal(n.got[i][k].data, w) || !n.got[i][k].vnet.Plain() {
					t.Fatalf("node %d: frame %d is wrong or missing", i, k)
				}
			}
		}
		n.idle()
	}
}

// MTU-1: the segments of a super-packet have to fit the MTU, not the super-packet.
func TestMTU1SuperPacket(t *testing.T) {
	n := newNet(t, 2, func(_ int, _ *double, c *Config) { c.MTU = 1500 })
	for size, want := range map[int]error{1460: nil, 1461: ErrTooBig} {
		s := super{payload: 20000, size: size, to: node(1), flags: 0x10}
		f, v := s.frame()
		if err := n.send(0, f, v); err != want {
			t.Errorf("segments of %d: %v", size, err)
		}
	}
	n.run()
	n.want(1, map[Counter]uint64{RXPackets: 1})
}

func FuzzSegment(f *testing.F) {
	for _, s := range []super{{payload: 3000, size: 1000, to: node(1), flags: 0x19}, {v6: true, udp: true, payload: 3000, size: 1000, ipOptions: 16, to: node(1)}} {
		b, v := s.frame()
		f.Add(b, v.append(nil))
	}
	f.Fuzz(func(t *testing.T, frame, vnet []byte) {
		v, ok := ParseVNet(vnet, 0)
		if !ok {
			return
		}
		_, _ = CompleteChecksum(bytes.Clone(frame), v)
		if !v.Check(len(frame)) {
			return
		}
		s, err := newSegmenter(frame, v)
		if err != nil || s.gso().Segments() > 1000 {
			return
		}
		var payload []byte
		segments := 0
		want := s.frame[s.header:]
		for n := s.nextLen(); n > 0; n = s.nextLen() {
			b := make([]byte, n)
			s.next(b)
			payload = append(payload, b[s.header:]...)
			if p, ok := parseIP(b); !ok || p.end != n {
				t.Fatalf("a segment is not an IP packet: % x", b)
			}
			segments++
		}
		if !bytes.Equal(payload, want) || segments != s.gso().Segments() {
			t.Fatalf("%d segments carry %d bytes of %d", segments, len(payload), len(want))
		}
	})
}
