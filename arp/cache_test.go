package arp

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/fabric"
)

type cacheTest struct {
	*Cache
	now     time.Duration
	changes []netip.Addr
}

func newCacheTest() *cacheTest {
	c := &cacheTest{}
	c.Cache = NewCache(DefaultPrefix, func() time.Duration { return c.now }, func(a netip.Addr) { c.changes = append(c.changes, a) })
	return c
}

func entry(a netip.Addr, n fabric.NodeID, s stack.NeighborState) stack.NeighborEntry {
	m := DefaultPrefix.MAC(n)
	return stack.NeighborEntry{Addr: tcpip.AddrFromSlice(a.AsSlice()), LinkAddr: tcpip.LinkAddress(m[:]), State: s}
}

func (c *cacheTest) want(t *testing.T, a netip.Addr, n fabric.NodeID, ok bool) {
	t.Helper()
	if got, gotOK := c.Lookup(a, c.now); got != n || gotOK != ok {
		t.Errorf("%v is at node %d, %v; want %d, %v", a, got, gotOK, n, ok)
	}
}

func TestCacheFollowsEvents(t *testing.T) {
	c := newCacheTest()
	a6 := netip.MustParseAddr("fe80::2c87:4ff:fe07:7")
	for _, a := range []netip.Addr{addr(1), a6} {
		c.OnNeighborAdded(1, stack.NeighborEntry{Addr: tcpip.AddrFromSlice(a.AsSlice()), State: stack.Incomplete})
		c.want(t, a, 0, false)
		c.OnNeighborChanged(1, entry(a, 7, stack.Reachable))
		c.want(t, a, 7, true)
		for _, s := range []stack.NeighborState{stack.Stale, stack.Delay, stack.Probe} {
			c.OnNeighborChanged(1, entry(a, 7, s))
			c.want(t, a, 7, true)
		}
		c.OnNeighborChanged(1, entry(a, 9, stack.Reachable)) // moved
		c.want(t, a, 9, true)
		c.OnNeighborChanged(1, entry(a, 9, stack.Unreachable))
		c.want(t, a, 0, false)
		c.OnNeighborAdded(1, entry(a, 7, stack.Static))
		c.OnNeighborRemoved(1, entry(a, 7, stack.Static))
		c.want(t, a, 0, false)
		if !slices.Equal(c.changes, []netip.Addr{a, a, a, a, a}) {
			t.Errorf("changes %v", c.changes)
		}
		c.changes = nil
	}
}

// MAC-1: a neighbour with a foreign MAC address is not a node, and is counted.
func TestMAC1CacheForeign(t *testing.T) {
	c := newCacheTest()
	c.OnNeighborAdded(1, entry(addr(1), 7, stack.Reachable))
	for i, mac := range []string{"\x02\x00\x00\x00\x00\x01", "short", ""} {
		e := entry(addr(1), 7, stack.Reachable)
		e.LinkAddr = tcpip.LinkAddress(mac)
		c.OnNeighborChanged(1, e)
		c.want(t, addr(1), 0, false)
		if got := c.Foreign(); got != uint64(i+1) {
			t.Errorf("counted %d of %d", got, i+1)
		}
	}
}

// Packets confirm entries. netstack is asked only about an entry that is used while its neighbour
// is silent.
func TestCacheConfirmation(t *testing.T) {
	c := newCacheTest()
	for i := range 3 {
		c.OnNeighborAdded(1, entry(addr(i), fabric.NodeID(i), stack.Reachable))
	}
	doubts := func(want ...netip.Addr) {
		t.Helper()
		if got := c.Doubts(c.now, nil); !slices.Equal(got, want) {
			t.Errorf("at %v in doubt: %v, want %v", c.now, got, want)
		}
	}
	c.now = ReachableTime
	c.Lookup(addr(0), c.now)
	c.now += DelayFirstProbe
	doubts() // used only while certain
	c.Lookup(addr(0), c.now)
	c.Lookup(addr(1), c.now)
	c.now += DelayFirstProbe - 1
	doubts()
	c.Confirm(addr(1), 2, c.now) // from the wrong node
	c.Confirm(addr(0), 0, c.now)
	c.now++
	doubts(addr(1))
	doubts() // returned once per interval
	c.now += DelayFirstProbe
	doubts(addr(1))
	c.OnNeighborChanged(1, entry(addr(1), 1, stack.Reachable))
	c.now += DelayFirstProbe
	doubts()
	if n := c.doubts.Load(); n != 0 {
		t.Errorf("%d in doubt", n)
	}
	c.now += ReachableTime
	c.Lookup(addr(2), c.now)
	c.OnNeighborRemoved(1, entry(addr(2), 2, stack.Stale))
	if n := c.doubts.Load(); n != 0 {
		t.Errorf("%d in doubt after removal", n)
	}
}

// ARP-1: an announcement moves a known neighbour, and does nothing else.
func TestCacheObserve(t *testing.T) {
	c := newCacheTest()
	c.OnNeighborAdded(1, entry(addr(1), 1, stack.Reachable))
	there := announcement(DefaultPrefix.MAC(2), addr(1))
	if c.Observe(&there, 3, 0) {
		t.Error("an announcement for another node's MAC is believed")
	}
	c.want(t, addr(1), 1, true)
	if !c.Observe(&there, 2, 0) || c.Observe(&there, 2, 0) {
		t.Error("a move is not seen once")
	}
	c.want(t, addr(1), 2, true)
	other := announcement(DefaultPrefix.MAC(2), addr(5))
	request := Packet{Op: Request, SenderMAC: DefaultPrefix.MAC(4), Sender: addr(1), Target: addr(9)}
	if c.Observe(&other, 2, 0) || c.Observe(&request, 4, 0) || c.Len() != 1 {
		t.Error("learnt from an unknown neighbour or a request")
	}
	if got := c.NodeGone(2, nil); !slices.Equal(got, []netip.Addr{addr(1)}) || c.Len() != 0 {
		t.Errorf("node gone: %v", got)
	}
}

// The cache does not grow over 10,000 neighbour changes.
func TestCacheNoGrowth(t *testing.T) {
	c := newCacheTest()
	c.Cache.changed = func(netip.Addr) {}
	p := NewPending(func(int, PendingDrop) {})
	round := func(from int) {
		for i := range 10000 {
			a, n := addr((from+i)%100000), fabric.NodeID(i%1000)
			p.Add(a, i, c.now)
			c.OnNeighborAdded(1, entry(a, n, stack.Incomplete))
			c.OnNeighborChanged(1, entry(a, n, stack.Reachable))
			p.Resolve(a)
			c.now += time.Minute
			c.Lookup(a, c.now)
			c.OnNeighborChanged(1, entry(a, n+1, stack.Stale))
			c.OnNeighborRemoved(1, entry(a, n, stack.Stale))
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round(0)
	before := heap()
	round(10000)
	if after := heap(); after > before+64<<10 {
		t.Errorf("heap grew from %d to %d", before, after)
	}
	if c.Len() != 0 || c.doubts.Load() != 0 || p.Len() != 0 {
		t.Errorf("%d entries, %d in doubt, %d pending", c.Len(), c.doubts.Load(), p.Len())
	}
	runtime.KeepAlive(p)
}

// A lookup by the data path allocates nothing.
func TestCacheLookupAllocates(t *testing.T) {
	c := newCacheTest()
	c.OnNeighborAdded(1, entry(addr(1), 1, stack.Reachable))
	if n := testing.AllocsPerRun(100, func() { c.Lookup(addr(1), time.Hour); c.Confirm(addr(1), 1, time.Hour) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
