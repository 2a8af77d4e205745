package lane

// A run is a row of windows that a program has as a buffer. Writes from it are announced where they
// lie. Lanes use windows from the first on; runs are taken from the last on down.
type run struct{ first, end int }

// Lend takes windows for n bytes from the lanes. It returns nil if there are not that many in a row
// that no lane has used, or if the budget does not grant their memory.
func (p *Pool) Lend(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := int(p.own.Window)
	count := n/size + min(n%size, 1)
	if count <= 0 || count > int(p.own.Windows) {
		return nil
	}
	at, end := len(p.runs), int(p.own.Windows)
	for ; at > 0 && end-p.runs[at-1].end < count; at-- {
		end = p.runs[at-1].first
	}
	if end-count < len(p.used) {
		return nil
	}
	var cost uint64
	for k := end - count; k < end; k++ {
		if !p.paid(k) {
			cost += uint64(size)
		}
	}
	if cost > 0 && !p.afford(cost, true) {
		return nil
	}
	for k := end - count; k < end; k++ {
		p.touched[k/64] |= 1 << (k % 64)
	}
	p.runs = append(p.runs, run{})
	copy(p.runs[at+1:], p.runs[at:])
	p.runs[at] = run{end - count, end}
	from := (end - count) * size
	return p.own.windows()[from : from+n : from+n]
}

// paid reports whether the budget has granted all of a window, because it was part of a buffer
// before.
func (p *Pool) paid(n int) bool { return p.touched[n/64]>>(n%64)&1 == 1 }

// Lent returns where in the windows b lies, if it lies in one buffer.
func (p *Pool) Lent(b []byte) (at uint64, ok bool) {
	at, ok = offset(p.own.windows(), b)
	if !ok {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	size := uint64(p.own.Window)
	for _, r := range p.runs {
		if uint64(r.first)*size <= at && at+uint64(len(b)) <= uint64(r.end)*size {
			return at, true
		}
	}
	return 0, false
}

// Return returns the windows of a buffer.
func (p *Pool) Return(b []byte) {
	at, _ := offset(p.own.windows(), b)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.runs {
		if uint64(r.first)*uint64(p.own.Window) == at {
			p.runs = append(p.runs[:i], p.runs[i+1:]...)
			return
		}
	}
}
