package exn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/mtu"
	"exnet/test/netns"
)

// route makes a router between two fabrics, as node 9 of each. Hosts of side s (1 or 2) have
// 10.s.0.0/24 and fd0s::/64; the router has 10.s.0.9 and fd0s::9.
func route(t testing.TB, a, b fabric.Node, most mtu.Link) *Router {
	t.Helper()
	r, err := NewRouter(t.Context(),
		RouterPort{a, NodeConfig{Addresses: subnets("10.1.0.9/24", "fd01::9/64")}},
		RouterPort{b, NodeConfig{Addresses: subnets("10.2.0.9/24", "fd02::9/64"), MTU: most}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// beyond returns the routes of a host on one side to the other side.
func beyond(side int) []Route {
	other := 3 - side
	return []Route{
		{Destination: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", other)), Gateway: netip.MustParseAddr(fmt.Sprintf("10.%d.0.9", side))},
		{Destination: netip.MustParsePrefix(fmt.Sprintf("fd0%d::/64", other)), Gateway: netip.MustParseAddr(fmt.Sprintf("fd0%d::9", side))},
	}
}

func hostAddresses(side int) []string {
	return []string{fmt.Sprintf("10.%d.0.1/24", side), fmt.Sprintf("fd0%d::1/64", side)}
}

// TCP and UDP cross between nodes of two fabrics, even of different MTUs: ICMP tells senders of the
// smaller one.
func TestRouterBetweenNodes(t *testing.T) {
	t.Parallel()
	for _, most := range []mtu.Link{0, 1500} {
		t.Run(fmt.Sprintf("MTU %d behind the router", most), func(t *testing.T) {
			t.Parallel()
			a, b := backends["emu"](t), backends["shm"](t)
			route(t, a(9), b(9), most)
			left := join(t, a, 1, NodeConfig{Addresses: subnets(hostAddresses(1)...), Routes: beyond(1)})
			right := join(t, b, 1, NodeConfig{Addresses: subnets(hostAddresses(2)...), Routes: beyond(2), MTU: most})
			for _, to := range []string{"10.2.0.1", "fd02::1"} {
				client, server := connect(t, left, right, "tcp", to)
				if err := transfer(client, server, 1<<20); err != nil {
					t.Error(to, err)
				}
				client.Close()
				server.Close()
			}
			exchangePackets(t, left, right, most == 0)
			if _, err := left.Dial("tcp", "10.3.0.1:80"); !errors.Is(err, syscall.ENETUNREACH) {
				t.Errorf("a subnet that nobody knows: %v", err)
			}
			if testing.Short() {
				return // the rest of the test takes the router three seconds
			}
			if _, err := left.Dial("tcp", "10.2.0.77:80"); !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("a host that the router does not find: %v", err)
			}
		})
	}
}

// exchangePackets sends datagrams that cross the router whole and in fragments.
func exchangePackets(t *testing.T, left, right *Node, large bool) {
	t.Helper()
	server, err := right.ListenPacket("udp", ":7")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sizes := []int{1, 1400}
	if large {
		sizes = append(sizes, 9000, 65507)
	}
	for _, to := range []string{"10.2.0.1:7", "[fd02::1]:7"} {
		client, err := left.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 65536)
		for _, size := range sizes {
			_, _ = client.Write(buf[:size])
			if n, _, err := server.ReadFrom(buf); err != nil || n != size {
				t.Errorf("%s: %d bytes: got %d, %v", to, size, n, err)
			}
		}
		client.Close()
	}
}

// ways gives the kernel of a namespace the routes through the router.
func ways(t *testing.T, ns *netns.NetNS, side int) {
	t.Helper()
	ns.Do(t, func() {
		link, err := netlink.LinkByName("exn0")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range beyond(side) {
			_, dst, err := net.ParseCIDR(r.Destination.String())
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: r.Gateway.AsSlice()}); err != nil {
				t.Fatalf("route to %v via %v: %v", r.Destination, r.Gateway, err)
			}
		}
	})
}

