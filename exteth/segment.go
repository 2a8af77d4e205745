package exteth

import (
	"encoding/binary"
	"iter"

	"exnet/mtu"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeARP  = 0x0806

	protoTCP = 6
	protoUDP = 17

	// maxSegmentHeader bounds the headers that every segment repeats. It suffices for any IPv4
	// packet, and for IPv6 with some extension headers.
	maxSegmentHeader = 512

	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// An ipPacket says where the parts of an IP packet lie in a frame.
type ipPacket struct {
	family    mtu.Family
	protocol  uint8
	transport int // offset of the transport header in the frame
	end       int // of the packet in the frame
}

// parseIP finds the transport header behind options or extension headers. It checks lengths from
// the packet against the frame.
func parseIP(frame []byte) (p ipPacket, ok bool) {
	const at = mtu.MACHeader
	if len(frame) < at+mtu.IPv4Header {
		return p, false
	}
	ip := frame[at:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeIPv4:
		ihl, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if total == 0 && len(ip) > int(mtu.MaxIPv4) {
			total = len(ip) // a super-packet longer than the header can say
		}
		if ip[0]>>4 != 4 || ihl < mtu.IPv4Header || total < ihl || total > len(ip) {
			return p, false
		}
		return ipPacket{mtu.IPv4, ip[9], at + ihl, at + total}, true
	case etherTypeIPv6:
		if len(ip) < mtu.IPv6Header || ip[0]>>4 != 6 {
			return p, false
		}
		end := mtu.IPv6Header + int(binary.BigEndian.Uint16(ip[4:]))
		if end > len(ip) {
			return p, false
		}
		next, off := ip[6], mtu.IPv6Header
		for next == 0 || next == 43 || next == 60 { // hop-by-hop, routing, destination options
			if end-off < 8 {
				return p, false
			}
			next, off = ip[off], off+8+int(ip[off+1])*8
		}
		return ipPacket{mtu.IPv6, next, at + off, at + end}, off <= end
	}
	return p, false
}

// A segmenter cuts a super-packet into packets with complete checksums.
type segmenter struct {
	frame  []byte
	ip     ipPacket
	header int // bytes that every segment repeats, with the MAC header
	size   int // payload of each segment but the last
	off    int // of the next payload byte in the frame
	index  int
	pseudo uint64 // sum of the pseudo-header without the length
}

// newSegmenter refuses super-packets that it could not cut correctly.
func newSegmenter(frame []byte, v VNet) (s segmenter, err error) {
	ip, ok := parseIP(frame)
	if !ok || !v.Check(len(frame)) || int(v.CsumStart) != ip.transport {
		return s, ErrVNet
	}
	s = segmenter{frame: frame[:ip.end], ip: ip, size: int(v.GSOSize)}
	var field int
	switch t := v.GSO &^ GSOECN; {
	case t == GSOTCPv4 && ip.family == mtu.IPv4 && ip.protocol == protoTCP,
		t == GSOTCPv6 && ip.family == mtu.IPv6 && ip.protocol == protoTCP:
		if ip.end-ip.transport < mtu.TCPHeader {
			return s, ErrVNet
		}
		header := int(frame[ip.transport+12]>>4) * 4
		if header < mtu.TCPHeader {
			return s, ErrVNet
		}
		s.header, field = ip.transport+header, 16
	case t == GSOUDP && ip.protocol == protoUDP:
		s.header, field = ip.transport+mtu.UDPHeader, 6
	default:
		return s, ErrVNet
	}
	if s.header >= ip.end || s.header > maxSegmentHeader || int(v.CsumOffset) != field {
		return s, ErrVNet
	}
	s.off = s.header
	addresses := frame[mtu.MACHeader+12 : mtu.MACHeader+20]
	if ip.family == mtu.IPv6 {
		addresses = frame[mtu.MACHeader+8 : mtu.MACHeader+40]
	}
	s.pseudo = uint64(OnesSum(uint64(ip.protocol), addresses))
	return s, nil
}

// gso describes the segments in the terms of package mtu.
func (s *segmenter) gso() mtu.GSO {
	return mtu.GSO{Header: s.header - mtu.MACHeader, Payload: len(s.frame) - s.header, Size: s.size}
}

// Segments yields the packets that a super-packet stands for, as frames with complete checksums. It
// yields none if the super-packet is malformed. Each frame lies in dst, which must have room for
// the longest, and is valid until the next one. Others may change the super-packet meanwhile.
func Segments(frame []byte, v VNet, dst []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s, err := newSegmenter(frame, v)
		if err != nil {
			return
		}
		for n := s.nextLen(); n > 0 && n <= len(dst); n = s.nextLen() {
			if s.next(dst); !yield(dst[:n]) {
				return
			}
		}
	}
}

// nextLen returns the length of the next segment's frame, or 0 if there is none.
func (s *segmenter) nextLen() int {
	if left := len(s.frame) - s.off; left > 0 {
		return s.header + min(left, s.size)
	}
	return 0
}

// next writes the next segment to dst, which has at least nextLen bytes.
func (s *segmenter) next(dst []byte) {
	n := s.nextLen()
	dst = dst[:n]
	copy(dst, s.frame[:s.header])
	copy(dst[s.header:], s.frame[s.off:])
	done := s.off - s.header
	s.off += n - s.header
	last := s.off == len(s.frame)

	ip, t := dst[mtu.MACHeader:], dst[s.ip.transport:]
	if s.ip.family == mtu.IPv4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		// as Linux does: each segment has its own ID
		id := binary.BigEndian.Uint16(ip[4:]) + uint16(s.index)
		binary.BigEndian.PutUint16(ip[4:], id)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^OnesSum(0, ip[:s.ip.transport-mtu.MACHeader]))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-mtu.IPv6Header))
	}
	field := t[6:8]
	if s.ip.protocol == protoTCP {
		field = t[16:18]
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(done))
		if s.index > 0 {
			t[13] &^= tcpCWR // only the first segment reports the reduction (RFC 3168, 6.1.2)
		}
		if !last {
			t[13] &^= tcpFIN | tcpPSH
		}
	} else {
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
	}
	field[0], field[1] = 0, 0
	putChecksum(field, OnesSum(s.pseudo+uint64(len(t)), t))
	s.index++
}
