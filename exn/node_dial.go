package exn

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Dial connects to an address on the fabric; see [Node.DialContext].
func (n *Node) Dial(network, address string) (net.Conn, error) {
	return n.DialContext(context.Background(), network, address)
}

// DialContext connects to an address on the fabric, as net.Dialer.DialContext does in the kernel.
// Networks are tcp, tcp4, tcp6, udp, udp4 and udp6. The address is "host:port"; without a host it
// means the node itself. Names are resolved as on the machine, for example from /etc/hosts, not on
// the fabric.
//
// It can be used as [net/http.Transport.DialContext].
func (n *Node) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	transport, to, err := n.resolve(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var first error
	for _, a := range to {
		if a.Addr().IsUnspecified() {
			a = netip.AddrPortFrom(n.self(a.Addr()), a.Port())
		}
		var c net.Conn
		var shown net.Addr = net.TCPAddrFromAddrPort(a)
		switch {
		case n.ended():
			err = net.ErrClosed
		case ctx.Err() != nil:
			err = ctxError(ctx)
		case transport == "tcp":
			c, err = n.dialTCP(ctx, network, a)
		default:
			shown = net.UDPAddrFromAddrPort(a)
			c, err = n.dialUDP(network, a)
		}
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = &net.OpError{Op: "dial", Net: network, Addr: shown, Err: err}
		}
	}
	return nil, first
}

// Listen accepts connections, as net.Listen does in the kernel. Networks are tcp,
// tcp4 and tcp6; "tcp" without a host takes IPv4 and IPv6.
func (n *Node) Listen(network, address string) (net.Listener, error) {
	at, err := n.resolveLocal(network, address, "tcp")
	if err == nil {
		var l *TCPListener
		if l, err = n.listenTCP(network, at); err == nil {
			return l, nil
		}
	}
	return nil, &net.OpError{Op: "listen", Net: network, Addr: net.TCPAddrFromAddrPort(at), Err: err}
}

// ListenPacket receives and sends datagrams, as net.ListenPacket does in the kernel. Networks are
// udp, udp4 and udp6. It returns a [*UDPConn].
func (n *Node) ListenPacket(network, address string) (net.PacketConn, error) {
	at, err := n.resolveLocal(network, address, "udp")
	if err == nil {
		var c *UDPConn
		if c, err = n.listenUDP(network, at); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "listen", Net: network, Addr: net.UDPAddrFromAddrPort(at), Err: err}
}

// resolve returns the addresses that an address string stands for, in the order to try them, and
// the transport, "tcp" or "udp".
func (n *Node) resolve(ctx context.Context, network, address string) (transport string, to []netip.AddrPort, err error) {
	transport = strings.TrimRight(network, "46")
	if transport != "tcp" && transport != "udp" || len(network) > len("tcp4") {
		return "", nil, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return "", nil, err
	}
	v4, v6 := !strings.HasSuffix(network, "6"), !strings.HasSuffix(network, "4")
	addresses := []netip.Addr{netip.IPv6Unspecified()}
	switch {
	case host == "" && !v6:
		addresses[0] = netip.IPv4Unspecified()
	case host != "":
		if addresses, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return "", nil, err
		}
	}
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() && v4 || a.Is6() && v6 {
			to = append(to, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	if len(to) == 0 {
		return "", nil, &net.AddrError{Err: "no suitable address found for " + network, Addr: host}
	}
	return transport, to, nil
}

func (n *Node) resolveLocal(network, address, want string) (netip.AddrPort, error) {
	transport, to, err := n.resolve(context.Background(), network, address)
	switch {
	case err != nil:
		return netip.AddrPort{}, err
	case transport != want:
		return netip.AddrPort{}, net.UnknownNetworkError(network)
	case n.ended():
		return to[0], net.ErrClosed
	}
	return to[0], nil
}

// bound makes an endpoint bound to a local address.
func (n *Node) bound(transport tcpip.TransportProtocolNumber, network string, at netip.AddrPort, queue *waiter.Queue) (tcpip.Endpoint, error) {
	protocol := ipv4.ProtocolNumber
	if at.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	ep, err := n.net.NewEndpoint(transport, protocol, queue)
	if err != nil {
		return nil, callError("socket", err)
	}
	options := ep.SocketOptions()
	options.SetReuseAddress(transport == tcp.ProtocolNumber)
	options.SetBroadcast(true)
	if protocol == ipv6.ProtocolNumber {
		options.SetV6Only(strings.HasSuffix(network, "6") || !at.Addr().IsUnspecified())
	}
	if err := ep.Bind(fullAddress(at)); err != nil {
		ep.Close()
		return nil, callError("bind", err)
	}
	return ep, nil
}

// self returns an address of the node in the family of a.
func (n *Node) self(a netip.Addr) netip.Addr {
	protocol := ipv4.ProtocolNumber
	if a.Is6() {
		protocol = ipv6.ProtocolNumber
	}
	own, err := n.net.GetMainNICAddress(n.net.ports[0].nic, protocol)
	if err != nil || own.Address.Len() == 0 {
		return a
	}
	return netipOf(own.Address)
}

// fullAddress returns an address in netstack's form. Only link-local and multicast addresses need
// the NIC, of which a node has one.
func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	full := tcpip.FullAddress{Port: a.Port()}
	if !a.Addr().IsUnspecified() {
		full.Addr = addressOf(a.Addr())
	}
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsMulticast() {
		full.NIC = 1
	}
	return full
}

func addrPortOf(a tcpip.FullAddress) netip.AddrPort {
	addr := netipOf(a.Addr).Unmap()
	if !addr.IsValid() {
		addr = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(addr, a.Port)
}
