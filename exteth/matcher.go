package exteth

import (
	"math/bits"
	"time"

	"exnet/fabric"
)

// A matchKey identifies the notification that ends a transfer (MAT-2): its kind, the other node,
// and the address of the transfer's last packet (MAT-1), which [fabric.LastPacket] computes.
type matchKey struct {
	kind  fabric.Kind
	peer  fabric.NodeID
	local fabric.NLA
}

func (k matchKey) hash() uint64 {
	// A multiplicative hash: use the high bits of the product, which mix best.
	h := uint64(k.local) ^ uint64(k.peer)<<40 ^ uint64(k.kind)<<60
	return h * 0x9e3779b97f4a7c15
}

// A matcher pairs transfers with notifications, each in O(1) and without allocating. Equal keys
// match first in, first out. A notification without a transfer is parked; beyond a bound, the
// oldest parked one is forgotten.
//
//	bucket ──► entry ──► entry ──► …      chains in order of arrival: FIFO per key
//	expected:  oldest ◄──► … ◄──► newest  by age, for time-outs
//	parked:    oldest ◄──► … ◄──► newest  by age, for the bound
type matcher[V any] struct {
	entries  []matchEntry[V]
	buckets  []int32 // heads of chains
	shift    uint8
	free     int32
	expected ageList
	parked   ageList
	parkMost int
}

type matchEntry[V any] struct {
	key            matchKey
	value          V
	deadline       time.Duration
	chain          int32
	older, younger int32
	parked         bool
}

type ageList struct {
	oldest, newest int32
	n              int
}

const none = int32(-1)

// newMatcher makes a matcher for the given numbers of transfers and parked notifications.
func newMatcher[V any](transfers, parkMost int) *matcher[V] {
	n := transfers + parkMost
	width := bits.Len(uint(2*n - 1)) // at most half full
	m := &matcher[V]{
		entries:  make([]matchEntry[V], n),
		buckets:  make([]int32, 1<<width),
		shift:    uint8(64 - width),
		expected: ageList{none, none, 0},
		parked:   ageList{none, none, 0},
		parkMost: parkMost,
	}
	for i := range m.entries {
		m.entries[i].chain = int32(i) - 1
	}
	m.free = int32(n - 1)
	for i := range m.buckets {
		m.buckets[i] = none
	}
	return m
}

// expecting returns how many transfers are under way.
func (m *matcher[V]) expecting() int { return m.expected.n }

// room reports whether another transfer may be expected.
func (m *matcher[V]) room() bool { return m.expected.n < len(m.entries)-m.parkMost }

// expect enters a transfer. If its notification is already parked, expect removes that and returns
// true without entering anything. The caller has checked room.
func (m *matcher[V]) expect(k matchKey, v V, deadline time.Duration) (early bool) {
	if i := m.find(k, true); i != none {
		m.remove(i)
		return true
	}
	m.enter(k, v, deadline, false)
	return false
}

// notify takes the oldest transfer of the key. If there is none, it parks the notification; forgot
// reports that it had to give up an older parked one.
func (m *matcher[V]) notify(k matchKey, now time.Duration) (v V, ok, forgot bool) {
	if v, ok = m.take(k); ok {
		return v, true, false
	}
	if m.parkMost == 0 {
		return v, false, true
	}
	if m.parked.n == m.parkMost {
		m.remove(m.parked.oldest)
		forgot = true
	}
	var zero V
	m.enter(k, zero, now, true)
	return zero, false, forgot
}

// take removes the oldest transfer of the key.
func (m *matcher[V]) take(k matchKey) (v V, ok bool) {
	i := m.find(k, false)
	if i == none {
		return v, false
	}
	v = m.entries[i].value
	m.remove(i)
	return v, true
}

// expire removes a transfer whose deadline has passed. All transfers of a matcher get the same
// time, so the oldest is due first.
func (m *matcher[V]) expire(now time.Duration) (k matchKey, v V, ok bool) {
	i := m.expected.oldest
	if i == none || m.entries[i].deadline > now {
		return k, v, false
	}
	k, v = m.entries[i].key, m.entries[i].value
	m.remove(i)
	return k, v, true
}

// next returns the earliest deadline.
func (m *matcher[V]) next() (at time.Duration, ok bool) {
	if m.expected.oldest == none {
		return 0, false
	}
	return m.entries[m.expected.oldest].deadline, true
}

// takePeer removes the oldest transfer with a peer.
func (m *matcher[V]) takePeer(n fabric.NodeID) (k matchKey, v V, ok bool) {
	for i := m.expected.oldest; i != none; i = m.entries[i].younger {
		if e := &m.entries[i]; e.key.peer == n {
			k, v = e.key, e.value
			m.remove(i)
			return k, v, true
		}
	}
	return k, v, false
}

func (m *matcher[V]) find(k matchKey, parked bool) int32 {
	i := m.buckets[k.hash()>>m.shift]
	for i != none && (m.entries[i].key != k || m.entries[i].parked != parked) {
		i = m.entries[i].chain
	}
	return i
}

func (m *matcher[V]) ages(parked bool) *ageList {
	if parked {
		return &m.parked
	}
	return &m.expected
}

func (m *matcher[V]) enter(k matchKey, v V, at time.Duration, parked bool) {
	i := m.free
	e := &m.entries[i]
	m.free = e.chain
	l := m.ages(parked)
	*e = matchEntry[V]{key: k, value: v, deadline: at, chain: none, older: l.newest, younger: none, parked: parked}
	if l.newest != none {
		m.entries[l.newest].younger = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.n++
	at2 := &m.buckets[k.hash()>>m.shift]
	for *at2 != none {
		at2 = &m.entries[*at2].chain
	}
	*at2 = i
}

func (m *matcher[V]) remove(i int32) {
	e := &m.entries[i]
	at := &m.buckets[e.key.hash()>>m.shift]
	for *at != i {
		at = &m.entries[*at].chain
	}
	*at = e.chain
	l := m.ages(e.parked)
	if e.older != none {
		m.entries[e.older].younger = e.younger
	} else {
		l.oldest = e.younger
	}
	if e.younger != none {
		m.entries[e.younger].older = e.older
	} else {
		l.newest = e.older
	}
	l.n--
	var zero V
	e.value = zero
	e.chain = m.free
	m.free = i
}
