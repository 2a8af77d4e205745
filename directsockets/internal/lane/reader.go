package lane

// A Reader is the reading end of a lane. Slots and window are in the writer's
// memory, the credit is in ours.
type Reader struct {
	ring, window []byte
	own          *Control
	slots, size  uint64

	slot      uint64 // number of the next slot
	off       int    // bytes consumed of it
	piece     uint64 // next position of the piece that was announced
	pieceLeft uint64 // bytes left of it
	windowEnd uint64 // end of the last piece

	bytes    uint64 // stream bytes taken
	rmaBytes uint64 // of these, out of the window
}

// NewReader begins the inbound direction of a lane: the credit in our memory.
func NewReader(own, peer *Memory, lane uint32) Reader {
	r := Reader{
		ring: peer.ring(lane), window: peer.window(lane), own: own.Control(lane),
		slots: uint64(peer.Slots), size: uint64(peer.Window),
	}
	r.own.slotsTaken.Store(0)
	r.own.windowTaken.Store(0)
	return r
}

// Bytes are the stream bytes taken, and of these those out of the window.
func (r *Reader) Bytes() (all, window uint64) { return r.bytes, r.rmaBytes }

// Window is the size of the writer's window.
func (r *Reader) Window() int { return int(r.size) }

// next loads the status word of the next slot, once; false: it is not posted.
func (r *Reader) next() (status, bool) {
	s := status(statusWord(r.ring, r.slot).Load())
	return s, uint64(s>>63) == parity(r.slot, r.slots)
}

// Posted says that something is there, whatever it is.
func (r *Reader) Posted() bool {
	if r.pieceLeft > 0 {
		return true
	}
	_, posted := r.next()
	return posted
}

// Look says what comes next without taking it.
func (r *Reader) Look() Look {
	if r.pieceLeft > 0 || r.off > 0 {
		return Data
	}
	s, posted := r.next()
	if !posted {
		return Nothing
	}
	return s.look()
}

// open takes an RMA_INFO, if it is legal: a piece inside the window that does
// not cross its end, and not before the end of the last one.
func (r *Reader) open() bool {
	start, n := getWords(payload(r.ring, r.slot))
	at := start & (r.size - 1)
	if n == 0 || n > Piece || n > r.size-at || start < r.windowEnd || start>>62 != 0 {
		return false
	}
	r.piece, r.pieceLeft, r.windowEnd = start, n, start+n
	return true
}

// Read takes stream bytes until b is full or something else comes; hostile says
// that this is nonsense. Credit is given by Give.
func (r *Reader) Read(b []byte) (n int, hostile bool) {
	for n < len(b) {
		if r.pieceLeft > 0 {
			at := r.piece & (r.size - 1)
			k := copy(b[n:], r.window[at:at+r.pieceLeft])
			r.piece += uint64(k)
			r.pieceLeft -= uint64(k)
			r.rmaBytes += uint64(k)
			n += k
			continue
		}
		s, posted := r.next()
		if !posted {
			hostile = r.off > 0 // it was, when we took the first of its bytes
			break
		}
		what := s.look()
		if what == Command {
			break
		}
		info := s.tag() == RMAInfo
		if what == Hostile || r.off > 0 && (info || r.off >= s.len()) || info && !r.open() {
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

// Give gives credit for what was taken. Its last store is fence (1) before the
// caller asks who sleeps. A piece holds its slot until all of it is taken, so
// that equal counts mean that the lane is empty.
func (r *Reader) Give() {
	if end := r.windowEnd - r.pieceLeft; end != r.own.windowTaken.Load() {
		r.own.windowTaken.Store(end)
	}
	taken := r.slot
	if r.pieceLeft > 0 {
		taken--
	}
	r.own.slotsTaken.Store(taken)
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

// Skip looks for the Back that ends a withdrawal and goes behind it. Nothing: it
// is not posted yet. Command: it was there. Data: the writer had left the lane
// before it saw go_back, or ended: what is here cannot be had by TCP.
func (r *Reader) Skip() Look {
	walk := *r
	walk.off, walk.pieceLeft = 0, 0
	for range r.slots {
		s, posted := walk.next()
		if !posted {
			return Nothing
		}
		what := s.look()
		if what == Hostile || s.tag() == RMAInfo && !walk.open() {
			return Hostile
		}
		walk.pieceLeft = 0
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
