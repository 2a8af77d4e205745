package lane

// An advert announces bytes that the reader copies from where they lie: in the writer's own memory
// (tag ZCopy), or in those of its windows that a program has as a buffer (tag Buffer). Only one is
// outstanding at a time, and nothing follows it before it has ended. ext-ds.md, section 5,
// describes how to withdraw it.

// Least returns the shortest advert that the reader takes; 0: none.
func (w *Writer) Least() uint64 { return w.peer.zcopyLeast.Load() }

// Wanted reports whether the reader takes the outstanding advert, and nobody has begun to withdraw
// it. A reader always takes adverts in the windows. A thread that finds the reader busy during a
// withdrawal must wait until it is not: the reader gets nothing more of this advert, and sleeps.
func (w *Writer) Wanted() bool {
	return (w.advert.here || w.Least() != 0) && w.own.zcopyWithdrawn.Load() < w.advert.number
}

// Advertise announces n bytes at an address of ours. They count as sent when they are taken. It
// returns false if there is no slot, if the last advert is outstanding, or if Settle was not called
// for it.
func (w *Writer) Advertise(address uintptr, n int) bool {
	return w.advertise(ZCopy, uint64(address), n)
}

// AdvertiseBuffer announces n bytes in the windows, in a run from [Pool.Lend], to a reader that
// knows Buffer.
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

// Advertised reports whether an advert is outstanding. It first checks how much of it was taken.
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

// ZCopied returns the bytes taken from all adverts, as of the last check.
func (w *Writer) ZCopied() uint64 { return w.advert.taken }

// Settle is called by the maker of the advert, once it knows that the advert has ended.
func (w *Writer) Settle() { w.advert.owed = false }

// Retract withdraws the outstanding advert. It returns false while the reader is copying, which
// does not matter if the reader is gone. The store of the number is fence (3).
func (w *Writer) Retract(gone bool) bool {
	if !w.Advertised() {
		return true
	}
	w.own.zcopyWithdrawn.Store(w.advert.number)
	if !gone && w.peer.zcopyBusy.Load() != 0 {
		return false
	}
	w.takeAdvert() // nothing more will be taken
	w.advert.left = 0
	return true
}

// openAdvert takes an advert. The kernel checks the address of a ZCopy.
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

// Meet opens an advert that comes next. It drops a withdrawn one once something follows it.
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

// void reports whether the current advert was withdrawn.
func (r *Reader) void() bool { return r.peer.zcopyWithdrawn.Load() >= r.advert.number }

// Advert returns how many bytes of the current advert can be pulled.
func (r *Reader) Advert() uint64 {
	if r.advert.stuck || r.advert.over {
		return 0
	}
	return r.advert.left
}

// Stuck reports whether the current advert could not be copied.
func (r *Reader) Stuck() bool { return r.advert.left > 0 && r.advert.stuck }

// AtAdvert reports whether the current item is an advert with bytes left.
func (r *Reader) AtAdvert() bool { return r.advert.left > 0 }

// ZCopied returns the bytes taken from all adverts.
func (r *Reader) ZCopied() uint64 { return r.advert.taken }

// Invite sets the shortest advert that we take; 0: none.
func (r *Reader) Invite(least uint64) { r.own.zcopyLeast.Store(least) }

// Pull copies bytes of the advert. fetch gets bytes at an address of the writer's process, and
// returns how many. The stores of zcopyBusy are fence (4) and the release of the credit. If fetch
// returns none and the advert is not withdrawn, the advert is stuck; hostile reports that something
// follows it nevertheless.
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