// Kernels of two fabrics talk through a router, which is one hop: it decrements the TTL, and a
// packet with a TTL of 1 ends there.
func TestRouterBetweenKernels(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 1500} {
		t.Run(fmt.Sprintf("MTU %d behind the router", most), func(t *testing.T) {
			t.Parallel()
			a, b := backends["shm"](t), backends["shm"](t)
			route(t, a(9), b(9), mtu.Link(most))
			left := kernel(t, a(1), 0, hostAddresses(1), beyond(1)...)
			right := kernel(t, b(1), most, hostAddresses(2), beyond(2)...)
			ways(t, left, 1)
			ways(t, right, 2)
			for _, to := range []string{"10.2.0.1", "fd02::1"} {
				checkStream(t, left, right, to)
				checkHops(t, left, right, to)
			}
		})
	}
}

func checkStream(t *testing.T, from, to *netns.NetNS, host string) {
	t.Helper()
	var l net.Listener
	var client net.Conn
	var err error
	to.Do(t, func() { l, err = net.Listen("tcp", net.JoinHostPort(host, "0")) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from.Do(t, func() { client, err = net.Dial("tcp", l.Addr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := transfer(client, server, 2<<20); err != nil {
		t.Errorf("%s: %v", host, err)
	}
}

func checkHops(t *testing.T, from, to *netns.NetNS, host string) {
	t.Helper()
	var server net.PacketConn
	var client net.Conn
	var err error
	to.Do(t, func() { server, err = net.ListenPacket("udp", net.JoinHostPort(host, "0")) })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	from.Do(t, func() { client, err = net.Dial("udp", server.LocalAddr().String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buf := make([]byte, 2000)
	v6 := netip.MustParseAddr(host).Is6()
	hear := func() (n, ttl int) {
		if v6 {
			p := ipv6.NewPacketConn(server)
			if err := p.SetControlMessage(ipv6.FlagHopLimit, true); err != nil {
				t.Fatal(err)
			}
			_, _ = client.Write([]byte("hello"))
			n, cm, _, err := p.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			return n, cm.HopLimit
		}
		p := ipv4.NewPacketConn(server)
		if err := p.SetControlMessage(ipv4.FlagTTL, true); err != nil {
			t.Fatal(err)
		}
		_, _ = client.Write([]byte("hello"))
		n, cm, _, err := p.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return n, cm.TTL
	}
	raw, err := client.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	send := func(ttl int) {
		_ = raw.Control(func(fd uintptr) {
			if v6 {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
			} else {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, ttl := range []int{64, 2} {
		send(ttl)
		if n, got := hear(); n != 5 || got != ttl-1 {
			t.Errorf("%s: %d bytes sent with TTL %d came with %d", host, n, ttl, got)
		}
	}
	send(1)
	_, _ = client.Write([]byte("hello"))
	if n, err := client.Read(buf); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("%s: TTL 1: want an ICMP error of the router, got %d bytes, %v", host, n, err)
	}
}

func TestRouterRefusesPorts(t *testing.T) {
	t.Parallel()
	attach := backends["emu"](t)
	ports := func(each ...string) (all []RouterPort) {
		for i, s := range each {
			p := RouterPort{Fabric: attach(fabric.NodeID(i + 1))}
			if s != "" {
				p.Addresses = subnets(s)
			}
			all = append(all, p)
		}
		return all
	}
	for name, given := range map[string][]string{
		"nothing":         nil,
		"one port":        {"10.1.0.1/24"},
		"no address":      {"10.1.0.1/24", ""},
		"subnets overlap": {"10.1.0.1/24", "10.1.0.9/16"},
	} {
		r, err := NewRouter(t.Context(), ports(given...)...)
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			r.Close()
		}
	}
	r, err := NewRouter(t.Context(), ports("10.1.0.1/24", "10.2.0.1/24")...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := NewRouter(t.Context(), RouterPort{attach(3), NodeConfig{Addresses: subnets("10.1.0.1/24")}},
		RouterPort{attach(4), NodeConfig{Addresses: subnets("10.3.0.1/24")}}); !errors.Is(err, ErrConflict) {
		t.Errorf("an address that another router has: %v", err)
	}
}
