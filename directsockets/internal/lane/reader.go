package lane

// A Reader is the reading end of a lane. Slots and windows are in the writer's memory, the credit
// is in ours.
type Reader struct {
	ring, windows []byte
	own, peer     *Control
	slots, size   uint64

	slot      uint64 // number of the next slot
	off       int    // bytes consumed of it
	piece     uint64 // where in the windows the rest of the announced piece is
	pieceLeft uint64 // bytes left of that piece
	windowEnd uint64 // bytes of all pieces up to and including it

	bytes    uint64 // stream bytes taken
	rmaBytes uint64 // of these, out of the window

	advert struct { // the last one that we came to; see advert.go
		number, address, left, taken uint64
		here                         bool // address is a place in the windows
		stuck, over                  bool
	}
}

// NewReader begins the inbound direction of a lane: it resets the credit in our memory.
func NewReader(own, peer *Memory, lane uint32) Reader {
	r := Reader{
		ring: peer.ring(lane), windows: peer.windows(), own: own.Control(lane), peer: peer.Control(lane),
		slots: uint64(peer.Slots), size: uint64(peer.Window),
	}
	r.own.slotsTaken.Store(0)
	r.own.windowTaken.Store(0)
	r.own.zcopyTaken.Store(0)
	r.own.zcopyBusy.Store(0)
	r.own.zcopyLeast.Store(0)
	return r
}

// Bytes returns the stream bytes taken, and how many of these came from windows.
func (r *Reader) Bytes() (all, window uint64) { return r.bytes, r.rmaBytes }

// Slots returns how many slots were taken.
func (r *Reader) Slots() uint64 { return r.slot }

// Window returns the size of the writer's windows.
func (r *Reader) Window() int { return int(r.size) }

// next loads the status word of the next slot once. It returns false if the slot is not posted.
func (r *Reader) next() (status, bool) {
	s := status(statusWord(r.ring, r.slot).Load())
	return s, uint64(s>>63) == parity(r.slot, r.slots)
}

// Posted reports whether anything is there to take.
func (r *Reader) Posted() bool {
	if r.pieceLeft > 0 || r.Advert() > 0 {
		return true
	}
	_, posted := r.next()
	return posted
}

// Look returns what comes next, without taking it.
func (r *Reader) Look() Look {
	if r.pieceLeft > 0 || r.off > 0 {
		return Data
	}
	s, posted := r.next()
	switch {
	case r.advert.left > 0 && (posted || !r.advert.stuck && !r.advert.over):
		return Data
	case !posted || r.advert.left > 0:
		return Nothing
	}
	return s.look()
}

// open takes an announcement if it is legal: a piece inside the windows, or an advert.
func (r *Reader) open(t Tag) bool {
	if t.advert() {
		return r.openAdvert(t)
	}
	at, n := getWords(payload(r.ring, r.slot))
	all := uint64(len(r.windows))
	if n == 0 || n > Piece || n > all || at > all-n {
		return false
	}
	r.piece, r.pieceLeft = at, n
	r.windowEnd += n
	return true
}

// Read takes stream bytes until b is full or something else comes, such as an advert, which it
// opens. hostile reports that the next slot is illegal. Give returns the credit.
func (r *Reader) Read(b []byte) (n int, hostile bool) {
	for n < len(b) && r.advert.left == 0 {
		if r.pieceLeft > 0 {
			k := copy(b[n:], r.windows[r.piece:r.piece+r.pieceLeft])
			r.piece += uint64(k)
			r.pieceLeft -= uint64(k)
			r.rmaBytes += uint64(k)
			n += k
			continue
		}
		what := Nothing
		s, posted := r.next()
		if posted {
			what = s.look()
		}
		if r.off == 0 && (what == Nothing || what == Command) {
			break
		}
		// A slot that was partly taken cannot go away or become another one.
		info := s.tag() == RMAInfo || s.tag().advert()
		if what != Data || r.off > 0 && (info || r.off >= s.len()) || info && !r.open(s.tag()) {
			hostile = true
			break
		}
		if info {
			r.slot++
			continue
		}
		k := copy(b[n:], payload(r.ring, r.slot)[r.off:s.len()])
		n += k
		if r.off += k; r.off == s.len() {
			r.off = 0
			r.slot++
		}
	}
	r.bytes += uint64(n)
	return n, hostile
}

// Give returns credit for what was taken. Its last store is fence (1), before the caller asks who
// sleeps. An announcement holds its slot until all of it is taken, so equal counts mean that the
// lane is empty.
func (r *Reader) Give() {
	if end := r.windowEnd - r.pieceLeft; end != r.own.windowTaken.Load() {
		r.own.windowTaken.Store(end)
	}
	taken := r.slot
	if r.pieceLeft > 0 || r.advert.left > 0 {
		taken--
	}
	r.own.slotsTaken.Store(taken)
}

// Due reports whether there is as much credit as a writer that waits for room has asked for.
func (r *Reader) Due() bool {
	return r.own.slotsTaken.Load() >= r.peer.slotsDue.Load() && r.own.windowTaken.Load() >= r.peer.windowDue.Load()
}

// Take takes a control message.
func (r *Reader) Take() (t Tag, a, b uint64) {
	s, _ := r.next()
	a, b = getWords(payload(r.ring, r.slot))
	r.slot++
	if s.look() != Command { // it changed between two looks
		return Abort, a, b
	}
	return s.tag(), a, b
}

// Skip looks for the Back that ends a withdrawal, and goes behind it. Nothing means that it is not
// posted yet, and Command that it was there. Data means that the writer left the lane before it saw
// go_back, or ended: what is here will not come by TCP.
func (r *Reader) Skip() Look {
	walk := *r
	walk.off, walk.pieceLeft, walk.advert.left = 0, 0, 0
	for range r.slots {
		s, posted := walk.next()
		if !posted {
			return Nothing
		}
		what := s.look()
		if what == Hostile || (s.tag() == RMAInfo || s.tag().advert()) && !walk.open(s.tag()) {
			return Hostile
		}
		walk.pieceLeft, walk.advert.left = 0, 0
		if what == Command {
			m, _ := getWords(payload(walk.ring, walk.slot))
			if s.tag() != Back || m != r.bytes {
				return Data
			}
			walk.slot++
			*r = walk
			return Command
		}
		walk.slot++
	}
	return Nothing
}
