package lane

import (
	"sync/atomic"
	"unsafe"
)

// The layout of the memory that two processes share, and the only place where
// it is turned into pointers. Offsets are those of ext-ds.md, section 3.
const (
	Version = 2
	Magic   = 0x324e414c53445845 // "EXDSLAN2"

	Payload  = slotSize - 8 // bytes of payload in a slot
	Waiters  = 8            // of each side of a channel
	Piece    = 64 << 10     // most bytes that one RMA_INFO announces
	reserved = 4            // slots that only control may take

	headSize = 8192
	ctlSize  = 256
	slotSize = 128
)

// A Word is one of shared memory.
type Word struct{ atomic.Uint64 }

// Store is a full fence. That of sync/atomic is too, but not with the race detector, which has
// release order only where memory is not Go's.
func (w *Word) Store(v uint64) { w.Swap(v) }

// A Head is at offset 0 of a file.
type Head struct {
	magic                uint64
	version              uint32
	lanes, slots, window uint32
	size                 uint64
	windows              uint32
	_                    [7]uint32
	Posted               Word // control messages sent so far
	_                    [7]uint64
	CPU                  Word // where the owner last ran, plus one
	_                    [15]uint64
	waiter               [Waiters]waiter
	_                    [1024 - 256 - Waiters*64]byte
	marked               [Waiters]marked
	_                    [4096 - 1024 - Waiters*64]byte
	mark                 [Waiters][mostLanes / 64]Word // a bit per lane: it has changed
}

type waiter struct {
	epoch Word // odd: this waiter of the owner sleeps
	_     [7]uint64
}

type marked struct {
	count Word // of the marks for this waiter of the peer
	_     [7]uint64
}

// A Control is the control block of a lane. All of it is written by the owner
// of the file; of the peer's, words are loaded only: the mapping is read-only.
type Control struct {
	Generation Word // of the attachment; 0: the owner let go
	Closed     Word // 1: the owner closed or reset its end
	Shut       Word // 1: the owner shut down its write side
	_          [5]uint64
	Consent    Word // how often the peer may have switched
	GoBack     Word // 0, or 1 + the lane bytes the owner has taken for good
	_          [6]uint64

	slotsTaken  Word // credit: slots consumed of the peer's lane
	windowTaken Word // credit: bytes taken out of its windows
	zcopyTaken  Word // credit: bytes copied out of adverts
	zcopyBusy   Word // 1: the owner is copying
	zcopyLeast  Word // shortest advert that it takes; 0: none
	_           [3]uint64
	RxWaiters   Word // bit w: ring waiter w after posting; and see [Memory.Mark]
	TxWaiters   Word // bit w: ring waiter w after giving credit

	zcopyWithdrawn Word // so many of the owner's adverts are over, taken or not
	slotsDue       Word // with less credit than this TxWaiters are not to be rung
	windowDue      Word // likewise
	_              [3]uint64
}

// Each word is where ext-ds.md says.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Head{})-headSize]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.size)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.Posted)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.CPU)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.waiter)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.windows)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.marked)-1024]
	_ = [1]struct{}{}[unsafe.Offsetof(Head{}.mark)-4096]
	_ = [1]struct{}{}[unsafe.Sizeof(Control{})-ctlSize]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Shut)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.Consent)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.GoBack)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.slotsTaken)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.windowTaken)-136]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.zcopyTaken)-144]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.zcopyBusy)-152]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.zcopyLeast)-160]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.RxWaiters)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.TxWaiters)-200]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.zcopyWithdrawn)-208]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.slotsDue)-216]
	_ = [1]struct{}{}[unsafe.Offsetof(Control{}.windowDue)-224]
)

// Head is the head of the file.
func (m *Memory) Head() *Head { return (*Head)(unsafe.Pointer(&m.b[0])) }

// Control is the control block of a lane below m.Lanes.
func (m *Memory) Control(lane uint32) *Control {
	at := headSize + uint64(lane)*ctlSize
	return (*Control)(unsafe.Pointer(&m.b[at : at+ctlSize][0]))
}

// offset is where in all the bytes b lie, if they do.
func offset(all, b []byte) (at uint64, ok bool) {
	at = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(all))))
	return at, at < uint64(len(all)) && uint64(len(b)) <= uint64(len(all))-at
}

// statusWord is the status word of slot number k of a ring, whose length is a
// power of two.
func statusWord(ring []byte, k uint64) *Word {
	at := k * slotSize & (uint64(len(ring)) - 1)
	return (*Word)(unsafe.Pointer(&ring[at : at+slotSize][0]))
}
