package multicast

import (
	"net/netip"

	"exnet/arp"
	"exnet/fabric"
)

// MACOf returns the Ethernet address of an IP multicast group: 01:00:5e and 23 bits (RFC 1112), or
// 33:33 and 32 bits (RFC 2464). 255.255.255.255 gives the broadcast address.
func MACOf(a netip.Addr) (m arp.MAC, ok bool) {
	switch {
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return arp.Broadcast, true
	case !a.IsMulticast() || a.Is4In6():
		return arp.MAC{}, false
	case a.Is4():
		b := a.As4()
		return arp.MAC{0x01, 0x00, 0x5e, b[1] & 0x7f, b[2], b[3]}, true
	default:
		b := a.As16()
		return arp.MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}, true
	}
}

// everybody reports whether frames to m go to all nodes and pass every filter.
func everybody(m arp.MAC) bool {
	switch {
	case m[0] == 0x33 && m[1] == 0x33:
		return m[2]|m[3]|m[4] == 0
	case m[0] == 0x01 && m[1] == 0x00 && m[2] == 0x5e && m[3] < 0x80:
		return m[3]|m[4] == 0
	}
	return true
}

// hashed is how many groups are chosen by hash: 0..62.
const hashed = fabric.GroupCount - 1

// GroupOf returns the fabric group of a multicast MAC address. It is part of the protocol between
// nodes: all must compute the same group.
func GroupOf(m arp.MAC) fabric.Group {
	if everybody(m) {
		return fabric.GroupAll
	}
	// Fibonacci hashing spreads consecutive addresses, which are the usual case. The hash is
	// the high half of the product, scaled to the range.
	const golden = 0x9e3779b97f4a7c15
	v := uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
	return fabric.Group((v * golden >> 32) * hashed >> 32)
}
