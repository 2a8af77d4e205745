package directsockets

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"exnet/directsockets/home"
)

// A tuple is a connection as one of its ends sees it.
type tuple struct{ local, remote netip.AddrPort }

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// turned returns the connection as the other end sees it.
func (t tuple) turned() tuple { return tuple{t.remote, t.local} }

// inland reports whether the other end is in this network namespace, at an address that upgrades.
// That is: both on the loopback, both at the same address, or both in the subnets that the user
// names. If the other end is elsewhere after all, it is never found, since offers carry the cookie
// of this namespace.
func (t tuple) inland(subnets []netip.Prefix) bool {
	a, b := t.local.Addr(), t.remote.Addr()
	if !a.IsValid() || !b.IsValid() {
		return false
	}
	named := func(a netip.Addr) bool {
		for _, p := range subnets {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	return a.IsLoopback() && b.IsLoopback() && a.Is4() == b.Is4() || a == b || named(a) && named(b)
}

// abroad returns the network namespace of the other end, if it is another one. Nodes of the fabric
// must have registered the addresses of both ends, and ours in this namespace.
func (t tuple) abroad(fabric string, here uint64) (there uint64, ok bool) {
	ours, err := home.Find(fabric, t.local.Addr())
	if err != nil || ours != here || here == 0 {
		return 0, false
	}
	there, err = home.Find(fabric, t.remote.Addr())
	if err != nil || there == 0 {
		return 0, false
	}
	if there == here {
		there = 0
	}
	return there, true
}

// wire encodes an end as in offers and control messages: 16 bytes of address, with IPv4 mapped, and
// the port in network order.
func wire(a netip.AddrPort) (b [18]byte) {
	address := a.Addr().As16()
	copy(b[:], address[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
	return b
}

// first decides which of two crossing ATTACH messages stays, alike at both ends: that of the end
// with the lower local address.
func (c *Conn) first() bool {
	a, b := wire(c.tuple.local), wire(c.other.local)
	if d := bytes.Compare(a[:], b[:]); d != 0 {
		return d < 0
	}
	return c.netns < c.peerNet
}
