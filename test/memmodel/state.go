package memmodel

// Bounds of what a process can have under way. A run that meets one of them reports it in
// Result.Bounded.
const (
	maxBuffer = 8 // stores issued and not yet visible; a further store waits
	// overwritten values that a process may still read; beyond this the oldest is forgotten
	maxEcho = 12
	maxLate = 4 // loads issued and not yet satisfied; a further load is satisfied at once
)

// A state is everything that the future depends on. This is the working form, of fixed size, copied
// for every step. Stored states are packed.
type state struct {
	mem     [maxWords]uint8 // the one memory all processes share, and the counters of events
	threads [maxProcesses]thread
}

// A thread is a process's part of a state.
type thread struct {
	pc    uint8
	nbuf  uint8
	necho uint8
	nlate uint8
	vars  vars
	buf   [maxBuffer]buffered
	echo  [maxEcho]past
	late  [maxLate]delayed
}

// A buffered store waits to become visible. The oldest is first.
type buffered struct {
	word, value uint8
	release     bool
	// 1 + the place of the late load whose value it will store; 0: it has its value
	awaits uint8
}

// A past is a value that memory no longer holds but that the process may still read, as if it had
// loaded it early. The list is in the order in which the values were overwritten. A spent one can
// no longer be read itself. It stays to mark the moment for an acquire load that reads its
// successor.
type past struct {
	word, value uint8
	spent       bool
}

// A delayed load was issued at pc and has not got its value yet. The oldest is first.
type delayed struct {
	pc, word uint8
	want     uint8 // of an Expect
	older    uint8 // how many of the buffered stores were issued before it
}

// dropBuffered removes the store at place i of the buffer.
func (t *thread) dropBuffered(i int) {
	copy(t.buf[i:], t.buf[i+1:t.nbuf])
	t.nbuf--
	for k := range t.late[:t.nlate] {
		if l := &t.late[k]; int(l.older) > i {
			l.older--
		}
	}
}

// dropLate removes late load i, which has got its value.
func (t *thread) dropLate(i int, value uint8) {
	copy(t.late[i:], t.late[i+1:t.nlate])
	t.nlate--
	for k := range t.buf[:t.nbuf] {
		switch w := &t.buf[k]; {
		case int(w.awaits) == i+1:
			w.awaits, w.value = 0, value
		case int(w.awaits) > i+1:
			w.awaits--
		}
	}
}

// forget removes the n oldest entries of the echo, and those after them that no longer matter.
func (t *thread) forget(n int) {
	for n < int(t.necho) && t.echo[n].spent {
		n++
	}
	copy(t.echo[:], t.echo[n:t.necho])
	t.necho -= uint8(n)
}

// pack appends the parts of the state that the model uses.
func (x *explorer) pack(b []byte, s *state) []byte {
	b = append(b, s.mem[:len(x.model.words)]...)
	for p := range x.programs {
		t := &s.threads[p]
		b = append(b, t.pc, t.nbuf, t.necho, t.nlate)
		b = append(b, t.vars[:len(x.model.procs[p].vars)]...)
		for _, w := range t.buf[:t.nbuf] {
			b = append(b, w.word<<1|truth(w.release), w.value, w.awaits)
		}
		for _, e := range t.echo[:t.necho] {
			b = append(b, e.word<<1|truth(e.spent), e.value)
		}
		for _, l := range t.late[:t.nlate] {
			b = append(b, l.pc, l.word, l.want, l.older)
		}
	}
	return b
}

// unpack is the inverse of pack. What the packed form leaves out is never read.
func (x *explorer) unpack(s *state, b []byte) {
	take := func(n int) []byte {
		var head []byte
		head, b = b[:n], b[n:]
		return head
	}
	copy(s.mem[:], take(len(x.model.words)))
	for p := range x.programs {
		t := &s.threads[p]
		h := take(4)
		t.pc, t.nbuf, t.necho, t.nlate = h[0], h[1], h[2], h[3]
		copy(t.vars[:], take(len(x.model.procs[p].vars)))
		for i := range t.buf[:t.nbuf] {
			f := take(3)
			t.buf[i] = buffered{f[0] >> 1, f[1], f[0]&1 == 1, f[2]}
		}
		for i := range t.echo[:t.necho] {
			f := take(2)
			t.echo[i] = past{f[0] >> 1, f[1], f[0]&1 == 1}
		}
		for i := range t.late[:t.nlate] {
			f := take(4)
			t.late[i] = delayed{f[0], f[1], f[2], f[3]}
		}
	}
}
