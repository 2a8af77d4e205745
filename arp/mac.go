package arp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"exnet/fabric"
)

// A MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the address of every node.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Multicast reports whether the address names a group, as Broadcast does.
func (m MAC) Multicast() bool { return m[0]&1 == 1 }

// A Prefix is the first four octets of the MAC addresses of a fabric. The other two are always the
// node ID (MAC-1).
type Prefix [4]byte

// DefaultPrefix is locally administered and unicast.
var DefaultPrefix = Prefix{0x2e, 0x87, 0x04, 0x07}

// ErrPrefix means that a prefix cannot start a unicast address.
var ErrPrefix = errors.New("arp: bad MAC prefix")

// ParsePrefix parses a prefix such as "2e:87:04:07".
func ParsePrefix(s string) (Prefix, error) {
	if m, err := net.ParseMAC(s + ":00:00"); err == nil && len(m) == len(MAC{}) {
		p := Prefix(m[:4])
		return p, p.Check()
	}
	return Prefix{}, fmt.Errorf("%q: want four octets like %v: %w", s, DefaultPrefix, ErrPrefix)
}

// Check refuses a prefix of multicast addresses.
func (p Prefix) Check() error {
	if p[0]&1 == 1 {
		return fmt.Errorf("%v: the first octet is odd, which makes it a multicast address; use an even one, %02x for example: %w", p, p[0]&^1|2, ErrPrefix)
	}
	return nil
}

func (p Prefix) String() string { return fmt.Sprintf("%02x:%02x:%02x:%02x", p[0], p[1], p[2], p[3]) }

// MAC returns the address of a node.
func (p Prefix) MAC(n fabric.NodeID) MAC {
	return MAC{p[0], p[1], p[2], p[3], byte(n >> 8), byte(n)}
}

// Node returns the node that an address names. ok is false for a foreign prefix, and for the one ID
// that no node can have.
func (p Prefix) Node(m MAC) (n fabric.NodeID, ok bool) {
	n = fabric.NodeID(m[4])<<8 | fabric.NodeID(m[5])
	return n, Prefix(m[:4]) == p && n <= fabric.MaxNodeID
}

// LinkLocal returns the IPv6 link-local address with the modified EUI-64 identifier of the MAC
// address (RFC 4291, appendix A). Node 1 has fe80::2c87:4ff:fe07:1.
func LinkLocal(m MAC) netip.Addr {
	const universalLocal = 0x02 // inverted in the modified format
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0,
		m[0] ^ universalLocal, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// SolicitedNode returns the solicited-node multicast group of an IPv6 address (RFC 4291, 2.7.1).
func SolicitedNode(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, b[13], b[14], b[15]})
}
