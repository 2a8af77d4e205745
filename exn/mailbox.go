package exn

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// A mailbox lets other goroutines reach the loop: netstack's timers, the node's events, and callers
// of Snapshot. It is one of the loop's sources, so the loop polls and arms it like the others.
//
// A poster first publishes its letter and then checks whether the loop is armed. The loop first
// arms itself and then checks for letters. Both steps are sequentially consistent, so at least one
// side sees the other.
type mailbox struct {
	ring   func() // raises the source and wakes the loop
	filled atomic.Bool
	armed  atomic.Bool

	mu     sync.Mutex
	in     letters
	closed bool
}

// letters are messages to the loop, by kind. There is no order between kinds.
type letters struct {
	frames  [][]byte       // from netstack, to be sent
	events  []fabric.Event // nodes that joined and left
	changed []netip.Addr   // neighbours that were resolved, moved or removed
	failed  []netip.Addr   // neighbours that cannot be resolved
	results []claimResult  // of IPv6 addresses
	asks    []func()
	present []netip.Prefix // the addresses of the device, if they changed
}

func (l *letters) len() int {
	return len(l.frames) + len(l.events) + len(l.changed) + len(l.failed) + len(l.results) + len(l.asks) + len(l.present)
}

// reset empties the lists but keeps their memory.
func (l *letters) reset() {
	clear(l.frames)
	clear(l.asks)
	*l = letters{l.frames[:0], l.events[:0], l.changed[:0], l.failed[:0], l.results[:0], l.asks[:0], nil}
}

// post lets f add letters. If nobody will read them any more it does nothing and returns false.
func (m *mailbox) post(f func(*letters)) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	f(&m.in)
	m.filled.Store(true)
	m.mu.Unlock()
	if m.armed.Load() {
		m.ring()
	}
	return true
}

// take exchanges the waiting letters for an empty set.
func (m *mailbox) take(empty *letters) bool {
	if !m.filled.Load() {
		return false
	}
	m.mu.Lock()
	m.in, *empty = *empty, m.in
	m.filled.Store(false)
	m.mu.Unlock()
	return true
}

// close closes the mailbox and returns the last letters.
func (m *mailbox) close() (last letters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	last, m.in = m.in, letters{}
	return last
}

// Mask implements napi.Line.
func (m *mailbox) Mask() { m.armed.Store(false) }

// Arm implements napi.Line.
func (m *mailbox) Arm() bool {
	m.armed.Store(true)
	if m.filled.Load() {
		m.armed.Store(false)
		return false
	}
	return true
}
