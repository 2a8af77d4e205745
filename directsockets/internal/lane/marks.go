package lane

import "math/bits"

// Marks tell who sleeps on many lanes which of them have something new (ext-ds.md,
// section 5). Both words that they need are here: what a reader asks for is part of
// its RxWaiters, and a mark is a bit of the writer's file.

// The parts of RxWaiters above the bits of those that are rung.
const (
	markShift, markMask = 8, Waiters - 1
	askedShift          = 16
)

// Ask is what RxWaiters has above the bits of those that are rung, when its owner
// has asked so many times for a mark, now for its waiter w.
func Ask(w int, times uint64) uint64 { return times<<askedShift | uint64(w)<<markShift }

// Asked is how often the owner of a word RxWaiters has asked for a mark.
func Asked(word uint64) uint64 { return word >> askedShift }

// Mark tells the waiter of the peer that word, its RxWaiters, names which lane has
// something new. Who has posted, and finds that the peer has asked once more than
// at the last mark on the lane, makes one. The last store is a fence: the epoch is
// read behind it.
func (m *Memory) Mark(lane uint32, word uint64) {
	h, w := m.Head(), word>>markShift&markMask
	bits, bit := &h.mark[w][lane/64], uint64(1)<<(lane%64)
	for was := bits.Load(); !bits.CompareAndSwap(was, was^bit); was = bits.Load() {
	}
	h.marked[w].count.Add(1)
}

// Marks are those that a peer makes for one waiter of ours.
type Marks struct {
	head  *Head
	w     int
	count uint64                 // of those seen
	seen  [mostLanes / 64]uint64 // the bits as they were then
}

// NewMarks are those that the owner of a memory has not made yet.
func NewMarks(peer *Memory, w int) Marks {
	m := Marks{head: peer.Head(), w: w, count: peer.Head().marked[w].count.Load()} // before the bits
	for i := range m.seen {
		m.seen[i] = m.head.mark[w][i].Load()
	}
	return m
}

// Gather has see told each lane that was marked since the last time. A bit that
// changed twice says nothing, but both are counted, the count behind the bits:
// all says that there are more marks than lanes seen.
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
