package lane

// A Writer is the writing end of a lane. Slots and windows are in our memory, the reader's credit
// is in the reader's.
//
// Credit for window bytes counts the bytes that went by windows, wherever they lay. A writer
// borrows a window of the pool and uses its first bytes, extent of them, as a ring. A piece never
// crosses the end of that ring. A window found empty is used from its beginning again, where the
// cache is warm. A window with little room left grows. At the end of a window the writer goes on in
// another, if it can get one.
type Writer struct {
	ring, windows []byte
	own, peer     *Control
	pool          *Pool
	lane          uint32
	slots, size   uint64

	slot        uint64 // number of the next slot
	slotsTaken  uint64 // credit, as last checked
	window      int    // the window that we had last; -1: none
	extent      uint64 // bytes of it that we use
	base        uint64 // position of its beginning
	next        uint64 // next position: bytes that went by windows
	windowTaken uint64 // credit, as last checked
	switched    uint64 // slot of the last Switch

	bytes    uint64 // stream bytes put on the lane
	rmaBytes uint64 // of these, through windows
	poor     bool   // no window could be had
	broken   bool
	advert   struct { // the last one; see advert.go
		number, left, taken uint64
		owed                bool
		here                bool // in the windows
	}

	again struct { // bytes that the reader handed back, to be sent by TCP
		first, slot uint64 // the slots that these bytes began in, and begin in now
		left        uint64
		off         int // bytes of that slot that are not among them
	}
}

// NewWriter begins the outbound direction of a lane, in our memory.
func NewWriter(pool *Pool, lane uint32) Writer {
	own := pool.own
	pool.fresh(lane)
	w := Writer{
		ring: own.ring(lane), windows: own.windows(), own: own.Control(lane), peer: pool.peer.Control(lane),
		pool: pool, lane: lane, window: -1,
		slots: uint64(own.Slots), size: uint64(own.Window),
	}
	for k := range w.slots {
		statusWord(w.ring, k).Store(0)
	}
	w.own.zcopyWithdrawn.Store(0)
	w.own.slotsDue.Store(0)
	w.own.windowDue.Store(0)
	return w
}

// Bytes returns the stream bytes put on the lane, and how many of these went by windows.
func (w *Writer) Bytes() (all, window uint64) { return w.bytes, w.rmaBytes }

// Slots returns how many slots were posted.
func (w *Writer) Slots() uint64 { return w.slot }

// Window returns the size of a window.
func (w *Writer) Window() int { return int(w.size) }

// Broken reports whether the reader's credit was impossible.
func (w *Writer) Broken() bool { return w.broken }

func (w *Writer) refresh() {
	slots, window := w.peer.slotsTaken.Load(), w.peer.windowTaken.Load()
	if slots < w.slotsTaken || slots > w.slot || window < w.windowTaken || window > w.next {
		w.broken = true
		return
	}
	w.slotsTaken, w.windowTaken = slots, window
}

// slotsFree returns how many slots are free, besides those that are kept.
func (w *Writer) slotsFree(kept uint64) uint64 {
	if used := w.slot - w.slotsTaken + kept; used < w.slots {
		return w.slots - used
	}
	return 0
}

// ringStart: everything before base was taken, or else the lane would not have got that window. Our
// copy of the credit may be older.
func (w *Writer) ringStart() uint64 { return max(w.windowTaken, w.base) }

// inAll bounds what the reader has not taken in all of our windows: this many full windows.
const inAll = 4

// windowFree returns the free room. Without a window there is room for what goes by slots.
func (w *Writer) windowFree() uint64 {
	if w.window < 0 {
		return w.size
	}
	return min(w.extent-(w.next-w.ringStart()), inAll*w.size-min(w.next-w.windowTaken, inAll*w.size))
}

// filled reports whether the next piece begins where the first one in this window did.
func (w *Writer) filled() bool { return w.next > w.base && (w.next-w.base)%w.extent == 0 }

// pin gets a window to write to. It returns false if none can be had.
func (w *Writer) pin() bool {
	n, extent, same := w.pool.pin(w.lane, w.window)
	if same && w.filled() {
		if other, its := w.pool.onward(w.lane); other >= 0 {
			w.unpin()
			n, extent, same = other, its, false
		}
	}
	w.window = n
	if w.poor = n < 0; w.poor {
		return false
	}
	w.extent = uint64(extent)
	if !same || w.windowTaken == w.next {
		w.base = w.next
	}
	return true
}

