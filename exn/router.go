package exn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"

	"exnet/exteth"
	"exnet/fabric"
)

// A Router is a netstack that forwards between fabrics, or between subnets of one, as IP routers
// do. It decrements the TTL, reports by ICMP what it cannot forward, fragments where that is
// allowed, and answers pings to its own addresses.
//
//	     fabric A                              fabric B
//	10.1.0.0/24 ──── 10.1.0.1 │ Router │ 10.2.0.1 ──── 10.2.0.0/24
//
// It needs no TUN and no root privileges. The other nodes need routes through it: in A, a route to
// B via 10.1.0.1; in B, a route to A via 10.2.0.1. It is static: it speaks no routing protocol,
// sends no router advertisements, and forwards no multicast.
//
// Nodes of one subnet need no router, and are faster without: a router copies each packet five
// times, and senders complete the checksums of packets for it.
type Router struct {
	net  *netstack
	once sync.Once
	err  error
}

// A RouterPort is an attachment of a Router. Two ports may be attached to one fabric, as two nodes.
// A port with addresses in two subnets joins these.
type RouterPort struct {
	Fabric fabric.Node
	NodeConfig
}

// NewRouter attaches a router to fabrics. It returns when all addresses are claimed and packets are
// forwarded. From then on the router owns the attachments and closes them, even after an error.
func NewRouter(ctx context.Context, ports ...RouterPort) (*Router, error) {
	s, err := newNetstack(true)
	if err == nil {
		err = checkPorts(ports)
	}
	for i, p := range ports {
		if err != nil {
			err = errors.Join(err, p.Fabric.Close())
		} else if err = s.attach(p.Fabric, p.NodeConfig); err != nil {
			err = fmt.Errorf("port %d: %w", i+1, err)
		}
	}
	if err == nil {
		s.route()
		for _, family := range forwarded {
			if e := s.SetForwardingDefaultAndAllNICs(family, true); e != nil {
				err = fmt.Errorf("exn: forwarding: %w", errnoOf(e))
			}
		}
	}
	if err == nil {
		err = s.settle(ctx)
	}
	if err != nil {
		if s != nil {
			err = errors.Join(err, s.end())
		}
		return nil, err
	}
	return &Router{net: s}, nil
}

var forwarded = []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber}

// checkPorts refuses ports whose routes would be ambiguous.
func checkPorts(ports []RouterPort) error {
	var all []netip.Prefix
	for i, p := range ports {
		if err := p.check(); err != nil {
			return fmt.Errorf("port %d: %w", i+1, err)
		}
		if len(p.Addresses) == 0 {
			return fmt.Errorf("port %d: %w: a router has an address in each subnet: give it one", i+1, ErrConfig)
		}
		for _, a := range p.Addresses {
			for _, b := range all {
				if a.Overlaps(b) {
					return fmt.Errorf("port %d: %w: subnet %v overlaps %v of another port: a router joins different subnets", i+1, ErrConfig, a.Masked(), b.Masked())
				}
			}
		}
		all = append(all, p.Addresses...)
	}
	if len(all) < 2 {
		return fmt.Errorf("%w: a router joins two subnets at least: give it another port", ErrConfig)
	}
	return nil
}

// Statistics returns the counters of a port's end of EXT-Eth.
func (r *Router) Statistics(port int) *exteth.Statistics { return r.net.ports[port].link.Statistics() }

// Close leaves the fabrics. It is idempotent.
func (r *Router) Close() error {
	r.once.Do(func() { r.err = r.net.end() })
	return r.err
}
