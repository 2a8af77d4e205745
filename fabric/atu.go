package fabric

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// The address translation unit. Its tables are plain words, so that a backend can put them where
// peers can read them. The owner writes them through an ATU. Anyone can translate through an
// ATUTable, but must treat the result as a claim of whoever wrote the words.
//
// A base table entry is eight words, one cache line:
//
//	0  generation[14:0] valid[15] rights[17:16] pagesize[22:18] contiguous[23] vpid[33:24]
//	1  length in bytes
//	2  contiguous: byte offset in the memory; else: byte offset in the first page
//	3  index of the first page entry
//	4  number of the memory, a name that the backend chose
//	5–7 unused
//
// Ordering: Register writes words 1 to 4 and then word 0. Invalidate clears valid in word 0 before
// anything else changes. Go's atomics are sequentially consistent. So a reader that finds the same
// valid word 0 before and after reading the others has seen one registration, because each
// registration changes the generation.
const (
	atuEntryWords = 8
	atuBaseWords  = Windows * atuEntryWords
	// ATUWords is the length of the table of an ATU, in 8-byte words: 2 MiB and 64 KiB, of
	// which only the part that registered windows need is touched.
	ATUWords = atuBaseWords + GATEntries

	atuValid      = 1 << 15
	atuContiguous = 1 << 23

	// nowhere is an offset outside every memory, and so far from the largest number that adding
	// a length does not wrap around.
	nowhere uint64 = 1 << 63
)

// An ATUTable holds the words of an ATU, possibly of a peer's.
type ATUTable []uint64

// A Translation is what an NLA range means in its owner's memory.
type Translation struct {
	Memory uint32 // the backend's name of the memory
	table  ATUTable
	// of the range: in the memory if contiguous, else from the start of the first page
	offset  uint64
	n       uint64
	gat     uint64
	shift   uint8
	scatter bool
}

// Lookup translates n bytes at a for an access by vpid that needs the given rights (none for the
// owner's own access). If it returns a fault, the caller must not touch anything.
func (t ATUTable) Lookup(a NLA, n int, vpid VPID, need Rights) (Translation, Fault) {
	if a>>63 != 0 || n < 1 {
		return Translation{}, FaultStale
	}
	e := t[a.Window()*atuEntryWords:][:atuEntryWords]
	w0 := atomic.LoadUint64(&e[0])
	if w0&atuValid == 0 || uint16(w0&0x7fff) != a.Generation() {
		return Translation{}, FaultStale
	}
	length, first, gat, memory := atomic.LoadUint64(&e[1]), atomic.LoadUint64(&e[2]), atomic.LoadUint64(&e[3]), atomic.LoadUint64(&e[4])
	if atomic.LoadUint64(&e[0]) != w0 {
		return Translation{}, FaultStale
	}
	switch off := a.Offset(); {
	case VPID(w0>>24&0x3ff) != vpid:
		return Translation{}, FaultVPID
	case Rights(w0>>16&3)&need != need:
		return Translation{}, FaultRights
	case length > MaxWindow || off >= length || uint64(n) > length-off || first > MaxWindow:
		return Translation{}, FaultRange
	default:
		tr := Translation{Memory: uint32(memory), offset: first + off, n: uint64(n)}
		if w0&atuContiguous == 0 {
			shift := PageSize(w0 >> 18 & 0x1f)
			if !shift.Valid() {
				return Translation{}, FaultRange
			}
			tr.table, tr.gat, tr.shift, tr.scatter = t, gat, uint8(shift)+12, true
		}
		return tr, FaultNone
	}
}

// Next takes the first contiguous piece off the translation and returns its place in the memory; ok
// is false when nothing is left. In a hostile table, a piece can be anywhere, so the caller checks
// it against the size of the memory.
func (tr *Translation) Next() (offset, n uint64, ok bool) {
	if tr.n == 0 {
		return 0, 0, false
	}
	if !tr.scatter {
		offset, n = tr.offset, tr.n
		tr.n = 0
		return offset, n, true
	}
	page, in := tr.offset>>tr.shift, tr.offset&(1<<tr.shift-1)
	if tr.gat > GATEntries || page >= GATEntries-tr.gat {
		tr.n = 0
		return nowhere, 1, true
	}
	at := atomic.LoadUint64(&tr.table[atuBaseWords+tr.gat+page])
	if at >= nowhere>>tr.shift {
		tr.n = 0
		return nowhere, 1, true
	}
	n = min(1<<tr.shift-in, tr.n)
	tr.offset, tr.n = tr.offset+n, tr.n-n
	return at<<tr.shift + in, n, true
}

// An ATU is the owner's side of the table: it assigns windows.
type ATU struct {
	table ATUTable
	first uint16 // generation

	mu    sync.Mutex
	used  [Windows / 64]uint64 // base entries in use, also while they drain
	pages pageSpans
	spans [Windows]pageSpan // the page entries of each window
}

// NewATU makes an ATU on zeroed words; len(table) must be ATUWords. Each entry starts with the
// generation first. A node that passes another value each time it starts makes the addresses of its
// former lives stale.
func NewATU(table []uint64, first uint16) *ATU {
	return &ATU{table: table[:ATUWords], first: first & 0x7fff, pages: pageSpans{{0, GATEntries}}}
}