func (w *Writer) unpin() { w.pool.keep(w.lane, w.window, false, w.next) }

// grow enlarges the ring if more than half of it is full. The contents must not move, so it must
// not be wrapped.
func (w *Writer) grow() {
	if w.extent == w.size || w.windowFree() >= w.extent/2 {
		return
	}
	if base := w.base + (w.ringStart()-w.base)/w.extent*w.extent; w.next-base <= w.extent {
		w.base, w.extent = base, uint64(w.pool.grow(w.window))
	}
}

// publish posts the next slot, whose payload is in place. The store releases payload and window. It
// is also fence (1), before the caller asks who sleeps.
func (w *Writer) publish(t Tag, n int) {
	s := makeStatus(parity(w.slot, w.slots), n, t)
	if w.pool.Dated {
		s |= date(ticks())
	}
	word := statusWord(w.ring, w.slot)
	w.slot++
	word.Store(uint64(s))
}

// Post posts a control message. It returns false if even the reserved slots are taken.
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

// leastRoom is the least room of a window that is not full. Smaller pieces cost more than they
// gain.
const leastRoom = 4096

// few is the number of free slots below which it is time to look at the credit.
const few = 8

// Reserve finds room for a piece of up to n bytes in the window. The caller fills it and announces
// it by Commit. It returns nil if there is no room.
func (w *Writer) Reserve(n int) []byte {
	if w.Advertised() {
		return nil
	}
	want := uint64(n)
	if w.windowFree() < Piece || w.slotsFree(reserved) < few {
		w.refresh()
	}
	if w.broken || w.slotsFree(reserved) == 0 || !w.pin() {
		return nil
	}
	at, room := w.at(), w.windowFree()
	if room < min(want, leastRoom) {
		w.unpin()
		return nil
	}
	room = min(room, Piece, w.extent-at%w.size, want)
	return w.windows[at : at+room : at+room]
}

// at returns where in the windows the next piece begins.
func (w *Writer) at() uint64 { return uint64(w.window)*w.size + (w.next-w.base)%w.extent }

// Poor reports that there was no window for the last large write. Then all writes go by slots.
func (w *Writer) Poor() bool { return w.poor }

// Rich reports whether a window can be had again.
func (w *Writer) Rich() bool {
	if !w.pin() {
		return false
	}
	w.unpin()
	return true
}

// Commit announces the first n bytes of the room from Reserve; n may be 0.
func (w *Writer) Commit(n int) {
	defer w.unpin()
	if n == 0 {
		return
	}
	putWords(payload(w.ring, w.slot), w.at(), uint64(n))
	w.next += uint64(n)
	w.bytes += uint64(n)
	w.rmaBytes += uint64(n)
	w.publish(RMAInfo, words)
	w.grow()
}

