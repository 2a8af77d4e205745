package exn

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// A mailbox is how other goroutines reach the loop: netstack's timers, the node's
// events, whoever asks for a snapshot. It is one of the loop's sources, so that it
// is polled and armed as the others are.
//
// A poster publishes its letter, then looks whether the loop is armed; the loop
// arms itself, then looks for letters. Both are sequentially consistent, so one of
// them sees the other.
type mailbox struct {
	ring   func() // raises the source and wakes the loop
	filled atomic.Bool
	armed  atomic.Bool

	mu     sync.Mutex
	in     letters
	closed bool
}

// letters are what came, by kind. Between kinds there is no order.
type letters struct {
	frames  [][]byte       // from netstack, to be sent
	events  []fabric.Event // nodes that joined and left
	changed []netip.Addr   // neighbours that were resolved, moved or removed
	failed  []netip.Addr   // neighbours that cannot be resolved
	results []claimResult  // of IPv6 addresses
	asks    []func()
	present []netip.Prefix // the addresses of the device, if they have changed
}

func (l *letters) len() int {
	return len(l.frames) + len(l.events) + len(l.changed) + len(l.failed) + len(l.results) + len(l.asks) + len(l.present)
}

// reset keeps the memory, not what was in it.
func (l *letters) reset() {
	clear(l.frames)
	clear(l.asks)
	*l = letters{l.frames[:0], l.events[:0], l.changed[:0], l.failed[:0], l.results[:0], l.asks[:0], nil}
}

// post lets f put letters in. It returns false, having done nothing, when nobody
// will read them any more.
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

// take swaps the letters that came for an empty set.
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

// close takes the last letters.
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
