package exn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"gvisor.dev/gvisor/pkg/tcpip"

	"exnet/fabric"
	"exnet/fabric/emu"
	"exnet/fabric/shm"
	"exnet/mtu"
)

// backends attach node i to a fabric of the test's own.
var backends = map[string]func(t testing.TB) func(i fabric.NodeID) fabric.Node{
	"emu": func(t testing.TB) func(fabric.NodeID) fabric.Node {
		network := emu.New(emu.Config{Seed: 1})
		t.Cleanup(func() { network.Close() })
		return func(i fabric.NodeID) fabric.Node {
			node, err := network.Attach(i)
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
	},
	"shm": func(t testing.TB) func(fabric.NodeID) fabric.Node {
		dir := t.TempDir() + "/fabric"
		return func(i fabric.NodeID) fabric.Node {
			node, err := shm.Attach(shm.Config{Dir: dir, Node: i})
			if err != nil {
				t.Fatal(err)
			}
			return node
		}
	},
}

func subnets(addresses ...string) (p []netip.Prefix) {
	for _, a := range addresses {
		p = append(p, netip.MustParsePrefix(a))
	}
	return p
}

// join makes node i with 10.0.0.i and fd00::i.
func join(t testing.TB, attach func(fabric.NodeID) fabric.Node, i fabric.NodeID, cfg NodeConfig) *Node {
	t.Helper()
	if cfg.Addresses == nil {
		cfg.Addresses = subnets(fmt.Sprintf("10.0.0.%d/24", i), fmt.Sprintf("fd00::%d/64", i))
	}
	n, err := Join(t.Context(), attach(i), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// pair joins two nodes at the same time, since each claim takes its time.
func pair(t testing.TB, attach func(fabric.NodeID) fabric.Node, cfg NodeConfig) (a, b *Node) {
	t.Helper()
	other := make(chan *Node)
	go func() {
		n, err := Join(context.Background(), attach(2), NodeConfig{MTU: cfg.MTU, Addresses: subnets("10.0.0.2/24", "fd00::2/64")})
		if err != nil {
			t.Error(err)
		}
		other <- n
	}()
	a = join(t, attach, 1, cfg)
	if b = <-other; b == nil {
		t.FailNow()
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

// connect returns both ends of a connection.
func connect(t testing.TB, from, to *Node, network, host string) (client, server net.Conn) {
	t.Helper()
	l, err := to.Listen(network, net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = from.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestNodePassesNettest(t *testing.T) {
	t.Parallel()
	for backend, make := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, make(t), NodeConfig{})
			for _, host := range []string{"10.0.0.2", "fd00::2"} {
				t.Run(host, func(t *testing.T) {
					nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
						c1, c2 := connect(t, a, b, "tcp", host)
						return c1, c2, func() { c1.Close(); c2.Close() }, nil
					})
				})
			}
		})
	}
}

// Errors let a program distinguish the same cases as those of package net.
func TestNodeErrors(t *testing.T) {
	t.Parallel()
	a, b := pair(t, backends["emu"](t), NodeConfig{})
	client, server := connect(t, a, b, "tcp", "10.0.0.2")
	defer server.Close()
	udp, err := a.Dial("udp", "10.0.0.2:9")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	l, err := b.Listen("tcp", "10.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	expired, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	dial := func(network, address string) error { _, err := a.Dial(network, address); return err }
	for _, c := range []struct {
		name string
		op   string // of the OpError
		want error
		call func() error
	}{
		{"refused", "dial", syscall.ECONNREFUSED, func() error { return dial("tcp", "10.0.0.2:9") }},
		{"refused IPv6", "dial", syscall.ECONNREFUSED, func() error { return dial("tcp6", "[fd00::2]:9") }},
		{"no such neighbour", "dial", syscall.EHOSTUNREACH, func() error { return dial("tcp", "10.0.0.77:80") }},
		{"no route", "dial", syscall.ENETUNREACH, func() error { return dial("tcp", "10.9.9.9:80") }},
		{"unknown network", "dial", net.UnknownNetworkError("sctp"), func() error { return dial("sctp", "10.0.0.2:80") }},
		{"unknown network like ours", "dial", net.UnknownNetworkError("tcp44"), func() error { return dial("tcp44", "10.0.0.2:80") }},
		{"context", "dial", os.ErrDeadlineExceeded, func() error { _, err := a.DialContext(expired, "tcp", "10.0.0.2:80"); return err }},
		{"address taken", "listen", syscall.EADDRINUSE, func() error { _, err := b.Listen("tcp", "10.0.0.2:80"); return err }},
		{"address not ours", "listen", syscall.EADDRNOTAVAIL, func() error { _, err := b.Listen("tcp", "10.0.0.1:81"); return err }},
		{"packets by Listen", "listen", net.UnknownNetworkError("udp"), func() error { _, err := b.Listen("udp", ":81"); return err }},
		{"closed port, by ICMP", "read", syscall.ECONNREFUSED, func() error {
			_, _ = udp.Write([]byte("x"))
			_, err := udp.Read(make([]byte, 1))
			return err
		}},
		{"datagram too long", "write", syscall.EMSGSIZE, func() error { _, err := udp.Write(make([]byte, 65508)); return err }},
		{"deadline", "read", os.ErrDeadlineExceeded, func() error {
			_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := client.Read(make([]byte, 1))
			return err
		}},
		{"closed while reading", "read", net.ErrClosed, func() error {
			_ = client.SetReadDeadline(time.Time{})
			time.AfterFunc(time.Millisecond, func() { client.Close() })
			_, err := client.Read(make([]byte, 1))
			return err
		}},
		{"closed", "write", net.ErrClosed, func() error { _, err := client.Write([]byte("x")); return err }},
		{"closed twice", "close", net.ErrClosed, func() error { return client.Close() }},
		{"closed while accepting", "accept", net.ErrClosed, func() error {
			time.AfterFunc(time.Millisecond, func() { l.Close() })
			_, err := l.Accept()
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			op, ok := errors.AsType[*net.OpError](err)
			if !errors.Is(err, c.want) || !ok || op.Op != c.op {
				t.Errorf("got %v (%#v), want %v of %s", err, err, c.want, c.op)
			}
		})
	}
}

// closedAmid closes a connection just before it reads from its endpoint.
type closedAmid struct {
	tcpip.Endpoint
	c *TCPConn
}

func (e closedAmid) Read(w io.Writer, o tcpip.ReadOptions) (tcpip.ReadResult, tcpip.Error) {
	e.c.Close()
	return e.Endpoint.Read(w, o)
}

// A close in the middle of a read does not look like the end of the stream.
func TestNodeClosedAmidRead(t *testing.T) {
	t.Parallel()
	a, b := pair(t, backends["emu"](t), NodeConfig{})
	client, _ := connect(t, a, b, "tcp", "10.0.0.2")
	c := client.(*TCPConn)
	c.ep = closedAmid{c.ep, c}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("read %d bytes, %v, want %v", n, err, net.ErrClosed)
	}
}

// A reset ends connections in use, and so does the end of the node.
func TestNodeEndsConnections(t *testing.T) {
	t.Parallel()
	a, b := pair(t, backends["emu"](t), NodeConfig{})
	client, server := connect(t, a, b, "tcp", "fd00::2")
	if err := server.(*TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset by the peer: %v", err)
	}
	client.Close()

	client, server = connect(t, a, b, "tcp", "10.0.0.2")
	l, err := b.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	go func() { _, err := l.Accept(); results <- err }()
	go func() { _, err := server.Read(make([]byte, 1)); results <- err }()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range cap(results) {
		if err := <-results; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the node was closed: %v", err)
		}
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other node was closed: %v", err)
	}
	if _, err := b.Dial("tcp", "10.0.0.1:80"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial from a closed node: %v", err)
	}
	if _, err := b.Listen("tcp", ":80"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listen on a closed node: %v", err)
	}
}

