package programs

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"exnet/arp"
	"exnet/test/exn"
)

// Other nodes find an address that was added by hand (ip address add), and no longer find one that
// was removed. An address of another node is shown as lost, and nothing ends.
func TestAddressByHand(t *testing.T) {
	f := exn.Up(t, exn.Options{})
	f.OnlyExn("there is nobody to tell")
	a, b := f.Nodes[0], f.Nodes[1]
	for _, p := range []netip.Prefix{netip.MustParsePrefix("10.99.0.77/16"), netip.MustParsePrefix("fd99::77/64")} {
		local := netip.PrefixFrom(p.Addr().Prev(), p.Bits())
		change(t, a, netlink.AddrAdd, local)
		change(t, b, netlink.AddrAdd, p)
		b.AwaitAddress(p, arp.Held.String())
		flow := a.Flow(b, p.Addr())
		flow.Await(1 << 20)
		flow.Stop()

		change(t, a, netlink.AddrAdd, p)
		a.AwaitAddress(p, arp.Lost.String())
		change(t, a, netlink.AddrDel, p)
		a.AwaitAddress(p, "")
		flow = a.Flow(b, p.Addr())
		flow.Await(1 << 20)
		flow.Stop()

		change(t, b, netlink.AddrDel, p)
		b.AwaitAddress(p, "")
		a.AwaitAddress(local, arp.Held.String())
	}
}

// change adds an address to a node's interface, or removes it.
func change(t *testing.T, n *exn.Node, how func(netlink.Link, *netlink.Addr) error, p netip.Prefix) {
	t.Helper()
	n.NS.Do(t, func() {
		link, err := netlink.LinkByName(exn.Link)
		if err == nil {
			err = how(link, &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}})
		}
		if err != nil {
			t.Fatalf("%v: address %v: %v", n, p, err)
		}
	})
}
