package lane

import (
	"sync/atomic"
	"unsafe"
)

// The layout of the memory that two processes share. Only this file turns it into pointers. Offsets
// are those of ext-ds.md, section 3.
const (
	Version = 3
	Oldest  = Version            // of those that are spoken; from 3 on the one before is
	Magic   = 0x334e414c53445845 // "EXDSLAN3"

	Payload  = slotSize - 8 // bytes of payload in a slot
	Waiters  = 8            // of each side of a channel
	Piece    = 64 << 10     // most bytes that one RMA_INFO may announce
	reserved = 4            // slots that only control messages may take

	headSize = 8192
	ctlSize  = 256
	slotSize = 128
)

// A Word is a word of shared memory.
type Word struct{ atomic.Uint64 }

// Store is a full fence. The Store of sync/atomic is one, too, but under the race detector it has
// only release order for memory that is not Go's.
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
	CPU                  Word // where the owner last ran, plus one; 0: unknown
	_                    [15]uint64
	waiter               [Waiters]waiter
	_                    [1024 - 256 - Waiters*64]byte
	marked               [Waiters]marked
	_                    [4096 - 1024 - Waiters*64]byte
	mark                 [Waiters][mostLanes / 64]Word // one bit per lane, flipped by each mark
}

type waiter struct {
	epoch Word // odd: this waiter of the owner sleeps
	_     [7]uint64
}

type marked struct {
	count Word // marks made for this waiter of the peer
	_     [7]uint64
}

// A Control is the control block of a lane. Only the owner of the file writes it. The peer only
// loads words, since its mapping is read-only.
type Control struct {
	Generation Word // of the attachment; 0: the owner has left
	Closed     Word // 1: the owner closed or reset its end
	Shut       Word // 1: the owner shut down its write side
	_          [5]uint64
	Consent    Word // how many times the peer may have switched
	GoBack     Word // 0, or 1 + the lane bytes that the owner has taken for good
	_          [6]uint64

	slotsTaken  Word // credit: slots taken from the peer's lane
	windowTaken Word // credit: bytes taken from its windows
	zcopyTaken  Word // credit: bytes copied from adverts
	zcopyBusy   Word // 1: the owner is copying
	zcopyLeast  Word // shortest advert that the owner takes; 0: none
	_           [3]uint64
	RxWaiters   Word // bit w: ring waiter w after posting; for the rest see [Memory.Mark]
	TxWaiters   Word // bit w: ring waiter w after returning credit

	zcopyWithdrawn Word // this many of the owner's adverts have ended, taken or not
	slotsDue       Word // do not ring TxWaiters while the credit is less than this
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

// Head returns the head of the file.
func (m *Memory) Head() *Head { return (*Head)(unsafe.Pointer(&m.b[0])) }

// Control returns the control block of a lane below m.Lanes.
func (m *Memory) Control(lane uint32) *Control {
	at := headSize + uint64(lane)*ctlSize
	return (*Control)(unsafe.Pointer(&m.b[at : at+ctlSize][0]))
}

// offset returns where in all b lies, if it does.
func offset(all, b []byte) (at uint64, ok bool) {
	at = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(all))))
	return at, at < uint64(len(all)) && uint64(len(b)) <= uint64(len(all))-at
}

// statusWord returns the status word of slot number k of a ring, whose length is a power of two.
func statusWord(ring []byte, k uint64) *Word {
	at := k * slotSize & (uint64(len(ring)) - 1)
	return (*Word)(unsafe.Pointer(&ring[at : at+slotSize][0]))
}