// Write puts bytes on the lane until they or the room end: at most one piece of the window per
// call, and none when it finds that it is poor. Up to veloMax bytes go by slots. It returns how
// many; see Broken.
func (w *Writer) Write(b []byte, veloMax int) (n int) {
	if w.Advertised() {
		return 0
	}
	if len(b) > veloMax && !w.poor {
		to := w.Reserve(len(b))
		if n = copy(to, b); n > 0 {
			w.Commit(n)
		}
		return n
	}
	// A full window counts as a full socket buffer, even for small writes.
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

// Writable reports whether there is room, in the sense of EPOLLOUT. Once it returns true, Write
// takes at least one byte.
func (w *Writer) Writable() bool {
	if w.Advertised() { // until it has ended, or is no longer wanted
		return w.broken || !w.Wanted()
	}
	slots, window := w.enough()
	if w.slotsFree(reserved) < slots || w.windowFree() < window {
		w.refresh()
	}
	return w.broken || w.slotsFree(reserved) >= slots && w.windowFree() >= window
}

// enough returns the room that Writable asks for. A writer that sleeps until then is woken once for
// many reads.
func (w *Writer) enough() (slots, window uint64) {
	if w.window < 0 {
		return w.slots / 2, w.size / 4
	}
	return w.slots / 2, w.extent / 4
}

// Ask makes the reader ring when the credit suffices for Writable, and not before. It asks for no
// more than was posted, so a reader that takes everything rings.
func (w *Writer) Ask() {
	due := func(posted, most uint64) uint64 { return posted - min(posted, most) }
	var slots, window uint64
	if w.advert.left == 0 {
		free, room := w.enough()
		slots = due(w.slot, w.slots-reserved-free)
		if w.window >= 0 {
			window = due(w.next, inAll*w.size-room)
			if here := due(w.next, w.extent-room); w.base < here {
				window = max(window, here)
			}
		}
	}
	w.own.slotsDue.Store(slots)
	w.own.windowDue.Store(window)
}

// Credit returns the sum of all credit that the reader has returned, plausible or not. An honest
// reader returns no more than was posted, which Writable checks.
func (w *Writer) Credit() uint64 {
	return w.peer.slotsTaken.Load() + w.peer.windowTaken.Load() + w.peer.zcopyTaken.Load()
}

// Joined reports whether the reader has taken the last Switch.
func (w *Writer) Joined() bool {
	w.refresh()
	return w.broken || w.slotsTaken > w.switched
}

// posted returns the stream bytes of a slot of ours. It reads what we wrote; nobody else can write
// there.
func (w *Writer) posted(k uint64) (Tag, []byte) {
	s := status(statusWord(w.ring, k).Load())
	p := payload(w.ring, k)
	switch t := s.tag(); t {
	case VELO, VELOLast:
		return t, p[:s.len()]
	case RMAInfo:
		at, n := getWords(p)
		return t, w.windows[at : at+n]
	default:
		return t, nil
	}
}

// Unread returns how many stream bytes the reader has not returned credit for.
func (w *Writer) Unread() (n uint64) {
	w.refresh()
	for k := w.slotsTaken; k < w.slot; k++ {
		_, b := w.posted(k)
		n += uint64(len(b))
	}
	if w.Advertised() {
		n += w.advert.left
	}
	return n
}

// Withdraw takes back all stream bytes except the first `taken` of the lane, which the reader says
// that it has. It returns false if the reader cannot have them, or if TCP bytes already follow some
// of the rest. The bytes stay where they are until Again and Sent have moved them to TCP.
func (w *Writer) Withdraw(taken uint64) bool {
	unread := w.Unread()
	if w.broken || taken > w.bytes || taken < w.bytes-unread {
		return false
	}
	skip := taken - (w.bytes - unread)
	k := w.slotsTaken
	for ; k < w.slot; k++ {
		_, b := w.posted(k)
		if skip < uint64(len(b)) {
			break
		}
		skip -= uint64(len(b))
	}
	for later := k; later < w.slot; later++ {
		if t, _ := w.posted(later); t == Back {
			return false
		}
	}
	w.again.first, w.again.slot, w.again.off, w.again.left = k, k, int(skip), w.bytes-taken
	w.bytes = taken
	// After BACK there is credit for all of it, before TCP has taken it.
	w.keep(true)
	return true
}

// keep pins the windows that hold bytes waiting for TCP, or unpins them.
func (w *Writer) keep(pinned bool) {
	for k := w.again.first; k < w.slot; k++ {
		if t, b := w.posted(k); t == RMAInfo && len(b) > 0 {
			at, _ := offset(w.windows, b)
			w.pool.keep(w.lane, int(at/w.size), pinned, w.next)
		}
	}
}

// HasAgain reports whether withdrawn bytes wait for TCP.
func (w *Writer) HasAgain() bool { return w.again.left > 0 }

// Again returns the first piece of these.
func (w *Writer) Again() []byte {
	for w.again.left > 0 {
		if _, b := w.posted(w.again.slot); len(b) > w.again.off {
			return b[w.again.off:]
		}
		w.again.slot++
		w.again.off = 0
	}
	return nil
}

// Sent records that TCP has taken this many bytes of the last Again.
func (w *Writer) Sent(n int) {
	w.again.off += n
	if w.again.left -= uint64(n); w.again.left == 0 {
		w.Forget()
	}
}

// Forget drops the bytes that wait for TCP, because the connection has ended.
func (w *Writer) Forget() {
	w.again.left = 0
	w.keep(false)
}
