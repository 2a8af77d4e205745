package exn

import (
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/exteth"
)

// RouterKind is the Kind of a router's port in its Snapshot.
const RouterKind = "router"

// Ports returns the number of ports.
func (r *Router) Ports() int { return len(r.net.ports) }

// Snapshot returns the state of a port in the form of an interface's. Fields that have no meaning
// for a router are zero. Counters that begin with forward count for the whole router.
func (r *Router) Snapshot(port int) Snapshot {
	a := r.net.ports[port]
	s := Snapshot{
		Time: time.Now(), Uptime: time.Since(a.start), Name: a.name(), Kind: RouterKind, Node: a.node.ID(),
		MAC: a.link.MAC().String(), MTU: int(a.link.MTU()),
		Statistics: a.link.Statistics().Interface(), Counters: make(map[string]uint64),
		Settings: Settings{Eager: a.cfg.Eager, TXQueueLen: exteth.TXQueueLen, Offloads: exteth.Caps(0).String()},
	}
	if s.Settings.Eager == 0 {
		s.Settings.Eager = exteth.DefaultEager
	}
	select {
	case <-a.node.Done():
	default:
		s.Carrier = true
	}
	for _, p := range a.addresses() {
		// always held: without its addresses there would be no router
		s.Addresses = append(s.Addresses, AddressState{p, arp.Held.String()})
	}
	for c := range exteth.Counters {
		s.Counters[c.String()] = a.link.Statistics().Get(c)
	}
	f := r.net.Stats().IP.Forwarding
	for name, c := range map[string]*tcpip.StatCounter{
		"forward_unrouteable": f.Unrouteable, "forward_ttl_exhausted": f.ExhaustedTTL, "forward_too_big": f.PacketTooBig,
		"forward_host_unreachable": f.HostUnreachable, "forward_link_local": f.LinkLocalDestination,
		"forward_no_room": f.OutgoingDeviceNoBufferSpace, "forward_errors": f.Errors,
	} {
		s.Counters[name] = c.Value()
	}
	s.Neighbours = neighbours(a.stack, a.nic, a.cfg.Prefix)
	known := make(map[uint16]exteth.Peer)
	for _, p := range a.link.Peers() {
		known[uint16(p.Node)] = p
	}
	for _, n := range a.node.Peers() {
		s.Peers = append(s.Peers, peerState(n, known[uint16(n)], a.cfg.Prefix))
	}
	return s
}

// neighbours reads the neighbour table of one NIC of netstack.
func neighbours(s *stack.Stack, nic tcpip.NICID, prefix arp.Prefix) (all []Neighbour) {
	for _, protocol := range []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber} {
		entries, err := s.Neighbors(nic, protocol)
		if err != nil {
			continue // the NIC is gone and has none
		}
		for _, e := range entries {
			addr, _ := netip.AddrFromSlice(e.Addr.AsSlice())
			n := Neighbour{Addr: addr, State: e.State.String(), Updated: time.Now().Add(-s.Clock().NowMonotonic().Sub(e.UpdatedAt))}
			if len(e.LinkAddr) == len(arp.MAC{}) {
				m := arp.MAC([]byte(e.LinkAddr))
				n.MAC = m.String()
				n.Node, _ = prefix.Node(m)
			}
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b Neighbour) int { return a.Addr.Compare(b.Addr) })
	return all
}