// What was written before Close arrives, even if the program leaves at once.
func TestNodeCloseDelivers(t *testing.T) {
	t.Parallel()
	a, b := pair(t, backends["shm"](t), NodeConfig{})
	client, server := connect(t, a, b, "tcp", "10.0.0.2")
	defer server.Close()
	const size = 3 << 20
	if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error)
	go func() {
		_, err := client.Write(make([]byte, size))
		client.Close()
		a.Close()
		sent <- err
	}()
	n, err := io.Copy(io.Discard, server)
	if err != nil || n != size {
		t.Errorf("%d of %d bytes arrived: %v", n, size, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// Datagrams of all lengths arrive, on connected and unconnected sockets. A short buffer truncates
// them.
func TestNodePackets(t *testing.T) {
	t.Parallel()
	for backend, make := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, make(t), NodeConfig{})
			for _, host := range []string{"10.0.0.2", "fd00::2"} {
				exchange(t, a, b, host)
			}
		})
	}
}

func exchange(t *testing.T, a, b *Node, host string) {
	t.Helper()
	server, err := b.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.LocalAddr().String())
	client, err := a.Dial("udp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buf := make([]byte, 65536)
	for _, size := range []int{0, 1, 100, 1472, 1473, 9000, 65507} {
		if _, err := client.Write(make([]byte, size)); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		n, from, err := server.ReadFrom(buf)
		if err != nil || n != size || from.String() != client.LocalAddr().String() {
			t.Fatalf("%d bytes: got %d from %v, %v", size, n, from, err)
		}
		if _, err := server.WriteTo(buf[:n], from); err != nil {
			t.Fatalf("answer of %d bytes: %v", n, err)
		}
		if n, err := client.Read(buf); err != nil || n != size {
			t.Fatalf("answer of %d bytes: got %d, %v", size, n, err)
		}
	}
	if _, err := client.Write([]byte("long")); err != nil {
		t.Fatal(err)
	}
	if n, _, err := server.ReadFrom(buf[:2]); err != nil || n != 2 {
		t.Errorf("a short buffer got %d bytes, %v", n, err)
	}
	if _, err := client.(*UDPConn).WriteTo([]byte("x"), server.LocalAddr()); !errors.Is(err, net.ErrWriteToConnected) {
		t.Errorf("WriteTo on a connected socket: %v", err)
	}
	if _, err := server.(*UDPConn).Write([]byte("x")); !errors.Is(err, syscall.EDESTADDRREQ) {
		t.Errorf("Write on a socket without peer: %v", err)
	}
}

