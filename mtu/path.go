package mtu

// Path returns the largest payload between two nodes. Nodes may have different MTUs. Each announces
// its own when they meet, and the sending node refuses a packet longer than the receiver's.
func Path(own, peer Link) Link { return min(own, peer) }

// A Family is an IP version.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// TooBig returns what to tell the sender of an IP packet of n bytes that does not fit: the next-hop
// MTU for ICMP "fragmentation needed" (RFC 1191) or ICMPv6 "packet too big" (RFC 8200). tooBig is
// false when the packet fits. For a super-packet, n is the length of its largest segment (see
// [GSO.SegmentIP]).
//
// The value is never below the family's minimum: a node ignores less than 1280 in IPv6 (RFC 8201)
// and less than 68 in IPv4.
func (l Link) TooBig(f Family, n int) (tell IP, tooBig bool) {
	if f == IPv6 {
		tell = max(l.IPv6Packet(), MinIPv6)
		return tell, n > int(l.IPv6Packet())
	}
	return max(l.IPv4(), MinIPv4), n > int(l.IPv4())
}

// TooBigQuote returns how many bytes of the offending packet an ICMP error
// quotes: as much as fits a minimum-MTU packet (RFC 4443, 2.4 c; RFC 1812,
// 4.3.2.3: 576 bytes).
func TooBigQuote(f Family, n int) int {
	if f == IPv6 {
		return min(n, int(MinIPv6)-IPv6Header-ICMPHeader)
	}
	const routerMost = 576
	return min(n, routerMost-IPv4Header-ICMPHeader)
}

// MSS returns the TCP maximum segment size of the link, without options. It
// never exceeds its 16-bit option.
func (l Link) MSS(f Family) int {
	ip, header := int(l.IPv4()), IPv4Header
	if f == IPv6 {
		ip, header = int(l.IPv6Packet()), IPv6Header
	}
	return max(0, min(ip-header-TCPHeader, 1<<16-1))
}

// A GSO describes a super-packet: an IP packet to be cut into segments with the same headers.
type GSO struct {
	Header  int // bytes that every segment repeats: network and transport header
	Payload int // bytes to be cut
	Size    int // payload of each segment but the last
}

// Segments returns how many packets result, or 0 if the description is impossible.
func (g GSO) Segments() int {
	if g.Header < 0 || g.Payload < 1 || g.Size < 1 {
		return 0
	}
	return (g.Payload-1)/g.Size + 1
}

// SegmentIP returns the length of the largest resulting IP packet.
func (g GSO) SegmentIP() int { return g.Header + min(g.Size, g.Payload) }

// LastPayload returns the payload of the last segment.
func (g GSO) LastPayload() int {
	if g.Segments() == 0 {
		return 0
	}
	return (g.Payload-1)%g.Size + 1
}

// Bytes returns the total length of all resulting frames with their MAC headers.
func (g GSO) Bytes() int { return g.Segments()*(MACHeader+g.Header) + g.Payload }
