package main

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/netns"
)

// A router between two fabrics, with an interface on each.
func TestRoute(t *testing.T) {
	left, right, a, b := netns.New(t), netns.New(t), newFabric(t), newFabric(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics := free.Addr().String()
	free.Close()
	router := start(t, "up", "--metrics", metrics, "--fabric", a, "--node", "9", "--addr", "10.1.0.9/24", "--addr", "fd01::9/64",
		"--route", b+",node=8,addr=10.2.0.9/24,addr=fd02::9/64,mtu=1500")
	ready := <-router.ready
	for _, want := range []string{"10.1.0.9/24", "(node 9 of " + a, "fd02::9/64", "(node 8 of " + b} {
		if !strings.Contains(ready, want) {
			t.Errorf("%q does not say %q; %s", ready, want, router.log.String())
		}
	}
	up(t, left, a, "--node", "1", "--addr", "10.1.0.1/24", "--addr", "fd01::1/64", "--via", "10.2.0.0/24=10.1.0.9", "--via", "fd02::/64=fd01::9")
	up(t, right, b, "--node", "2", "--addr", "10.2.0.1/24", "--addr", "fd02::1/64", "--via", "10.1.0.0/24=10.2.0.9", "--via", "fd01::/64=fd02::9", "--mtu", "1500")
	for _, address := range []string{"10.2.0.1:5000", "[fd02::1]:5000"} {
		var l net.Listener
		var client net.Conn
		var err error
		right.Do(t, func() { l, err = net.Listen("tcp", address) })
		if err != nil {
			t.Fatal(err)
		}
		left.Do(t, func() { client, err = net.Dial("tcp", address) })
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		l.Close()
	}
	// It answers pings to its own addresses, on either side.
	for _, address := range []string{"10.1.0.9", "10.2.0.9", "fd01::9", "fd02::9"} {
		left.Do(t, func() {
			if err := pinged(netip.MustParseAddr(address)); err != nil {
				t.Errorf("ping %s: %v", address, err)
			}
		})
	}
	for dir, says := range map[string][]string{
		a: {"exn0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 65536", "inet 10.1.0.9  netmask 255.255.255.0", "inet6 fd01::9", "node 9 of " + a + "  peers 1  carrier on  router"},
		b: {"exn1: flags", "inet 10.2.0.9", "ether 2e:87:04:07:00:08", "node 8 of " + b},
	} {
		code, out, errs := call(t, plain, "show", "--fabric", dir, "--node", map[string]string{a: "9", b: "8"}[dir])
		for _, want := range says {
			if code != exitDone || !strings.Contains(out, want) {
				t.Errorf("show: exit code %d, %s%s does not say %q", code, out, errs, want)
			}
		}
	}
	for what, says := range map[string]string{
		"nodes": "none", "neighbours": "10.1.0.1", "counters": "rx_packets", "counters --all": "forward_ttl_exhausted", "groups": "ADDRESS", "napi": "router",
	} {
		code, out, errs := call(t, plain, append([]string{"show", "--fabric", a, "--name", "exn0", "--node", "9"}, strings.Fields(what)...)...)
		if code != exitDone || !strings.Contains(out, says) {
			t.Errorf("show %s: exit code %d, %s%s", what, code, out, errs)
		}
	}
	text := scrape(t, metrics)
	for _, want := range []string{`exn_carrier{node="9",interface="exn0"} 1`, `exn_mtu_bytes{node="8",interface="exn1"} 1500`,
		`exn_register{node="8",interface="exn1",register="node"} 8`, `exn_counter_total{node="9",interface="exn0",counter="forward_ttl_exhausted"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	// The same datagram on its way in and on its way out.
	prattle(t, left, "10.2.0.1:5000")
	for _, c := range []struct{ dir, node, side, name, says string }{
		{a, "9", "in", "exn0", "in 1->9"}, {b, "8", "out", "exn1", "out 8->2"},
	} {
		code, out, errs := call(t, plain, "capture", "--fabric", c.dir, "--node", c.node, "-c", "2", c.side, "and", "port 5000 and host 10.1.0.1 and not tcp")
		if code != exitDone || strings.Count(out, "> 10.2.0.1:5000 UDP, 1042 bytes; "+c.says+" rendezvous RMA") != 2 || !strings.Contains(errs, "capturing on "+c.name) {
			t.Errorf("capture: exit code %d, %s%s", code, out, errs)
		}
	}
	if code := router.end(syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code %d: %s", code, router.log.String())
	}
}

// prattle sends datagrams that nobody wants until the test ends.
func prattle(t *testing.T, from *netns.NetNS, to string) {
	t.Helper()
	var c net.Conn
	var err error
	from.Do(t, func() { c, err = net.Dial("udp", to) })
	if err != nil {
		t.Fatal(err)
	}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			_, _ = c.Write(make([]byte, 1000)) // it is told that nobody listens
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-over; c.Close() })
}

func TestRouteRefuses(t *testing.T) {
	a, b, d := newFabric(t), newFabric(t), newFabric(t)
	file := filepath.Join(t.TempDir(), "router.toml")
	if err := os.WriteFile(file, []byte("fabric = \""+a+"\"\naddr = [\"10.1.0.9/24\"]\nroute = [\""+b+",addr=10.1.0.1/16\", \""+d+",addr=10.3.0.1/24\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"--addr 10.1.0.9/24 --route addr=10.2.0.9/24":                      "does not begin with a fabric directory",
		"--addr 10.1.0.9/24 --route " + b:                                  "has no address",
		"--addr 10.1.0.9/24 --route " + b + ",addr=10.2.0.9":               "no address with the length",
		"--addr 10.1.0.9/24 --route " + b + ",fly=1":                       `unknown word "fly=1"`,
		"--addr 10.1.0.9/24 --route " + b + ",addr=10.2.0.9/24,node=65535": "node",
		"--addr 10.1.0.9/24 --route " + b + ",addr=10.2.0.9/24,mtu=10":     "10",
		"--addr 10.1.0.9/24 --route " + b + ",addr=10.1.0.1/16":            "overlaps",
		"--addr 10.1.0.9/24 --tap --route " + b + ",addr=10.2.0.9/24":      "--tap",
		"--route " + b + ",addr=10.2.0.9/24":                               "--addr",
		"--config " + file:                                                 "overlaps", // two ports were read
	} {
		code, out, errs := call(t, plain, append([]string{"up", "--fabric", a}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, errs)
		}
	}
	if left := append(leftovers(t, a), leftovers(t, b)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// pinged sends an echo request and waits for its answer.
func pinged(to netip.Addr) error {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	c, err := net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return err
	}
	defer c.Close()
	b := []byte{request, 0, ^request, 0xff, 0, 0, 0, 0} // with its checksum; the kernel sums IPv6
	if _, err := c.Write(b); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		var answer [64]byte
		n, _, err := c.ReadFrom(answer[:])
		if err != nil {
			return err
		}
		if n == len(b) && answer[0] == reply {
			return nil
		}
	}
}
