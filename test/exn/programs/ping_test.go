package programs

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/exn"
)

// pings are the payload lengths to try: none, what fits each MTU and one byte more, and the
// maximum.
var pings = []int{0, 56, 1472, 1473, 8972, 8973, 65507}

// ETH-1: ping and ping6 work up to the longest packets, whole or in fragments.
func TestPing(t *testing.T) {
	root := debroot.Need(t, "iputils-ping")
	for _, mtu := range []int{65535, 9000, 1500} {
		if testing.Short() && mtu == 9000 {
			continue
		}
		t.Run(fmt.Sprintf("MTU %d", mtu), func(t *testing.T) {
			f := exn.Up(t, exn.Options{MTU: []int{mtu}})
			a, b := f.Nodes[0], f.Nodes[1]
			for _, to := range []netip.Addr{b.IPv4, b.IPv6} {
				for _, size := range pings {
					ping(t, root, a, to, size)
				}
			}
		})
	}
}

// ping sends pings until three are answered, which must be soon. Without -w ping waits for an
// answer only twice as long as the answers before took, which may be too short on a busy machine.
func ping(t *testing.T, root *debroot.Root, from *exn.Node, to netip.Addr, size int) {
	t.Helper()
	out := string(from.Run(from.Program(root, "ping", "-n", "-c", "3", "-i", "0.02", "-s", fmt.Sprint(size), "-w", "20", to.String())))
	answered := regexp.MustCompile(`([3-9]|\d\d+) received`).MatchString(out)
	if !answered || strings.Contains(out, "wrong data") || strings.Contains(out, "DUP") {
		t.Errorf("%d bytes to %v:\n%s", size, to, out)
	}
}

// A node that does not exist is reported as unreachable.
func TestPingNobody(t *testing.T) {
	root := debroot.Need(t, "iputils-ping")
	f := exn.Up(t, exn.Options{})
	a := f.Nodes[0]
	for _, nobody := range []string{"10.87.0.200", "fd87::200"} {
		cmd := a.Program(root, "ping", "-n", "-c", "1", "-w", "15", nobody)
		out, err := a.Try(cmd)
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "nreachable") {
			t.Errorf("ping %s: %v", nobody, err)
		}
	}
}

// The nodes are on one link: there is one hop, and the TTL does not change on the way.
func TestOneHop(t *testing.T) {
	root := debroot.Need(t, "traceroute", "iputils-ping")
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	for _, to := range []netip.Addr{b.IPv4, b.IPv6} {
		for _, how := range []string{"--icmp", "--udp", "--tcp"} {
			out := a.Run(a.Program(root, "traceroute.db", "-n", how, "-w", "10", to.String()))
			var hops []string
			for line := range strings.Lines(string(out)) {
				if fields := strings.Fields(line); len(fields) > 1 && strings.Trim(fields[0], "0123456789") == "" {
					hops = append(hops, fields[1])
				}
			}
			if len(hops) != 1 || hops[0] != to.String() {
				t.Errorf("traceroute %s %v: %q\n%s", how, to, hops, out)
			}
		}
		out := string(a.Run(a.Program(root, "ping", "-n", "-c", "1", "-t", "1", to.String())))
		if !strings.Contains(out, "ttl=64") {
			t.Errorf("ping with TTL 1 to %v:\n%s", to, out)
		}
	}
}
