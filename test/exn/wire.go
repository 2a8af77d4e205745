package exn

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"exnet/test/netns"
)

// wire joins the nodes by veth pairs: two directly, more over a bridge in a
// namespace of its own.
func (f *Fleet) wire() {
	f.Helper()
	end := func(n *Node) netns.End {
		mtu := n.MTU
		if mtu == 0 {
			const longest = 65535
			mtu = longest
		}
		return netns.End{NS: n.NS, Link: Link, MTU: mtu, Addr: n.prefixes()}
	}
	if len(f.Nodes) == 2 {
		netns.Veth(f, end(f.Nodes[0]), end(f.Nodes[1]))
		return
	}
	hub := netns.New(f)
	const name = "hub"
	hub.Do(f, func() {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			f.Fatalf("cannot make a bridge: %v", err)
		}
	})
	for i, n := range f.Nodes {
		port := fmt.Sprintf("port%d", i)
		mine := end(n)
		netns.Veth(f, mine, netns.End{NS: hub, Link: port, MTU: mine.MTU})
		hub.Do(f, func() {
			bridge, err := netlink.LinkByName(name)
			if err == nil {
				var link netlink.Link
				if link, err = netlink.LinkByName(port); err == nil {
					err = netlink.LinkSetMaster(link, bridge.(*netlink.Bridge))
				}
			}
			if err == nil {
				err = netlink.LinkSetUp(bridge)
			}
			if err != nil {
				f.Fatalf("cannot put %s into the bridge: %v", port, err)
			}
		})
	}
}
