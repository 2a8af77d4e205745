package arp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/fabric"
)

const (
	// ReachableTime is how long a neighbour is trusted to stay where it is after a confirmation
	// (RFC 4861, section 10).
	ReachableTime = 30 * time.Second
	// DelayFirstProbe is how long an entry may then be used without confirmation before
	// netstack is asked to probe (RFC 4861, section 10).
	DelayFirstProbe = 5 * time.Second
)

// A Cache maps neighbours to nodes for the data path. netstack's neighbour table is the authority.
// The cache holds only what the table reported, and has the same bound (512 dynamic entries per
// NIC).
//
// netstack does not see the packets of the data path, so the cache ages entries itself. An entry
// that is used more than [ReachableTime] after its last confirmation is in doubt. A packet from the
// neighbour confirms it ([Cache.Confirm]). If none comes for [DelayFirstProbe], [Cache.Doubts]
// returns the neighbour, and the caller makes netstack probe it. The resulting event confirms or
// removes the entry. Packets flow meanwhile.
//
// All methods are safe for concurrent use. The changed function given to NewCache is called without
// a lock held, on the goroutine that caused the change.
type Cache struct {
	prefix  Prefix
	clock   func() time.Duration
	changed func(netip.Addr)

	doubts  atomic.Int32 // entries with doubt != 0
	foreign atomic.Uint64

	mu      sync.RWMutex
	entries map[netip.Addr]*neighbour
}

type neighbour struct {
	node      fabric.NodeID
	confirmed atomic.Int64 // time.Duration
	doubt     atomic.Int64 // time.Duration of the first use in doubt; 0: not in doubt
}

var _ stack.NUDDispatcher = (*Cache)(nil)

// NewCache makes an empty cache. clock is used only for netstack's events. It counts from the same
// moment as the times passed to the methods. changed may be nil.
func NewCache(prefix Prefix, clock func() time.Duration, changed func(netip.Addr)) *Cache {
	if changed == nil {
		changed = func(netip.Addr) {}
	}
	return &Cache{prefix: prefix, clock: clock, changed: changed, entries: make(map[netip.Addr]*neighbour)}
}

// Lookup returns the node of a neighbour. It is the fast path.
func (c *Cache) Lookup(a netip.Addr, now time.Duration) (n fabric.NodeID, ok bool) {
	c.mu.RLock()
	e := c.entries[a]
	if e == nil {
		c.mu.RUnlock()
		return 0, false
	}
	n = e.node
	if now-time.Duration(e.confirmed.Load()) > ReachableTime && e.doubt.Load() == 0 {
		if e.doubt.CompareAndSwap(0, max(1, int64(now))) {
			c.doubts.Add(1)
		}
	}
	c.mu.RUnlock()
	return n, true
}

// Doubting reports whether any neighbour is in doubt. If not, Confirm has nothing to do.
func (c *Cache) Doubting() bool { return c.doubts.Load() != 0 }

