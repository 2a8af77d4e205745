package programs

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/arp"
	"exnet/test/debroot"
	"exnet/test/exn"
)

// This script applies the address that the client got.
const lease = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr flush dev "$interface" scope global
ip addr add "$ip/24" dev "$interface"
`

// MCS-2: on a TAP a node gets its address by DHCP, and is then reachable.
func TestDHCP(t *testing.T) {
	root := debroot.Need(t, "dnsmasq-base", "udhcpc", "iproute2")
	f := exn.Up(t, exn.Options{TAP: true, Bare: true, Capture: true})
	server, client := f.Nodes[0], f.Nodes[1]
	const serverAddr = "10.87.9.1"
	server.Run(server.Program(root, "ip", "addr", "add", serverAddr+"/24", "dev", exn.Link))
	server.Serve(0, server.Program(root, "dnsmasq", "--no-daemon", "--port=0", "--user=root", "--conf-file=/dev/null", "--log-dhcp",
		"--interface="+exn.Link, "--bind-interfaces", "--dhcp-range=10.87.9.100,10.87.9.110,1h", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases")))
	script := filepath.Join(t.TempDir(), "lease")
	if err := os.WriteFile(script, []byte(lease), 0o755); err != nil {
		t.Fatal(err)
	}
	client.Run(client.Program(root, "udhcpc", "-i", exn.Link, "-f", "-q", "-n", "-t", "20", "-T", "1", "-s", script))
	var addr netip.Addr
	client.NS.Do(t, func() {
		link, err := net.InterfaceByName(exn.Link)
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := link.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && strings.HasPrefix(p.Addr().String(), "10.87.9.1") {
				addr = p.Addr()
			}
		}
	})
	if !addr.IsValid() {
		t.Fatal("udhcpc has set no address of the range")
	}
	if !f.IsVeth() {
		// the daemon has noticed the address
		client.AwaitAddress(netip.PrefixFrom(addr, 24), arp.Held.String())
	}
	flow := server.Flow(client, addr)
	flow.Await(4 << 20)
	flow.Stop()
}

// tcpdump on exn0 sees the traffic, and finds the checksums correct where they are complete.
func TestTcpdump(t *testing.T) {
	root := debroot.Need(t, "tcpdump", "iputils-ping")
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	file := filepath.Join(t.TempDir(), "dump")
	const packets = "6"
	d := b.Serve(0, b.Program(root, "tcpdump", "-i", exn.Link, "-n", "-U", "-c", packets, "-w", file, "--immediate-mode", "-Z", "root", "icmp"))
	// It reports when it listens; it does not see what is sent before.
	for !bytes.Contains(d.Said(), []byte("listening on")) {
		d.Alive()
	}
	a.Run(a.Program(root, "ping", "-n", "-c", "3", "-i", "0.02", "-s", "1000", b.IPv4.String()))
	d.Exit()
	out := string(a.Run(a.Program(root, "tcpdump", "-Z", "root", "-n", "-v", "-r", file)))
	if strings.Count(out, "echo request") != 3 || strings.Count(out, "echo reply") != 3 || strings.Contains(out, "wrong") || strings.Contains(out, "bad cksum") {
		t.Errorf("tcpdump saw:\n%s", out)
	}
}

// tshark reads our captures: the frames, and the comment of each.
func TestTshark(t *testing.T) {
	root := debroot.Need(t, "tshark", "iputils-ping")
	f := exn.Up(t, exn.Options{Capture: true})
	f.OnlyExn("it has no captures of its own")
	a, b := f.Nodes[0], f.Nodes[1]
	a.Run(a.Program(root, "ping", "-n", "-c", "3", "-i", "0.02", "-s", "100", b.IPv4.String()))
	a.Run(a.Program(root, "ping", "-n", "-c", "3", "-i", "0.02", "-s", "20000", b.IPv4.String()))
	const bulk = 4 << 20 // whose packets directly follow each other
	out, in := a.Connect(b, b.IPv4)
	go func() {
		_, _ = out.Write(make([]byte, bulk))
		_ = out.Close()
	}()
	if n, err := io.Copy(io.Discard, in); n != bulk || err != nil {
		t.Fatalf("%d bytes by TCP: %v", n, err)
	}
	_ = in.Close()
	file := b.StopCapture()
	icmp := string(a.Run(a.Program(root, "tshark", "-r", file, "-Y", "icmp", "-T", "fields",
		"-e", "eth.src", "-e", "eth.dst", "-e", "icmp.type", "-e", "frame.len", "-e", "frame.comment")))
	if n := strings.Count(icmp, "\n"); n != 12 {
		t.Errorf("%d pings and answers, want 12:\n%s", n, icmp)
	}
	for _, want := range []string{"2e:87:04:07:00:01", "2e:87:04:07:00:02", "eager", "rendezvous"} {
		if !strings.Contains(icmp, want) {
			t.Errorf("no %q in what tshark reads:\n%s", want, icmp)
		}
	}
	// tshark also knows the length of big packets, whose headers do not say it.
	const headers = 14 + 20 + 32
	longest, total := 0, 0
	for line := range strings.Lines(string(a.Run(a.Program(root, "tshark", "-r", file, "-Y", "tcp.len > 0", "-T", "fields", "-e", "frame.len", "-e", "tcp.len")))) {
		var frame, payload int
		if _, err := fmt.Sscan(line, &frame, &payload); err != nil || frame != headers+payload {
			t.Errorf("%q: %v; want a frame %d bytes longer than its payload", line, err, headers)
		}
		longest = max(longest, payload)
		total += payload
	}
	if big := a.Snapshot().Counters["tx_coupled"] > 0; longest == 0 || big && longest < 1<<16 {
		t.Errorf("%d bytes of TCP in the longest packet; there are big ones: %v", longest, big)
	}
	if total < bulk {
		t.Errorf("%d bytes of TCP were captured, want %d", total, bulk)
	}
	all := string(a.Run(a.Program(root, "tshark", "-r", file, "-Y", "_ws.malformed or _ws.expert.severity == error")))
	if strings.TrimSpace(all) != "" {
		t.Errorf("tshark complains of:\n%s", all)
	}
}
