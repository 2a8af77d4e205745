package lane

// An advert announces bytes which the reader copies from where they lie: in the writer's
// own memory (the slot ZCopy), or in those of its windows that a program has as a buffer
// (Buffer). One is out at a time, and nothing follows it before it is over; ext-ds.md,
// section 5, has the order of withdrawing it.

// Least is the length from which on the reader takes adverts; 0: none.
func (w *Writer) Least() uint64 { return w.peer.zcopyLeast.Load() }

// Wanted says that the reader takes the advert that is out, those in its sight always, and
// that nobody has begun to withdraw it: who finds the reader busy then must go on until it is
// not, since that gets nothing more of this advert, and sleeps.
func (w *Writer) Wanted() bool {
	return (w.advert.here || w.Least() != 0) && w.own.zcopyWithdrawn.Load() < w.advert.number
}

// Advertise announces n bytes at an address of ours. They count as they are taken.
// False: there is no slot, or the last advert is out, or Settle does not know of it.
func (w *Writer) Advertise(address uintptr, n int) bool {
	return w.advertise(ZCopy, uint64(address), n)
}

// AdvertiseBuffer announces n bytes in the windows, of a run that [Pool.Lend] gave, for a reader
// that knows Buffer.
func (w *Writer) AdvertiseBuffer(at uint64, n int) bool { return w.advertise(Buffer, at, n) }

func (w *Writer) advertise(t Tag, where uint64, n int) bool {
	if w.slotsFree(reserved) == 0 {
		w.refresh()
	}
	if w.advert.left > 0 || w.advert.owed || w.broken || w.slotsFree(reserved) == 0 {
		return false
	}
	w.advert.number++
	w.advert.left, w.advert.owed, w.advert.here = uint64(n), true, t == Buffer
	putWords(payload(w.ring, w.slot), where, uint64(n))
	w.publish(t, words)
	return true
}

// Advertised says that an advert is out, after a look at what was taken of it.
func (w *Writer) Advertised() bool {
	if w.advert.left > 0 {
		w.takeAdvert()
	}
	return w.advert.left > 0
}

func (w *Writer) takeAdvert() {
	n := w.peer.zcopyTaken.Load() - w.advert.taken
	if n > w.advert.left {
		w.broken = true
		return
	}
	w.advert.taken += n
	w.advert.left -= n
	w.bytes += n
}

// ZCopied are the bytes taken of all adverts, as last looked at.
func (w *Writer) ZCopied() uint64 { return w.advert.taken }

// Settle is for who made the advert: it knows of its end.
func (w *Writer) Settle() { w.advert.owed = false }

// Retract withdraws the advert that is out. False: the reader is copying, which
// matters unless it is gone. The store of the number is fence (3).
func (w *Writer) Retract(gone bool) bool {
	if !w.Advertised() {
		return true
	}
	w.own.zcopyWithdrawn.Store(w.advert.number)
	if !gone && w.peer.zcopyBusy.Load() != 0 {
		return false
	}
	w.takeAdvert() // nothing more comes
	w.advert.left = 0
	return true
}

// openAdvert takes an advert. The address of a ZCopy is for the kernel to check.
func (r *Reader) openAdvert(t Tag) bool {
	address, n := getWords(payload(r.ring, r.slot))
	if n == 0 || n>>62 != 0 || address+n < address || t == Buffer && address+n > uint64(len(r.windows)) {
		return false
	}
	a := &r.advert
	a.number++
	a.address, a.left, a.here, a.stuck, a.over = address, n, t == Buffer, false, false
	return true
}

// Meet opens an advert that comes next. It drops one that is withdrawn once
// something is behind it.
func (r *Reader) Meet() (dropped bool) {
	for ; ; dropped = true {
		if r.pieceLeft > 0 || r.off > 0 {
			return dropped
		}
		s, posted := r.next()
		if r.advert.left == 0 {
			if !posted || s.look() != Data || !s.tag().advert() || !r.openAdvert(s.tag()) {
				return dropped
			}
			r.slot++
			_, posted = r.next()
		}
		if r.advert.over = r.void(); !r.advert.over || !posted {
			return dropped
		}
		r.advert.left, r.advert.over, r.advert.stuck = 0, false, false
	}
}

// void says that the advert that we came to is withdrawn.
func (r *Reader) void() bool { return r.peer.zcopyWithdrawn.Load() >= r.advert.number }

// Advert is how many bytes there are to pull of the advert that we have come to.
func (r *Reader) Advert() uint64 {
	if r.advert.stuck || r.advert.over {
		return 0
	}
	return r.advert.left
}

// Stuck says that the advert that we have come to could not be copied.
func (r *Reader) Stuck() bool { return r.advert.left > 0 && r.advert.stuck }

// AtAdvert says that we have come to one that has bytes left, or had.
func (r *Reader) AtAdvert() bool { return r.advert.left > 0 }

// ZCopied are the bytes taken of all adverts.
func (r *Reader) ZCopied() uint64 { return r.advert.taken }

// Invite says which adverts we take: of at least so many bytes; 0: none.
func (r *Reader) Invite(least uint64) { r.own.zcopyLeast.Store(least) }

// Pull copies bytes of the advert. Those at an address of the writer's process fetch gets,
// and says how many. The stores of zcopyBusy are fence (4) and
// the release of the credit. If there are none, and the advert is not withdrawn, it
// is stuck: hostile says that something is behind it all the same.
func (r *Reader) Pull(b []byte, fetch func(address uint64, b []byte) int) (n int, hostile bool) {
	a := &r.advert
	b = b[:min(uint64(len(b)), a.left)]
	r.own.zcopyBusy.Store(1)
	void := r.void()
	switch {
	case void:
	case a.here:
		n = copy(b, r.windows[a.address:])
	default:
		n = fetch(a.address, b)
	}
	a.address += uint64(n)
	a.left -= uint64(n)
	a.taken += uint64(n)
	r.bytes += uint64(n)
	r.own.zcopyTaken.Store(a.taken)
	r.own.zcopyBusy.Store(0)
	if n > 0 || void {
		return n, false
	}
	a.stuck = true
	_, posted := r.next()
	return 0, posted && !r.void()
}