// Table returns the words, for translation.
func (u *ATU) Table() ATUTable { return u.table }

// Register enters a window of the memory called mem, of size bytes. The
// caller has checked the rights against the memory's. The error wraps
// ErrRange or ErrMemory.
func (u *ATU) Register(mem uint32, size int, vpid VPID, w WindowSpec) (NLA, error) {
	if err := checkSpec(size, w); err != nil {
		return 0, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	i := u.freeEntry()
	if i < 0 {
		return 0, fmt.Errorf("register window: all %d are in use, deregister one: %w", Windows, ErrMemory)
	}
	var span pageSpan
	if w.Pages != nil {
		var ok bool
		if span, ok = u.pages.take(len(w.Pages)); !ok {
			return 0, fmt.Errorf("register window: no %d free page entries in a row, use larger pages: %w", len(w.Pages), ErrMemory)
		}
		for k, p := range w.Pages {
			atomic.StoreUint64(&u.table[atuBaseWords+span.start+k], uint64(p))
		}
	}
	u.used[i/64] |= 1 << (i % 64)
	u.spans[i] = span
	e := u.table[i*atuEntryWords:][:atuEntryWords]
	gen := u.first
	if e[0] != 0 { // used before: the word still holds the last generation
		gen = uint16(e[0]+1) & 0x7fff
	}
	w0 := uint64(gen) | atuValid | uint64(w.Rights&3)<<16 | uint64(w.PageSize)<<18 | uint64(vpid)<<24
	if w.Pages == nil {
		w0 |= atuContiguous
	}
	atomic.StoreUint64(&e[1], uint64(w.Length))
	atomic.StoreUint64(&e[2], uint64(w.Offset))
	atomic.StoreUint64(&e[3], uint64(span.start))
	atomic.StoreUint64(&e[4], uint64(mem))
	atomic.StoreUint64(&e[0], w0)
	return MakeNLA(i, gen, 0), nil
}

func checkSpec(size int, w WindowSpec) error {
	if w.Length < 1 || w.Length > MaxWindow || w.Offset < 0 || !w.PageSize.Valid() || w.Rights > RemoteRead|RemoteWrite {
		return fmt.Errorf("register window: length %d, offset %d, page size %d, rights %d: %w",
			w.Length, w.Offset, w.PageSize, w.Rights, ErrRange)
	}
	if w.Pages == nil {
		if w.Offset > size || w.Length > size-w.Offset {
			return fmt.Errorf("register window: [%d, +%d) is not within the memory's %d bytes: %w", w.Offset, w.Length, size, ErrRange)
		}
		return nil
	}
	page := w.PageSize.Bytes()
	if w.Offset >= page || (w.Offset+w.Length+page-1)/page != len(w.Pages) {
		return fmt.Errorf("register window: %d bytes from byte %d of the first page do not fill %d pages of %d bytes: %w",
			w.Length, w.Offset, len(w.Pages), page, ErrRange)
	}
	for _, p := range w.Pages {
		if p < 0 || p > size/page-1 {
			return fmt.Errorf("register window: page %d is not within the memory's %d bytes: %w", p, size, ErrRange)
		}
	}
	return nil
}

func (u *ATU) freeEntry() int {
	for k, m := range u.used {
		if m != ^uint64(0) {
			return k*64 + bits.TrailingZeros64(^m)
		}
	}
	return -1
}

// Invalidate makes the window's NLA stale for lookups that start from now on,
// and keeps the entry and its pages until Release. It reports whether the NLA
// was valid.
func (u *ATU) Invalidate(a NLA) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.table[a.Window()*atuEntryWords:]
	if e[0]&atuValid == 0 || uint16(e[0]&0x7fff) != a.Generation() {
		return false
	}
	atomic.SwapUint64(&e[0], e[0]&^atuValid) // a full fence, also for the race detector
	return true
}

// Release frees the entry of an invalidated window for another registration. With the address of an
// earlier window of the entry it does nothing.
func (u *ATU) Release(a NLA) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := a.Window()
	if w0 := u.table[i*atuEntryWords]; u.used[i/64]>>(i%64)&1 == 0 || w0&atuValid != 0 || uint16(w0&0x7fff) != a.Generation() {
		return
	}
	u.used[i/64] &^= 1 << (i % 64)
	u.pages.give(u.spans[i])
	u.spans[i] = pageSpan{}
}

// Memory returns the memory to which the window at a belongs, and what others may do with it; ok is
// false when a is stale.
func (t ATUTable) Memory(a NLA) (memory uint32, r Rights, ok bool) {
	e := t[a.Window()*atuEntryWords:][:atuEntryWords]
	w0 := atomic.LoadUint64(&e[0])
	if a>>63 != 0 || w0&atuValid == 0 || uint16(w0&0x7fff) != a.Generation() {
		return 0, 0, false
	}
	memory = uint32(atomic.LoadUint64(&e[4]))
	return memory, Rights(w0 >> 16 & 3), atomic.LoadUint64(&e[0]) == w0
}
