package exn

import (
	"bytes"
	"encoding/binary"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/mtu"
)

// A train is what one program sends by one TCP connection, packet after packet: they go to
// the peer as one super-packet, which costs the two loops and the kernel there hardly more
// than each of its packets would have (measured, four of 64 KiB: one stream has 1.2 times as
// much, for 0.8 of the CPU time). It is what Linux does in GRO with BIG TCP, and stands for
// the same packets on the wire as those that it is made of, but for what has no meaning:
// IDs of what is never cut, and PSH of all but the last.
//
// As there, an IPv4 packet that is longer than its length field can say has 0 there.
type train struct {
	p       []byte // the first packet, and room for the payload of others behind it
	n       int    // its length
	first   int    // that it had alone
	header  int    // of IP and TCP
	size    int    // payload of each packet on the wire, but for the last
	packets int
	push    byte
	vnet    exteth.VNet
}

const (
	// trainFrom is how long a packet is at least that others are expected to follow.
	trainFrom = 1 << 15

	tcpACK, tcpPSH = 0x10, 0x08
)

// newTrain begins one with the packet of n bytes that is in p; ok is false if it can be none.
func newTrain(p []byte, n int, v exteth.VNet) (t train, ok bool) {
	if n < trainFrom || len(p) < n || !couples(p[:mtu.IPv4Header+mtu.TCPHeader], n, v) {
		return t, false
	}
	t = train{p: p, n: n, first: n, header: headerOf(p), packets: 1, vnet: v}
	if t.size = int(v.GSOSize); v.GSO == exteth.GSONone {
		t.size = n - t.header
	}
	return t, t.size > 0
}

// couples reports whether a packet of n bytes that begins with p is of a train: data of TCP
// over IPv4 and nothing else, to be sent as they are.
func couples(p []byte, n int, v exteth.VNet) bool {
	const protoTCP, doNotFragment, checksumAt = 6, 0x4000, 16
	return p[0] == 0x45 && p[9] == protoTCP && int(binary.BigEndian.Uint16(p[2:])) == n &&
		binary.BigEndian.Uint16(p[6:]) == doNotFragment &&
		p[mtu.IPv4Header+13]&^tcpPSH == tcpACK && headerOf(p) >= mtu.IPv4Header+mtu.TCPHeader && n > headerOf(p) &&
		v.Flags == exteth.NeedsChecksum && v.CsumStart == mtu.IPv4Header && v.CsumOffset == checksumAt &&
		(v.GSO == exteth.GSONone || v.GSO == exteth.GSOTCPv4)
}

func headerOf(p []byte) int { return mtu.IPv4Header + int(p[mtu.IPv4Header+12]>>4)*4 }

// room is where the payload of the next packet goes; nil: there is no next one.
func (t *train) room() []byte {
	rest := t.p[t.n:]
	if t.n+int(mtu.MaxIPv4) > device.BigPacket || len(rest) <= int(mtu.MaxIPv4) || (t.n-t.header)%t.size != 0 {
		return nil
	}
	return rest
}

// add takes a packet of n bytes, whose header is in h and whose payload in room. It returns
// false when it is not of the train.
func (t *train) add(h []byte, n int, v exteth.VNet) bool {
	payload := n - t.header
	if !couples(h, n, v) {
		return false
	}
	if v.GSO == exteth.GSONone && payload > t.size || v.GSO != exteth.GSONone && int(v.GSOSize) != t.size {
		return false
	}
	const seq, ack, flags, window, checksum, urgent = 24, 28, 33, 34, 36, 38
	at := binary.BigEndian.Uint32(t.p[seq:]) + uint32(t.n-t.header)
	if binary.BigEndian.Uint32(h[seq:]) != at ||
		h[1] != t.p[1] || h[8] != t.p[8] || // DSCP and ECN, TTL
		!bytes.Equal(h[12:seq], t.p[12:seq]) || // addresses, ports
		!bytes.Equal(h[ack:flags], t.p[ack:flags]) || // with the length of the header
		!bytes.Equal(h[window:checksum], t.p[window:checksum]) ||
		!bytes.Equal(h[urgent:t.header], t.p[urgent:t.header]) { // with all options
		return false
	}
	t.push |= h[flags] & tcpPSH
	t.n += payload
	t.packets++
	return true
}

// couple makes one packet of it. The train is over.
func (t *train) couple() (n int, v exteth.VNet) {
	if t.packets == 1 {
		return t.n, t.vnet
	}
	p, v := t.p, t.vnet
	p[mtu.IPv4Header+13] |= t.push
	v.GSO, v.GSOSize, v.HdrLen = exteth.GSOTCPv4, uint16(t.size), uint16(t.header)
	length := t.n
	if length > int(mtu.MaxIPv4) {
		length = 0
	}
	binary.BigEndian.PutUint16(p[2:], uint16(length))
	binary.BigEndian.PutUint16(p[10:], 0)
	binary.BigEndian.PutUint16(p[10:], ^exteth.OnesSum(0, p[:mtu.IPv4Header]))
	// The field has the sum of the pseudo-header, of which the length is a part.
	field := p[mtu.IPv4Header+int(v.CsumOffset):]
	binary.BigEndian.PutUint16(field, exteth.OnesSum(uint64(t.n-t.first), field[:2]))
	return t.n, v
}
