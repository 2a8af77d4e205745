package programs

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"exnet/test/exn"
)

// datagrams are the lengths to try: at the limits of eager and rendezvous, of one packet, and of
// fragments.
var datagrams = []int{1, 451, 452, 453, 1472, 1473, 8972, 8973, 20_000, 65_507}

// Any two MTUs work together, in both directions and families. TCP learns what fits; longer
// datagrams are fragmented. If the other MTU is smaller, ICMP tells the sender's kernel.
func TestMTU(t *testing.T) {
	pairs := [][]int{{65535, 1500}}
	if !testing.Short() {
		pairs = [][]int{{65535, 65535}, {65535, 9000}, {65535, 1500}, {9000, 9000}, {9000, 1500}, {1500, 1500}, {65535, 1280}, {1500, 576}}
	}
	for _, mtus := range pairs {
		t.Run(fmt.Sprint(mtus), func(t *testing.T) {
			f := exn.Up(t, exn.Options{MTU: mtus, Capture: testing.Short()})
			if mtus[0] != mtus[1] {
				f.OnlyExn("it loses what the other end does not take")
			}
			for i, from := range f.Nodes {
				to := f.Nodes[1-i]
				for _, addr := range families(to, min(mtus[0], mtus[1])) {
					flow := from.Flow(to, addr)
					flow.Await(4 << 20)
					flow.Stop()
					d := from.Datagrams(to, addr)
					for _, size := range datagrams {
						d.Arrives(from, size)
					}
				}
			}
		})
	}
}

// families returns the addresses that can be used with an MTU.
func families(n *exn.Node, mtu int) []netip.Addr {
	const least = 1280 // least MTU for IPv6
	if mtu < least {
		return []netip.Addr{n.IPv4}
	}
	return []netip.Addr{n.IPv4, n.IPv6}
}

// Offloads change what a packet looks like on its way, and nothing else: every
// combination of the two sides.
func TestEachOffload(t *testing.T) {
	for _, mtu := range []int{65535, 1500} {
		for _, offload := range []string{"all", "none", "csum", "csum,tso"} {
			t.Run(fmt.Sprintf("%d %s", mtu, offload), func(t *testing.T) {
				f := exn.Up(t, exn.Options{MTU: []int{mtu}, Flags: []string{"--offload", offload}})
				f.OnlyExn("it has no such switches")
				everyPair(f)
			})
		}
	}
}

// Every node exchanges data with every other, all at once.
func TestNodes(t *testing.T) {
	counts := []int{3}
	if !testing.Short() {
		counts = []int{2, 3, 8}
	}
	for _, count := range counts {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			everyPair(exn.Up(t, exn.Options{Nodes: count}))
		})
	}
}

// everyPair moves a stream and datagrams between all pairs of nodes of a fleet at the same time.
func everyPair(f *exn.Fleet) {
	f.Helper()
	var flows []*exn.Flow
	var all sync.WaitGroup
	pairs := func(do func(from, to *exn.Node, addr netip.Addr)) {
		for _, from := range f.Nodes {
			for _, to := range f.Nodes {
				switch {
				case from == to:
				case (from.ID+to.ID)%2 == 0:
					do(from, to, to.IPv6)
				default:
					do(from, to, to.IPv4)
				}
			}
		}
	}
	pairs(func(from, to *exn.Node, addr netip.Addr) { from.Datagrams(to, addr).Arrives(from, 1400) })
	pairs(func(from, to *exn.Node, addr netip.Addr) { flows = append(flows, from.Flow(to, addr)) })
	for _, flow := range flows {
		flow.Await(256 << 10) // while all others go on
	}
	for _, flow := range flows {
		all.Go(flow.Stop)
	}
	all.Wait()
}
