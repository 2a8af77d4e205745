package exn

import (
	"fmt"

	"exnet/test/netns"
)

// wire joins the nodes by veth pairs: two nodes directly, more over a bridge in a namespace of its
// own.
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
	bridge := netns.End{NS: hub, Link: "hub"}
	netns.Bridge(f, bridge)
	for i, n := range f.Nodes {
		netns.Plug(f, bridge, fmt.Sprintf("port%d", i), end(n))
	}
}
