package memmodel

// A Memory says what processes may see of each other's stores.
type Memory uint8

const (
	// SC is sequential consistency: one step of one process at a time, each seen by all at
	// once. No machine works like this; a protocol error that shows here is an error of logic.
	SC Memory = iota

	// TSO is x86: stores wait in a FIFO buffer, which the process itself reads through.
	TSO

	// Weak is at least as weak as arm64: stores to different words become visible in any order,
	// and loads are satisfied early or late.
	Weak
)

// Memories lists all memories, from strong to weak.
var Memories = []Memory{SC, TSO, Weak}

func (m Memory) String() string {
	if int(m) < len(Memories) {
		return [...]string{"SC", "TSO", "Weak"}[m]
	}
	return "no memory"
}

// Three things stand between a process and memory:
//
//	           ┌───────────── process ─────────────┐
//	store ────►│ store buffer           TSO, Weak  │─── commit ──────►┐
//	           │   TSO: in order                   │                  │
//	           │   Weak: any order, except the     │             ┌────▼────┐
//	           │         same word, and release    │             │ memory  │
//	load ◄─────│ echo                   Weak       │◄── the old ─┤         │
//	           │   values overwritten since the    │    value    └────┬────┘
//	           │   last fence                      │                  │
//	load ◄─────│ late loads             Weak       │◄─────────────────┘
//	           │   until the value is needed       │
//	           └───────────────────────────────────┘
//
// A load that is satisfied early returns what memory held at an earlier moment: an entry of the
// echo. The process can go back to its last fence, but not beyond its last acquire load, nor, for
// each word, beyond its own earlier accesses. A load that is satisfied late lets stores issued
// after it become visible first.

// committable reports whether the store at place i of the buffer can become visible now.
func (x *explorer) committable(t *thread, i int) bool {
	if x.memory == TSO {
		return i == 0
	}
	w := t.buf[i]
	if w.awaits != 0 || w.release && i > 0 {
		return false
	}
	if stores(t.buf[:i], w.word) {
		return false
	}
	for _, l := range t.late[:t.nlate] {
		if int(l.older) <= i && (w.release || l.word == w.word) {
			return false
		}
	}
	return true
}

// commit makes a store of process p visible.
func (x *explorer) commit(s *state, p int, word, value uint8) {
	if x.memory == Weak {
		for q := range x.programs {
			if q != p {
				x.remember(s, q, past{word: word, value: s.mem[word]})
			}
		}
		// The process's own store makes the word's earlier values unreachable for it. It
		// marks no moment: an acquire load that reads it may have done so in the buffer,
		// long ago.
		s.threads[p].keep(^uint64(1 << word))
	}
	s.mem[word] = value
}

// remember adds an entry to the echo of process q. An entry that is spent from the start only marks
// the moment of a Ring, which is never seen late.
func (x *explorer) remember(s *state, q int, e past) {
	t := &s.threads[q]
	if !x.unreduced && x.programs[q].liveWords[t.pc]&(1<<e.word) == 0 {
		return
	}
	if t.necho == maxEcho {
		x.bounded = true
		t.forget(1)
	}
	t.echo[t.necho] = e
	t.necho++
	t.forget(0)
}

// keep removes from the echo the entries of all other words.
func (t *thread) keep(words uint64) {
	kept := uint8(0)
	for _, e := range t.echo[:t.necho] {
		if words&(1<<e.word) != 0 {
			t.echo[kept] = e
			kept++
		}
	}
	t.necho = kept
	t.forget(0)
}

// spend makes the values of a word before place i of the echo unreadable.
func (t *thread) spend(word uint8, i int) {
	for k := range t.echo[:i] {
		if t.echo[k].word == word {
			t.echo[k].spent = true
		}
	}
}

// observe records that the process has read a word at place i of its echo; place necho is memory
// itself. Older values of the word are now out of its reach. After an acquire load, so is
// everything that memory held before the value was written.
func (t *thread) observe(word uint8, i int, o order) {
	t.spend(word, i)
	since := 0
	if o == acquire {
		for k := range t.echo[:i] {
			if t.echo[k].word == word {
				since = k + 1
			}
		}
	}
	t.forget(since)
}

// A reading is one value that a load may return.
type reading struct {
	value uint8
	from  source
	place int // in the echo; its length means memory
}

type source uint8

const (
	fromMemory source = iota
	fromBuffer
	fromEcho
)

// readings lists what a load of a word may return now, with the given number of older stores of its
// process still in the buffer. Of equal values it lists only the oldest, which leaves the process
// the most freedom.
func (x *explorer) readings(s *state, t *thread, word uint8, older int) []reading {
	x.values = x.values[:0]
	for i := older - 1; i >= 0; i-- {
		if w := t.buf[i]; w.word == word {
			if w.awaits != 0 {
				return nil
			}
			return append(x.values, reading{w.value, fromBuffer, 0})
		}
	}
	add := func(r reading) {
		for _, earlier := range x.values {
			if earlier.value == r.value {
				return
			}
		}
		x.values = append(x.values, r)
	}
	for i, e := range t.echo[:t.necho] {
		if e.word == word && !e.spent {
			add(reading{e.value, fromEcho, i})
		}
	}
	add(reading{s.mem[word], fromMemory, int(t.necho)})
	return x.values
}

// inTurn reports whether a load of a word, issued after the given numbers of late loads and
// buffered stores, may get its value. Loads of one word get theirs in order, unless a store of
// their own process stands between them.
func (t *thread) inTurn(word uint8, late, older int) bool {
	for _, l := range t.late[:late] {
		if l.word == word && !stores(t.buf[l.older:older], word) {
			return false
		}
	}
	return true
}

func stores(buf []buffered, word uint8) bool {
	for _, w := range buf {
		if w.word == word {
			return true
		}
	}
	return false
}
