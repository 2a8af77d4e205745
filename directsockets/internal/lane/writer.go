package lane

// A Writer is the writing end of a lane. Slots and window are in our memory,
// the reader's credit in its.
//
// The window is a ring of bytes addressed by positions that only grow. A piece
// never crosses the end of the ring. A window found empty starts again at its
// beginning: next moves up to a multiple of the size and floor remembers that
// all before it is free.
type Writer struct {
	ring, window []byte
	peer         *Control
	slots, size  uint64

	slot        uint64 // number of the next slot
	slotsTaken  uint64 // credit, as last checked
	next        uint64 // next position of the window
	floor       uint64 // the window was started again here
	windowTaken uint64 // credit, as last checked
	switched    uint64 // slot of the last Switch

	bytes    uint64 // stream bytes put on the lane
	rmaBytes uint64 // of these, in the window
	broken   bool

	again struct { // bytes that the reader handed back, to be sent by TCP
		slot, left uint64
		off        int // bytes of the slot that are not among them
	}
}

// NewWriter begins the outbound direction of a lane, in our memory.
func NewWriter(own, peer *Memory, lane uint32) Writer {
	w := Writer{
		ring: own.ring(lane), window: own.window(lane), peer: peer.Control(lane),
		slots: uint64(own.Slots), size: uint64(own.Window),
	}
	for k := range w.slots {
		statusWord(w.ring, k).Store(0)
	}
	return w
}

// Bytes are the stream bytes put on the lane, and of these those in the window.
func (w *Writer) Bytes() (all, window uint64) { return w.bytes, w.rmaBytes }

// Window is the size of the window.
func (w *Writer) Window() int { return int(w.size) }

// Broken says that the reader's credit made no sense.
func (w *Writer) Broken() bool { return w.broken }

func (w *Writer) refresh() {
	slots, window := w.peer.slotsTaken.Load(), w.peer.windowTaken.Load()
	if slots < w.slotsTaken || slots > w.slot || window < w.windowTaken || window > w.next {
		w.broken = true
		return
	}
	w.slotsTaken, w.windowTaken = slots, window
	w.floor = max(w.floor, window)
}

// slotsFree are the slots that are free above so many that are kept.
func (w *Writer) slotsFree(kept uint64) uint64 {
	if used := w.slot - w.slotsTaken + kept; used < w.slots {
		return w.slots - used
	}
	return 0
}

func (w *Writer) windowFree() uint64 { return w.size - (w.next - w.floor) }

// publish posts the next slot, whose payload is there. The store is the release
// of payload and window, and fence (1) before the caller asks who sleeps.
func (w *Writer) publish(t Tag, n int) {
	s := makeStatus(parity(w.slot, w.slots), n, t)
	word := statusWord(w.ring, w.slot)
	w.slot++
	word.Store(uint64(s))
}

// Post posts a control message; false when even the reserved slots are taken.
func (w *Writer) Post(t Tag, a, b uint64) bool {
	if w.slotsFree(0) == 0 {
		w.refresh()
	}
	if w.broken || w.slotsFree(0) == 0 {
		return false
	}
	if t == Switch {
		w.switched = w.slot
	}
	putWords(payload(w.ring, w.slot), a, b)
	w.publish(t, words)
	return true
}

// leastRoom is the room of a window that is not full: smaller pieces cost more
// than they move.
const leastRoom = 4096

// few slots: time to look at the credit, before there are none.
const few = 8

// Reserve finds room for a piece of up to n bytes in the window, which the
// caller fills and announces by Commit; nil when there is none.
func (w *Writer) Reserve(n int) []byte {
	want := uint64(n)
	if w.windowFree() < Piece || w.slotsFree(reserved) < few {
		w.refresh()
	}
	if w.broken || w.slotsFree(reserved) == 0 {
		return nil
	}
	if w.floor == w.next { // empty: start again at the beginning, where the cache is warm
		w.next = (w.next + w.size - 1) &^ (w.size - 1)
		w.floor = w.next
	}
	at, room := w.next&(w.size-1), w.windowFree()
	if room < min(want, leastRoom) {
		return nil
	}
	room = min(room, Piece, w.size-at, want)
	return w.window[at : at+room : at+room]
}

