package faults

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	state "exnet/exn"
	"exnet/test/exn"
)

// standstill is long enough for any machine: TCP that loses one packet five times in a row waits
// for 6 s.
const standstill = 10 * time.Second

// A node stops consuming. Other nodes do not notice. Its senders see counted drops and no hang.
// When it goes on, so do its connections.
func TestStall(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 4})
	f.OnlyExn("there is no daemon to stop")
	a, b, c, d := f.Nodes[0], f.Nodes[1], f.Nodes[2], f.Nodes[3]
	impatient(t, a)
	stalled := a.Flow(b, b.IPv4)
	others := []*exn.Flow{a.Flow(c, c.IPv4), c.Flow(d, d.IPv4), d.Flow(a, a.IPv6)}
	for _, flow := range append(others, stalled) {
		flow.Await(some)
	}
	before := a.Snapshot()
	for _, flow := range others {
		flow.Pause()
	}
	b.Signal(syscall.SIGSTOP)
	flood, datagrams := a.Datagrams(b, b.IPv4), 20_000
	if testing.Short() {
		datagrams = 5_000
	}
	// Datagrams that cross in messages, even in one message, for which there is room for a
	// while; datagrams that have to be fetched; and both in turn.
	for _, sizes := range [][]int{{50, 50}, {300, 300}, {1000, 1000}, {60_000, 60_000}, {50, 1000}} {
		// A sender that ignores losses does not hang either.
		for k := range datagrams {
			if _, err := flood.Out.Write(make([]byte, sizes[k%2])); err != nil {
				t.Fatalf("sending to a node that is stopped: %v", err)
			}
		}
		for _, flow := range others {
			took := flow.Await(some)
			t.Logf("after datagrams of %v bytes %d bytes to others took %v", sizes, some, took)
		}
	}
	// Then a slow trickle, which never lets the node seem to be gone.
	for range 50 {
		for _, size := range []int{50, 1000, 1000} {
			if _, err := flood.Out.Write(make([]byte, size)); err != nil {
				t.Fatalf("sending to a node that is stopped: %v", err)
			}
		}
		for _, flow := range others {
			flow.Await(1 << 20)
		}
	}
	for i, flow := range others {
		pause := flow.Pause()
		t.Logf("flow %d between others had pauses of up to %v", i, pause)
		if pause > standstill {
			t.Errorf("flow %d between others stood still for %v", i, pause)
		}
	}
	after := a.Snapshot()
	if dropped(after) == dropped(before) {
		t.Errorf("nothing was counted as dropped: %v", after.Counters)
	}
	b.Signal(syscall.SIGCONT)
	stalled.Await(some)
	for _, flow := range append(others, stalled) {
		flow.Stop()
	}
}

// While a node is stopped, others come and go. It knows them when it goes on.
func TestJoinWhileStalled(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 3})
	f.OnlyExn("there is no daemon to stop")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
	connects(t, a, b, b.IPv4)
	b.Signal(syscall.SIGSTOP)
	c.Leave()
	c.Restart()
	connects(t, a, c, c.IPv4)
	a.Kill()
	a.Restart()
	connects(t, c, a, a.IPv6)
	b.Signal(syscall.SIGCONT)
	for _, n := range []*exn.Node{a, c} {
		connects(t, b, n, n.IPv4)
		connects(t, n, b, b.IPv6)
	}
}

// A node that was stopped for longer than neighbour entries and adverts live still comes back.
func TestLongStall(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 3})
	f.OnlyExn("there is no daemon to stop")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
	impatient(t, a)
	stalled, other := a.Flow(b, b.IPv4), a.Flow(c, c.IPv4)
	stalled.Await(some)
	b.Signal(syscall.SIGSTOP)
	for begin := time.Now(); time.Since(begin) < 45*time.Second; time.Sleep(time.Second) {
		other.Await(some)
	}
	b.Signal(syscall.SIGCONT)
	stalled.Await(some)
	stalled.Stop()
	other.Stop()
	connects(t, a, b, b.IPv4)
}

// impatient makes TCP of a node wait less long before it retransmits to a node that was stopped.
// Linux's default limit is two minutes.
func impatient(t *testing.T, n *exn.Node) {
	n.NS.Do(t, func() {
		if err := os.WriteFile("/proc/sys/net/ipv4/tcp_rto_max_ms", []byte("10000"), 0); err != nil {
			t.Logf("Linux 6.15 and later can be told: %v", err)
		}
	})
}

// dropped returns how many packets a node lost on sending.
func dropped(s state.Snapshot) uint64 { return s.Statistics.TXDropped + s.Statistics.TXErrors }

// connects checks that a connection works in either direction.
func connects(t *testing.T, from, to *exn.Node, addr netip.Addr) {
	t.Helper()
	out, in := from.Connect(to, addr)
	defer out.Close()
	defer in.Close()
	for _, pair := range [][2]net.Conn{{out, in}, {in, out}} {
		if _, err := pair[0].Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		got := make([]byte, 5)
		pair[1].SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := pair[1].Read(got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
