package lane

import "math/bits"

// Marks tell a thread that sleeps on many lanes which of them have something new (ext-ds.md,
// section 5). Both words that they need are here: a reader's request is part of its RxWaiters, and
// a mark is a bit in the writer's file.

// The parts of RxWaiters above the bits of the waiters to ring.
const (
	markShift, markMask = 8, Waiters - 1
	askedShift          = 16
)

// Ask returns the upper part of RxWaiters after its owner has asked for a mark that many times, now
// for its waiter w.
func Ask(w int, times uint64) uint64 { return times<<askedShift | uint64(w)<<markShift }

// Asked returns how often the owner of an RxWaiters word has asked for a mark.
func Asked(word uint64) uint64 { return word >> askedShift }

// Mark tells the waiter of the peer that is named in word, its RxWaiters, which lane has something
// new. A writer calls it after a post if the peer has asked once more since the last mark on the
// lane. The last store is a fence: the epoch is read after it.
func (m *Memory) Mark(lane uint32, word uint64) {
	h, w := m.Head(), word>>markShift&markMask
	bits, bit := &h.mark[w][lane/64], uint64(1)<<(lane%64)
	for was := bits.Load(); !bits.CompareAndSwap(was, was^bit); was = bits.Load() {
	}
	h.marked[w].count.Add(1)
}

// Marks are the marks that a peer makes for one waiter of ours.
type Marks struct {
	head  *Head
	w     int
	count uint64                 // of the marks seen
	seen  [mostLanes / 64]uint64 // the bits at that time
}

// NewMarks starts with the marks that the owner of the memory makes from now on.
func NewMarks(peer *Memory, w int) Marks {
	// before the bits
	m := Marks{head: peer.Head(), w: w, count: peer.Head().marked[w].count.Load()}
	for i := range m.seen {
		m.seen[i] = m.head.mark[w][i].Load()
	}
	return m
}

// Gather calls see for each lane that was marked since the last time. A bit that was flipped twice
// shows nothing, but both marks are counted, and the count is stored after the bits. So all reports
// whether there were more marks than lanes seen: then look at all lanes.
func (m *Marks) Gather(see func(lane uint32)) (all bool) {
	count := m.head.marked[m.w].count.Load()
	if count == m.count {
		return false
	}
	for i := range m.seen {
		now := m.head.mark[m.w][i].Load()
		changed := now ^ m.seen[i]
		m.seen[i] = now
		for ; changed != 0; changed &= changed - 1 {
			m.count++
			see(uint32(i*64 + bits.TrailingZeros64(changed)))
		}
	}
	if all = int64(count-m.count) > 0; all {
		m.count = count
	}
	return all
}