// Commit announces the first n bytes of the room that Reserve gave.
func (w *Writer) Commit(n int) {
	putWords(payload(w.ring, w.slot), w.next, uint64(n))
	w.next += uint64(n)
	w.bytes += uint64(n)
	w.rmaBytes += uint64(n)
	w.publish(RMAInfo, words)
}

// Write puts bytes on the lane until they or the room end, at most one piece of
// the window per call. Up to veloMax bytes go by slots. It returns how many;
// see Broken.
func (w *Writer) Write(b []byte, veloMax int) (n int) {
	if len(b) > veloMax {
		to := w.Reserve(len(b))
		if n = copy(to, b); n > 0 {
			w.Commit(n)
		}
		return n
	}
	// A full window is a full socket buffer for small writes too.
	if w.slotsFree(reserved) < few || w.windowFree() < leastRoom {
		w.refresh()
	}
	if w.windowFree() < leastRoom {
		return 0
	}
	for len(b) > 0 && !w.broken && w.slotsFree(reserved) > 0 {
		k := copy(payload(w.ring, w.slot), b)
		b = b[k:]
		t := VELO
		if len(b) == 0 {
			t = VELOLast
		}
		w.publish(t, k)
		n += k
	}
	w.bytes += uint64(n)
	return n
}

// Writable says that there is room as EPOLLOUT means it. Once it says so, Write
// takes at least one byte.
func (w *Writer) Writable() bool {
	slots, window := w.slots/8, w.size/4
	if w.slotsFree(reserved) < slots || w.windowFree() < window {
		w.refresh()
	}
	return w.broken || w.slotsFree(reserved) >= slots && w.windowFree() >= window
}

// Joined says that the reader has taken the last Switch.
func (w *Writer) Joined() bool {
	w.refresh()
	return w.broken || w.slotsTaken > w.switched
}

// own gives the stream bytes of a slot of ours. It reads what we wrote: nobody
// else can write it.
func (w *Writer) own(k uint64) (Tag, []byte) {
	s := status(statusWord(w.ring, k).Load())
	p := payload(w.ring, k)
	switch t := s.tag(); t {
	case VELO, VELOLast:
		return t, p[:s.len()]
	case RMAInfo:
		start, n := getWords(p)
		at := start & (w.size - 1)
		return t, w.window[at : at+n]
	default:
		return t, nil
	}
}

// Unread counts the stream bytes that the reader has given no credit for.
func (w *Writer) Unread() (n uint64) {
	w.refresh()
	for k := w.slotsTaken; k < w.slot; k++ {
		_, b := w.own(k)
		n += uint64(len(b))
	}
	return n
}

// Withdraw takes back all stream bytes but the first `taken` of the lane, which
// the reader says it has; false: it cannot have, or TCP bytes are behind some of
// them already. They stay where they are until Again and Sent have moved them
// to TCP.
func (w *Writer) Withdraw(taken uint64) bool {
	unread := w.Unread()
	if w.broken || taken > w.bytes || taken < w.bytes-unread {
		return false
	}
	skip := taken - (w.bytes - unread)
	k := w.slotsTaken
	for ; k < w.slot; k++ {
		_, b := w.own(k)
		if skip < uint64(len(b)) {
			break
		}
		skip -= uint64(len(b))
	}
	for later := k; later < w.slot; later++ {
		if t, _ := w.own(later); t == Back {
			return false
		}
	}
	w.again.slot, w.again.off, w.again.left = k, int(skip), w.bytes-taken
	w.bytes = taken
	return true
}

// HasAgain says that bytes which were withdrawn wait for TCP.
func (w *Writer) HasAgain() bool { return w.again.left > 0 }

// Again is the first piece of these.
func (w *Writer) Again() []byte {
	for w.again.left > 0 {
		if _, b := w.own(w.again.slot); len(b) > w.again.off {
			return b[w.again.off:]
		}
		w.again.slot++
		w.again.off = 0
	}
	return nil
}

// Sent says that so many bytes of the last Again are in TCP's hands.
func (w *Writer) Sent(n int) {
	w.again.off += n
	w.again.left -= uint64(n)
}

// Forget drops what waits for TCP: the connection has ended.
func (w *Writer) Forget() { w.again.left = 0 }
