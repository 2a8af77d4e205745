package faults

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	state "exnet/exn"
	"exnet/test/exn"
)

// A node stops consuming. Others do not notice; who sends to it sees drops,
// counted, and no hang; and when it goes on, so do its connections.
func TestStall(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 4})
	f.OnlyExn("there is no daemon to stop")
	a, b, c, d := f.Nodes[0], f.Nodes[1], f.Nodes[2], f.Nodes[3]
	stalled := a.Flow(b, b.IPv4)
	others := []*exn.Flow{a.Flow(c, c.IPv4), c.Flow(d, d.IPv4)}
	for _, flow := range append(others, stalled) {
		flow.Await(some)
	}
	before := a.Snapshot()
	b.Signal(syscall.SIGSTOP)
	// A sender that does not care for losses does not hang either.
	flood := a.Datagrams(b, b.IPv4)
	message := make([]byte, 1000)
	for range 20_000 {
		if _, err := flood.Out.Write(message); err != nil {
			t.Fatalf("sending to a node that is stopped: %v", err)
		}
	}
	for _, flow := range others {
		t.Logf("%d bytes to others in %v meanwhile", 4*some, flow.Await(4*some))
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

// Stopped for longer than neighbours and adverts live, a node comes back all
// the same.
func TestLongStall(t *testing.T) {
	if testing.Short() {
		t.Skip("short mode: takes a minute")
	}
	f := exn.Up(t, exn.Options{Nodes: 3})
	f.OnlyExn("there is no daemon to stop")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
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

// dropped is what a node says it lost on sending.
func dropped(s state.Snapshot) uint64 { return s.Statistics.TXDropped + s.Statistics.TXErrors }

// connects wants a connection to work, in either direction.
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
