package exn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	netarp "gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	netudp "gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
)

// NodeConfig configures one attachment of netstack to a fabric. A [Node] has one attachment, a
// [Router] several. Zero values mean the defaults.
type NodeConfig struct {
	// Addresses are the node's, each with the length of its subnet. The node claims each, and
	// gets an error if another node has it. The node's link-local IPv6 address is always added.
	Addresses []netip.Prefix
	// Routes lead to networks behind routers in the subnets of Addresses.
	Routes []Route
	// MTU is the largest IP packet; 65,536 by default.
	MTU mtu.Link
	// Prefix is the prefix of MAC addresses. It is the same on all nodes of a fabric.
	Prefix arp.Prefix
	// Eager is the longest frame, in bytes, that crosses by VELO.
	Eager int
	// Claim sets the timing of address claims. The default suits a fabric.
	Claim arp.Timing
	// Log takes what no call returns, such as a later address conflict. By default it is
	// dropped.
	Log *slog.Logger
}

// check finds what cannot work before anything is started.
func (c *NodeConfig) check() error {
	seen := make(map[netip.Addr]bool)
	for _, p := range c.Addresses {
		a := p.Addr()
		switch {
		case checkAddress(p) != nil:
			return checkAddress(p)
		case a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p)):
			return fmt.Errorf("%w: address %v is the first or the last of its subnet, which mean all of it: choose another", ErrConfig, p)
		case seen[a]:
			return fmt.Errorf("%w: address %v is given twice", ErrConfig, a)
		}
		seen[a] = true
	}
	for _, r := range c.Routes {
		if err := r.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		onLink := r.Gateway.IsLinkLocalUnicast() || slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Contains(r.Gateway) })
		if !onLink {
			return fmt.Errorf("%w: route to %v: router %v is in no subnet of the node: choose one in %v", ErrConfig, r.Destination, r.Gateway, c.Addresses)
		}
	}
	return nil
}

// lastOf returns the broadcast address of an IPv4 subnet.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// A netstack is gVisor's network stack on one fabric or several.
type netstack struct {
	*stack.Stack
	ports    []*attachment
	forwards bool
	done     chan struct{} // closed as the first step of ending
}

const (
	// tcpBuffer: to a kernel behind exn0, 256 KiB move less than half of what 1 MiB moves,
	// because the window has to hold what is under way in the queues of both sides. More than 4
	// MiB gains nothing.
	tcpBuffer    = 1 << 20
	tcpBufferMax = 4 << 20
	tcpBufferMin = 4 << 10
)

// newNetstack makes a stack without NICs. A stack that forwards has no TCP. Its NICs do not touch
// checksums, because those of forwarded packets are complete, but TCP relies on NICs to compute
// them.
func newNetstack(forwards bool) (*netstack, error) {
	transports := []stack.TransportProtocolFactory{netudp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6}
	if !forwards {
		transports = append(transports, tcp.NewProtocolCUBIC)
	}
	s := stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			netarp.NewProtocol,
			ipv4.NewProtocolWithOptions(ipv4.Options{IGMP: ipv4.IGMPOptions{Enabled: true}}),
			ipv6.NewProtocolWithOptions(ipv6.Options{
				MLD: ipv6.MLDOptions{Enabled: true},
				// One probe, as RFC 4862 says, but a shorter wait: a fabric answers
				// in microseconds.
				DADConfigs: stack.DADConfigurations{DupAddrDetectTransmits: 1, RetransmitTimer: 300 * time.Millisecond},
			}),
		},
		TransportProtocols: transports,
		HandleLocal:        true,
	})
	n := &netstack{Stack: s, forwards: forwards, done: make(chan struct{})}
	if forwards {
		s.SetNFTables(pin{n})
		s.SetNFTablesConfigured(true)
		return n, nil
	}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcpBufferMin, Default: tcpBuffer, Max: tcpBufferMax}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcpBufferMin, Default: tcpBuffer, Max: tcpBufferMax}
	for _, err := range []tcpip.Error{
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &send),
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive),
	} {
		if err != nil {
			s.Destroy()
			return nil, fmt.Errorf("exn: buffers of TCP: %w", errnoOf(err))
		}
	}
	return n, nil
}

// attach makes a NIC on a fabric and starts to claim its addresses. From then on the netstack owns
// the fabric node, even after an error.
func (s *netstack) attach(node fabric.Node, cfg NodeConfig) error {
	a, err := newAttachment(node, cfg, s.Stack, s.forwards, tcpip.NICID(len(s.ports)+1))
	if err != nil {
		return errors.Join(err, node.Close())
	}
	s.ports = append(s.ports, a)
	return nil
}

// settle waits until all addresses are claimed.
func (s *netstack) settle(ctx context.Context) error {
	for _, a := range s.ports {
		for range a.claiming {
			select {
			case err := <-a.verdicts:
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return fmt.Errorf("exn: claiming the addresses of node %d: %w", a.node.ID(), context.Cause(ctx))
			case <-a.node.Done():
				return fmt.Errorf("exn: claiming the addresses of node %d: %w", a.node.ID(), fabric.ErrClosed)
			}
		}
	}
	return nil
}

// route sets the route table: subnets on the link, and routes through routers.
func (s *netstack) route() {
	var table []tcpip.Route
	for _, a := range s.ports {
		table = append(table,
			tcpip.Route{Destination: header.IPv6LinkLocalPrefix.Subnet(), NIC: a.nic},
			tcpip.Route{Destination: subnetOf(netip.MustParsePrefix("224.0.0.0/4")), NIC: a.nic},
			tcpip.Route{Destination: header.IPv4Broadcast.WithPrefix().Subnet(), NIC: a.nic},
			tcpip.Route{Destination: subnetOf(netip.MustParsePrefix("ff00::/8")), NIC: a.nic})
		for _, p := range a.cfg.Addresses {
			table = append(table, tcpip.Route{Destination: subnetOf(p), NIC: a.nic})
		}
		for _, r := range a.cfg.Routes {
			table = append(table, tcpip.Route{Destination: subnetOf(r.Destination), Gateway: addressOf(r.Gateway), NIC: a.nic})
		}
	}
	slices.SortStableFunc(table, func(a, b tcpip.Route) int { return cmp.Compare(b.Destination.Prefix(), a.Destination.Prefix()) })
	s.SetRouteTable(table)
}

// end stops everything. It returns when all goroutines have ended.
func (s *netstack) end() error {
	close(s.done)
	for _, a := range s.ports {
		a.stopClaiming()
	}
	s.Destroy()
	var errs []error
	for _, a := range s.ports {
		<-a.link.Done()
		errs = append(errs, a.node.Close())
	}
	return errors.Join(errs...)
}

func addressOf(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func netipOf(a tcpip.Address) netip.Addr {
	n, _ := netip.AddrFromSlice(a.AsSlice())
	return n
}

func subnetOf(p netip.Prefix) tcpip.Subnet {
	return tcpip.AddressWithPrefix{Address: addressOf(p.Addr()), PrefixLen: p.Bits()}.Subnet()
}