// An address is not taken from the node that has it, and the error names that node.
func TestNodeAddressConflict(t *testing.T) {
	t.Parallel()
	attach := backends["shm"](t)
	join(t, attach, 1, NodeConfig{})
	for _, address := range []string{"10.0.0.1/24", "fd00::1/64"} {
		n, err := Join(t.Context(), attach(2), NodeConfig{Addresses: subnets(address)})
		if err == nil {
			n.Close()
		}
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok || conflict.Addr != netip.MustParsePrefix(address).Addr() || conflict.Addr.Is4() && conflict.Node != 1 {
			t.Errorf("%s, which node 1 has: %v", address, err)
		}
	}
	again := join(t, attach, 2, NodeConfig{}) // the refused nodes left nothing behind
	if c, err := again.Dial("udp", "10.0.0.1:9"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// An address that moves to another node is found there at once, because it is announced.
func TestNodeAddressMoves(t *testing.T) {
	t.Parallel()
	attach := backends["emu"](t)
	a, b := pair(t, attach, NodeConfig{})
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		c, s := connect(t, a, b, "tcp", to) // now a knows where it is
		c.Close()
		s.Close()
	}
	b.Close()
	c := join(t, attach, 3, NodeConfig{Addresses: subnets("10.0.0.2/24", "fd00::2/64")})
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		c, s := connect(t, a, c, "tcp", to)
		c.Close()
		s.Close()
	}
}

func TestNodeRefusesConfig(t *testing.T) {
	t.Parallel()
	attach := backends["emu"](t)
	for name, cfg := range map[string]NodeConfig{
		"network address":      {Addresses: subnets("10.0.0.0/24")},
		"broadcast address":    {Addresses: subnets("10.0.0.255/24")},
		"twice":                {Addresses: subnets("10.0.0.1/24", "10.0.0.1/16")},
		"group":                {Addresses: subnets("224.0.0.1/24")},
		"gateway out of reach": {Addresses: subnets("10.0.0.1/24"), Routes: []Route{{Destination: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.2.0.1")}}},
		"families differ":      {Addresses: subnets("10.0.0.1/24"), Routes: []Route{{Destination: netip.MustParsePrefix("fd01::/16"), Gateway: netip.MustParseAddr("10.0.0.2")}}},
	} {
		if n, err := Join(t.Context(), attach(1), cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				n.Close()
			}
		}
	}
	if _, err := Join(t.Context(), attach(1), NodeConfig{MTU: 60}); !errors.Is(err, mtu.ErrRange) {
		t.Errorf("MTU 60: %v", err)
	}
	stopped, stop := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	stop(why)
	if _, err := Join(stopped, attach(1), NodeConfig{Addresses: subnets("10.0.0.1/24")}); !errors.Is(err, why) {
		t.Errorf("Join with a context that ended: %v", err)
	}
}

// A node receives datagrams for the groups that it joined, in both families.
func TestNodeGroups(t *testing.T) {
	t.Parallel()
	a, b := pair(t, backends["emu"](t), NodeConfig{})
	for _, address := range []string{"239.1.2.3", "ff05::123"} {
		group := netip.MustParseAddr(address)
		in, err := b.ListenPacket("udp", net.JoinHostPort(address, "5000"))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := b.JoinGroup(group); err != nil {
			t.Fatal(err)
		}
		out, err := a.Dial("udp", net.JoinHostPort(address, "5000"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		// The sender learns of the membership some time after JoinGroup.
		stop := make(chan struct{})
		go func() {
			for {
				_, _ = out.Write([]byte("hello"))
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}()
		if n, _, err := in.ReadFrom(make([]byte, 10)); n != 5 || err != nil {
			t.Errorf("%s: %d bytes, %v", address, n, err)
		}
		close(stop)
		if err := b.LeaveGroup(group); err != nil {
			t.Error(err)
		}
	}
	if err := b.JoinGroup(netip.MustParseAddr("10.0.0.9")); err == nil {
		t.Error("joined a group that is none")
	}
}
