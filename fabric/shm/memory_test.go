package shm

import (
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// The budget bounds what is allocated here and what is taken from peers, and
// is given back.
func TestBudget(t *testing.T) {
	dir := fabricDir(t)
	n, err := Attach(Config{Dir: dir, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if _, err := n.Alloc(2<<20, 0); err == nil {
		t.Fatal("allocated more than the budget")
	} else {
		wantError(t, err, fabric.ErrMemory, "budget", "Config.Memory", "memory.max")
	}
	for range 3 { // freed memory can be had again
		m, err := n.Alloc(900<<10, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Free(); err != nil {
			t.Fatal(err)
		}
		wantError(t, m.Free(), fabric.ErrClosed)
	}
	// A window of a peer that is too large to be mapped: a fault, and the peer stays.
	other := attach(t, dir, fabric.NodeAny)
	irq, err := n.NewInterrupt()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := n.OpenRMA(0, fabric.PortInterrupts{Receive: irq, Transmit: irq})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.OpenRMA(0, fabric.PortInterrupts{})
	if err != nil {
		t.Fatal(err)
	}
	local := openWindow(t, n, mine, 4096, 0)
	remote := openWindow(t, other, theirs, 4<<20, fabric.RemoteRead)
	d := &fabric.RMADescriptor{Command: fabric.Get, To: theirs.Address(), Length: 4096, Local: local.NLA(), Remote: remote.NLA()}
	eventually(t, "the GET is answered", func() bool { return mine.Post(d) == nil })
	var note [1]fabric.Notification
	if mine.Poll(note[:]); note[0].Fault != fabric.FaultMemory {
		t.Errorf("got %+v, want %v", note[0], fabric.FaultMemory)
	}
	if len(n.Peers()) != 1 {
		t.Error("the peer was dropped")
	}
}

// What an idle channel costs: it has carried VELO messages and notifications
// in both directions.
func TestChannelMemory(t *testing.T) {
	a, b := attachPair(t)
	var ports [2]fabric.VELO
	var rmas [2]fabric.RMA
	var wins [2]fabric.Window
	for i, n := range []*Node{a, b} {
		ports[i] = openVELO(t, n, 0, fabric.PortInterrupts{})
		var err error
		if rmas[i], err = n.OpenRMA(0, fabric.PortInterrupts{}); err != nil {
			t.Fatal(err)
		}
		wins[i] = openWindow(t, n, rmas[i], 64<<20, fabric.RemoteWrite)
	}
	msgs, notes := make([]fabric.Message, 64), make([]fabric.Notification, 64)
	for range 10 * flowSlots {
		for i := range 2 {
			ports[i].Send(fabric.VELODescriptor{To: ports[1-i].Address()}, make([]byte, 120))
			ports[1-i].Poll(msgs)
			d := &fabric.RMADescriptor{Command: fabric.Put, Mask: fabric.NotifyCompleter, To: rmas[1-i].Address(), Length: 4096, Local: wins[i].NLA(), Remote: wins[1-i].NLA()}
			eventually(t, "the PUT is accepted", func() bool { return rmas[i].Post(d) == nil })
			rmas[1-i].Poll(notes)
		}
	}
	for i, n := range []*Node{a, b} {
		if got := register(t, n, fabric.RegRMACompleter); got < 5*flowSlots {
			t.Fatalf("node %d got %d notifications: the rings were not used all around", i, got)
		}
	}
	total := 0
	for _, n := range []*Node{a, b} {
		for _, p := range n.peers {
			total += resident(t, &p.channel.tx.mapping)
		}
	}
	if total > 64<<10 {
		t.Errorf("an idle channel takes %d bytes, want 64 KiB at most", total)
	}
	if got := resident(t, &b.memories[1].m); got > 4096*2 {
		t.Errorf("a window of 64 MiB of which one page was used takes %d bytes", got)
	}
	t.Logf("channel %d bytes, node region %d bytes", total, resident(t, &a.region.mapping))
}

// resident asks the kernel for the pages of a memfd.
func resident(tb testing.TB, m *mapping) int {
	tb.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		tb.Fatal(err)
	}
	return int(st.Blocks) * 512
}