// Confirm says that a packet with source address a came from node n. It costs one load while no
// entry is in doubt.
func (c *Cache) Confirm(a netip.Addr, n fabric.NodeID, now time.Duration) {
	if c.doubts.Load() == 0 {
		return
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.entries[a]; e != nil && e.node == n {
		c.confirm(e, now)
	}
}

func (c *Cache) confirm(e *neighbour, now time.Duration) {
	e.confirmed.Store(int64(now))
	if e.doubt.Swap(0) != 0 {
		c.doubts.Add(-1)
	}
}

// Doubts appends the neighbours that netstack should probe now. It returns each again after another
// [DelayFirstProbe].
func (c *Cache) Doubts(now time.Duration, to []netip.Addr) []netip.Addr {
	if c.doubts.Load() == 0 {
		return to
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for a, e := range c.entries {
		if d := e.doubt.Load(); d != 0 && now-time.Duration(d) >= DelayFirstProbe {
			e.doubt.CompareAndSwap(d, max(1, int64(now)))
			to = append(to, a)
		}
	}
	return to
}

// Observe looks at an ARP packet that node from sent. An announcement confirms the neighbour, or
// shows that it moved there. netstack does not believe a move that it did not ask about (RFC 4861,
// 7.2.5, without the override flag). So if moved is true, the caller makes netstack forget the
// neighbour, and the next packet resolves it again. The caller can pass any other announcement to
// netstack as a reply ([Packet.AsReply]), because netstack ignores requests that are not for it.
// Observe learns nothing from unknown senders.
func (c *Cache) Observe(p *Packet, from fabric.NodeID, now time.Duration) (moved bool) {
	n, ok := c.prefix.Node(p.SenderMAC)
	if !ok || n != from || !p.Announcement() {
		return false
	}
	c.mu.Lock()
	e := c.entries[p.Sender]
	if e == nil {
		c.mu.Unlock()
		return false
	}
	moved = e.node != n
	e.node = n
	c.confirm(e, now)
	c.mu.Unlock()
	if moved {
		c.changed(p.Sender)
	}
	return moved
}

// AsReply returns an announcement as a reply, from which netstack learns.
func (p *Packet) AsReply(to MAC, toAddr netip.Addr) Packet {
	return Packet{Op: Reply, SenderMAC: p.SenderMAC, Sender: p.Sender, TargetMAC: to, Target: toAddr}
}

// NodeGone removes the neighbours of a node that left the fabric. It appends their addresses, so
// the caller can remove them from netstack, too.
func (c *Cache) NodeGone(n fabric.NodeID, to []netip.Addr) []netip.Addr {
	from := len(to)
	c.mu.Lock()
	for a, e := range c.entries {
		if e.node == n {
			c.delete(a, e)
			to = append(to, a)
		}
	}
	c.mu.Unlock()
	for _, a := range to[from:] {
		c.changed(a)
	}
	return to
}

// Len returns the number of entries.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}

// Foreign returns how many events named a MAC address that belongs to no node of this fabric.
// Packets for such a neighbour stay unresolved (MAC-1).
func (c *Cache) Foreign() uint64 { return c.foreign.Load() }

func (c *Cache) delete(a netip.Addr, e *neighbour) {
	if e.doubt.Swap(0) != 0 {
		c.doubts.Add(-1)
	}
	delete(c.entries, a)
}

// OnNeighborAdded implements stack.NUDDispatcher.
func (c *Cache) OnNeighborAdded(_ tcpip.NICID, e stack.NeighborEntry) { c.event(e) }

// OnNeighborChanged implements stack.NUDDispatcher.
func (c *Cache) OnNeighborChanged(_ tcpip.NICID, e stack.NeighborEntry) { c.event(e) }

// OnNeighborRemoved implements stack.NUDDispatcher.
func (c *Cache) OnNeighborRemoved(_ tcpip.NICID, e stack.NeighborEntry) {
	if a, ok := netip.AddrFromSlice(e.Addr.AsSlice()); ok {
		c.remove(a)
	}
}

func (c *Cache) remove(a netip.Addr) {
	c.mu.Lock()
	e := c.entries[a]
	if e != nil {
		c.delete(a, e)
	}
	c.mu.Unlock()
	if e != nil {
		c.changed(a)
	}
}

// event updates an entry to netstack's state. Stale, Delay and Probe keep what is known: packets go
// on while netstack asks (RFC 4861, 7.3.2).
func (c *Cache) event(e stack.NeighborEntry) {
	a, ok := netip.AddrFromSlice(e.Addr.AsSlice())
	if !ok {
		return
	}
	switch e.State {
	case stack.Reachable, stack.Static, stack.Stale, stack.Delay, stack.Probe:
	case stack.Unreachable:
		c.remove(a)
		return
	default: // Unknown, Incomplete: not resolved yet
		return
	}
	var n fabric.NodeID
	if ok = len(e.LinkAddr) == len(MAC{}); ok {
		n, ok = c.prefix.Node(MAC([]byte(e.LinkAddr)))
	}
	if !ok {
		c.foreign.Add(1)
		c.remove(a)
		return
	}
	now := c.clock()
	c.mu.Lock()
	old := c.entries[a]
	changed := old == nil || old.node != n
	if old == nil {
		old = &neighbour{}
		c.entries[a] = old
		old.confirmed.Store(int64(now))
	}
	old.node = n
	if e.State == stack.Reachable || e.State == stack.Static || changed {
		c.confirm(old, now)
	}
	c.mu.Unlock()
	if changed {
		c.changed(a)
	}
}
