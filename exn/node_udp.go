package exn

import (
	"bytes"
	"net"
	"net/netip"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	netudp "gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A UDPConn is a UDP socket of a [Node]. It behaves like [net.UDPConn]. It is connected if it comes
// from Dial, and unconnected if it comes from ListenPacket.
type UDPConn struct {
	socket
	remote net.Addr // nil: not connected
	v6     bool
}

var (
	_ net.Conn       = (*UDPConn)(nil)
	_ net.PacketConn = (*UDPConn)(nil)
)

func newUDPConn(ep tcpip.Endpoint, queue *waiter.Queue, network string, v6 bool, node chan struct{}) *UDPConn {
	c := &UDPConn{v6: v6}
	c.open(ep, queue, network, node)
	if a, err := ep.GetLocalAddress(); err == nil {
		c.local = net.UDPAddrFromAddrPort(addrPortOf(a))
	}
	if a, err := ep.GetRemoteAddress(); err == nil {
		c.remote = net.UDPAddrFromAddrPort(addrPortOf(a))
	}
	return c
}

// RemoteAddr implements net.Conn. It is nil if the socket is not connected.
func (c *UDPConn) RemoteAddr() net.Addr { return c.remote }

// Read implements net.Conn. It reads one datagram; the part that does not fit b is lost.
func (c *UDPConn) Read(b []byte) (int, error) {
	n, _, err := c.receive(b)
	return n, c.opError("read", c.remote, err)
}

// ReadFrom implements net.PacketConn.
func (c *UDPConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.receive(b)
	if err != nil {
		return n, nil, c.opError("read", c.remote, err)
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDPAddrPort is ReadFrom without an allocation for the address.
func (c *UDPConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	n, from, err := c.receive(b)
	return n, from, c.opError("read", c.remote, err)
}

func (c *UDPConn) receive(b []byte) (int, netip.AddrPort, error) {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	into := tcpip.SliceWriter(b)
	var got tcpip.ReadResult
	failed, err := c.do(&c.read, func() (err tcpip.Error) {
		got, err = c.ep.Read(&into, tcpip.ReadOptions{NeedRemoteAddr: true})
		return err
	})
	if failed != nil {
		err = callError("recvfrom", failed)
	}
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	return got.Count, addrPortOf(got.RemoteAddr), nil
}

// Write implements net.Conn: it sends one datagram.
func (c *UDPConn) Write(b []byte) (int, error) {
	err := error(syscall.EDESTADDRREQ)
	if c.remote != nil {
		err = c.transmit(b, nil)
	}
	if err != nil {
		return 0, c.opError("write", c.remote, err)
	}
	return len(b), nil
}

// WriteTo implements net.PacketConn. The address is a *net.UDPAddr.
func (c *UDPConn) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(*net.UDPAddr)
	if !ok || a == nil {
		return 0, c.opError("write", to, syscall.EINVAL)
	}
	return c.writeTo(b, a.AddrPort(), to)
}

// WriteToUDPAddrPort is WriteTo without an allocation for the address.
func (c *UDPConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	return c.writeTo(b, to, nil)
}

func (c *UDPConn) writeTo(b []byte, to netip.AddrPort, shown net.Addr) (int, error) {
	var err error
	switch a := to.Addr().Unmap(); {
	case c.remote != nil:
		err = net.ErrWriteToConnected
	case !a.IsValid():
		err = syscall.EDESTADDRREQ
	case a.Is6() && !c.v6:
		err = syscall.EAFNOSUPPORT
	default:
		full := fullAddress(netip.AddrPortFrom(a, to.Port()))
		err = c.transmit(b, &full)
	}
	if err != nil {
		if shown == nil {
			shown = net.UDPAddrFromAddrPort(to)
		}
		return 0, c.opError("write", shown, err)
	}
	return len(b), nil
}

func (c *UDPConn) transmit(b []byte, to *tcpip.FullAddress) error {
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	var from bytes.Reader
	failed, err := c.do(&c.write, func() tcpip.Error {
		from.Reset(b)
		_, err := c.ep.Write(&from, tcpip.WriteOptions{To: to})
		return err
	})
	if failed != nil {
		err = callError("sendto", failed)
	}
	return err
}

func (n *Node) listenUDP(network string, at netip.AddrPort) (*UDPConn, error) {
	queue := new(waiter.Queue)
	ep, err := n.bound(netudp.ProtocolNumber, network, at, queue)
	if err != nil {
		return nil, err
	}
	return newUDPConn(ep, queue, network, !at.Addr().Is4(), n.net.done), nil
}

func (n *Node) dialUDP(network string, to netip.AddrPort) (net.Conn, error) {
	queue := new(waiter.Queue)
	protocol := ipv4.ProtocolNumber
	if to.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	ep, err := n.net.NewEndpoint(netudp.ProtocolNumber, protocol, queue)
	if err != nil {
		return nil, callError("socket", err)
	}
	ep.SocketOptions().SetBroadcast(true)
	if err := ep.Connect(fullAddress(to)); err != nil {
		ep.Close()
		return nil, callError("connect", err)
	}
	return newUDPConn(ep, queue, network, to.Addr().Is6(), n.net.done), nil
}
