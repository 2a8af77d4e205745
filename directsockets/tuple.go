package directsockets

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"exnet/directsockets/home"
)

// A tuple is a connection as its one end sees it.
type tuple struct{ local, remote netip.AddrPort }

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// turned is how the other end sees it.
func (t tuple) turned() tuple { return tuple{t.remote, t.local} }

// inland says whether the other end is in this network namespace, at an address that
// upgrades: inside the loopback, from an address of this host to the same one, or
// inside the subnets that the user names. An end that turns out to be elsewhere is
// never found: offers carry the cookie of this namespace.
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

// abroad says in which other network namespace the other end is: both ends have to be
// at addresses that nodes of the fabric have registered, ours in this namespace.
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

// wire is an end as in offers and control messages: 16 bytes of address, IPv4
// mapped, and the port in network order.
func wire(a netip.AddrPort) (b [18]byte) {
	address := a.Addr().As16()
	copy(b[:], address[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
	return b
}

// first decides, alike at both ends, which of two crossing ATTACH stays: that of
// the end with the lower address of its own.
func (c *Conn) first() bool {
	a, b := wire(c.tuple.local), wire(c.other.local)
	if d := bytes.Compare(a[:], b[:]); d != 0 {
		return d < 0
	}
	return c.netns < c.peerNet
}
