package exn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/test/netns"
)

// kernel makes a namespace whose kernel is node i of a fabric, through an exn0.
func kernel(t testing.TB, at fabric.Node, most int, addresses []string, routes ...Route) *netns.NetNS {
	t.Helper()
	ns := netns.New(t)
	cfg := Config{Node: at, Addresses: subnets(addresses...), Routes: routes}
	dev, err := device.Open(device.Config{
		Namespace: ns.String(), MAC: arp.DefaultPrefix.MAC(at.ID()), MTU: most,
		Addresses: cfg.Addresses, Offloads: exteth.CapAll, Owner: "a test",
	})
	if err != nil {
		t.Fatal(err)
	}
	i, err := Open(cfg, dev)
	if err != nil {
		t.Fatal(errors.Join(err, dev.Close(), at.Close()))
	}
	ended := make(chan error, 1)
	go func() { ended <- i.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("the interface ended with %v", err)
		}
		if err := errors.Join(dev.Close(), at.Close()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-i.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return ns
}

// transfer moves n bytes each way at the same time and compares them.
func transfer(client, server net.Conn, n int) error {
	type stream interface {
		net.Conn
		CloseWrite() error
	}
	contents := func(seed byte) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{seed}), int64(n)) }
	results := make(chan error, 4)
	for k, c := range []net.Conn{client, server} {
		go func() {
			_, err := io.Copy(c, contents(byte(k)))
			results <- errors.Join(err, c.(stream).CloseWrite())
		}()
		go func() {
			got, want := sha256.New(), sha256.New()
			_, _ = io.Copy(want, contents(byte(k^1)))
			m, err := io.Copy(got, c)
			if err == nil && !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				err = fmt.Errorf("%d of %d bytes arrived, or they differ", m, n)
			}
			results <- err
		}()
	}
	var errs []error
	for range cap(results) {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// A node and a kernel behind exn0 exchange data, whichever connects, with equal and unequal MTUs.
func TestNodeAndKernel(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		node   mtu.Link
		kernel int
	}{{0, 0}, {1500, 1500}, {1500, 0}, {0, 1500}} {
		t.Run(fmt.Sprintf("MTU %d and %d", m.node, m.kernel), func(t *testing.T) {
			t.Parallel()
			attach := backends["shm"](t)
			ns := kernel(t, attach(2), m.kernel, []string{"10.0.0.2/24", "fd00::2/64"})
			node := join(t, attach, 1, NodeConfig{MTU: m.node})
			for _, family := range []struct{ node, kernel string }{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
				var inKernel net.Listener
				var packets net.PacketConn
				ns.Do(t, func() {
					var err error
					if inKernel, err = net.Listen("tcp", net.JoinHostPort(family.kernel, "0")); err != nil {
						t.Fatal(err)
					}
					if packets, err = net.ListenPacket("udp", net.JoinHostPort(family.kernel, "0")); err != nil {
						t.Fatal(err)
					}
				})
				defer inKernel.Close()
				defer packets.Close()
				inNode, err := node.Listen("tcp", net.JoinHostPort(family.node, "0"))
				if err != nil {
					t.Fatal(err)
				}
				defer inNode.Close()

				client, err := node.Dial("tcp", inKernel.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				server, err := inKernel.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if err := transfer(client, server, 4<<20); err != nil {
					t.Error("the node called:", err)
				}
				client.Close()
				server.Close()

				ns.Do(t, func() { client, err = net.Dial("tcp", inNode.Addr().String()) })
				if err != nil {
					t.Fatal(err)
				}
				if server, err = inNode.Accept(); err != nil {
					t.Fatal(err)
				}
				if err := transfer(client, server, 4<<20); err != nil {
					t.Error("the kernel called:", err)
				}
				client.Close()
				server.Close()

				if client, err = node.Dial("udp", packets.LocalAddr().String()); err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 65536)
				for _, n := range []int{1, 1400, 65000} {
					if n > 1400 && (m.node|mtu.Link(m.kernel)) != 0 {
						continue // in fragments, of which the first is lost and reports the MTU
					}
					_, _ = client.Write(buf[:n])
					got, from, err := packets.ReadFrom(buf)
					if err != nil || got != n {
						t.Fatalf("datagram of %d bytes: got %d, %v", n, got, err)
					}
					_, _ = packets.WriteTo(buf[:n], from)
					if got, err := client.Read(buf); err != nil || got != n {
						t.Fatalf("answer of %d bytes: got %d, %v", n, got, err)
					}
				}
				client.Close()
			}
		})
	}
}
