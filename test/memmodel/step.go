package memmodel

import "fmt"

// localSteps is how many instructions a process may run in a row that no other process can notice.
// More than that means an endless loop.
const localSteps = 1000

// expand visits the successors of a state: for every process, each store that can become visible,
// each value that a late load can get, each outcome of the next instruction, and its death.
//
// An instruction that only its own process can notice is no step of its own, but runs together with
// the step before (settle). The omitted interleavings differ from the explored ones in nothing that
// another process or a claim could see.
func (x *explorer) expand(s *state) {
	for p := range x.programs {
		t, prog := &s.threads[p], &x.programs[p]
		for i := range int(t.nbuf) {
			if x.committable(t, i) {
				n, w := x.begin(s), t.buf[i]
				n.threads[p].dropBuffered(i)
				x.commit(n, p, w.word, w.value)
				x.did(deed{process: p, what: committed, word: w.word, value: w.value})
				x.finish(n, p)
			}
		}
		for i, l := range t.late[:t.nlate] {
			if !t.inTurn(l.word, i, int(l.older)) {
				continue
			}
			for _, r := range x.readings(s, t, l.word, int(l.older)) {
				n := x.begin(s)
				n.threads[p].dropLate(i, r.value)
				x.load(n, p, l, r)
				x.finish(n, p)
			}
		}
		in := &prog.code[t.pc]
		if x.ready(s, p, in) {
			x.run(s, p, in)
		}
		if prog.mortal && int(t.pc) < prog.death && in.op != opEnd {
			n := x.begin(s)
			n.threads[p].pc = uint8(prog.death)
			x.did(deed{process: p, what: killed})
			x.finish(n, p)
		}
	}
}

// begin copies the state for one transition; finish completes the copy and passes it to the
// visitor.
func (x *explorer) begin(s *state) *state {
	x.deeds, x.fault = x.deeds[:0], ""
	x.next = *s
	return &x.next
}

func (x *explorer) finish(n *state, p int) {
	if !x.unreduced {
		x.settle(n, p)
		x.programs[p].prune(&n.threads[p])
	}
	x.visit(n)
}

// settle runs the process up to its next step that others could notice.
func (x *explorer) settle(n *state, p int) {
	t := &n.threads[p]
	for range localSteps {
		in := &x.programs[p].code[t.pc]
		if x.fault != "" || !x.local(p, in) || !x.ready(n, p, in) {
			return
		}
		x.runLocal(n, p, in)
	}
	x.fault = fmt.Sprintf("%s runs for ever without touching memory", x.model.procs[p].name)
}

// local reports whether no other process can notice when an instruction runs. That holds for stores
// that enter a buffer. But a process that can die stores step by step, so that it can die in
// between. It also holds for a fence that need not wait: the sooner it runs, the more of what
// others overwrite later stays readable after it.
func (x *explorer) local(p int, in *instr) bool {
	switch in.op {
	case opSet, opAssert, opJump, opFence:
		return true
	case opStore:
		return x.memory != SC && !x.programs[p].mortal
	}
	return false
}

// ready reports whether the process can run its next instruction.
func (x *explorer) ready(s *state, p int, in *instr) bool {
	t := &s.threads[p]
	for _, l := range t.late[:t.nlate] {
		if in.awaits(&x.programs[p].code[l.pc]) {
			return false
		}
	}
	switch in.op {
	case opEnd:
		return false
	case opStore:
		if t.nbuf == maxBuffer {
			x.bounded = true
			return false
		}
	case opFence, opExchange, opCompareAndSwap, opRing:
		return t.nbuf == 0
	case opWait, opPoll:
		for _, e := range in.events {
			if s.mem[e] != 0 {
				return true
			}
		}
		return false
	}
	return true
}

// run visits every outcome of an instruction.
func (x *explorer) run(s *state, p int, in *instr) {
	switch {
	case x.local(p, in):
		n := x.begin(s)
		x.runLocal(n, p, in)
		x.finish(n, p)
	case in.op == opChoose:
		for _, to := range in.to {
			n := x.begin(s)
			n.threads[p].pc = uint8(to)
			x.finish(n, p)
		}
	case in.op == opLoad:
		x.runLoad(s, p, in)
	default:
		n := x.begin(s)
		x.runShared(n, p, in)
		n.threads[p].pc++
		x.finish(n, p)
	}
}

// runLocal runs an instruction that no other process can notice.
func (x *explorer) runLocal(n *state, p int, in *instr) {
	t := &n.threads[p]
	t.pc++
	switch in.op {
	case opSet:
		t.vars[in.dst] = in.x.eval(&t.vars)
	case opAssert:
		if in.x.eval(&t.vars) == 0 {
			x.fault = fmt.Sprintf("%s: %s", x.model.procs[p].name, notSo(in.text, in.x.text))
		}
	case opJump:
		t.pc = uint8(in.to[0])
		if in.x.eval(&t.vars) == 0 {
			t.pc = uint8(in.to[1])
		}
	case opStore:
		x.store(n, p, in)
	case opFence:
		t.necho = 0
		x.did(deed{process: p, what: fenced})
	}
}

// runLoad visits every value that a load can get now, and the case that it gets one later.
func (x *explorer) runLoad(s *state, p int, in *instr) {
	t, n := &s.threads[p], x.begin(s)
	word, ok := x.address(t, in)
	if !ok {
		x.visit(n)
		return
	}
	l := delayed{pc: t.pc, word: word, older: t.nbuf}
	if in.dst == none {
		l.want = in.x.eval(&t.vars)
	}
	if t.inTurn(word, int(t.nlate), int(t.nbuf)) {
		for _, r := range x.readings(s, t, word, int(t.nbuf)) {
			n := x.begin(s)
			n.threads[p].pc++
			x.load(n, p, l, r)
			x.finish(n, p)
		}
	}
	if x.memory != Weak || !in.late {
		return
	}
	if t.nlate == maxLate {
		x.bounded = true
		return
	}
	n = x.begin(s)
	t = &n.threads[p]
	t.late[t.nlate] = l
	t.nlate++
	t.pc++
	x.did(deed{process: p, what: issued, instr: in, word: word})
	x.finish(n, p)
}

// load completes a load with one of the values that it may return.
func (x *explorer) load(n *state, p int, l delayed, r reading) {
	t := &n.threads[p]
	in := &x.programs[p].code[l.pc]
	if r.from != fromBuffer {
		t.observe(l.word, r.place, in.order)
	}
	x.did(deed{process: p, what: loaded, instr: in, word: l.word, value: r.value, from: r.from, memory: n.mem[l.word]})
	if in.dst != none {
		t.vars[in.dst] = r.value
	} else if r.value != l.want {
		x.fault = fmt.Sprintf("%s expects %d in %s and finds %d",
			x.model.procs[p].name, l.want, x.model.words[l.word].name, r.value)
	}
}

// address computes the word an instruction accesses. An index outside its array is a fault.
func (x *explorer) address(t *thread, in *instr) (word uint8, ok bool) {
	i := in.at.index.eval(&t.vars)
	if i >= in.at.size {
		x.fault = fmt.Sprintf("index %d in %s, which has %d words", i, in.at.name, in.at.size)
		return 0, false
	}
	return in.at.first + i, true
}

// store puts a store into the buffer or, under SC, straight into memory.
func (x *explorer) store(n *state, p int, in *instr) {
	t := &n.threads[p]
	word, ok := x.address(t, in)
	if !ok {
		return
	}
	w := buffered{word: word, value: in.x.eval(&t.vars), release: in.order == release}
	for i, l := range t.late[:t.nlate] {
		if in.copies(&x.programs[p].code[l.pc]) {
			w.value, w.awaits = 0, uint8(i+1)
		}
	}
	if x.memory == SC {
		x.commit(n, p, word, w.value)
	} else {
		t.buf[t.nbuf] = w
		t.nbuf++
	}
	x.did(deed{process: p, what: stored, instr: in, word: word, value: w.value, awaits: w.awaits != 0})
}

// runShared runs an instruction that has one outcome and acts on shared state.
func (x *explorer) runShared(n *state, p int, in *instr) {
	t := &n.threads[p]
	switch in.op {
	case opStore:
		x.store(n, p, in)
	case opExchange, opCompareAndSwap:
		word, ok := x.address(t, in)
		if !ok {
			return
		}
		was, value := n.mem[word], in.x.eval(&t.vars)
		swaps := in.op == opExchange || was == in.old.eval(&t.vars)
		if swaps {
			x.commit(n, p, word, value)
		}
		t.necho = 0
		t.vars[in.dst] = was
		if in.op == opCompareAndSwap {
			t.vars[in.dst] = truth(swaps)
		}
		x.did(deed{process: p, what: swapped, instr: in, word: word, value: was, memory: n.mem[word]})
	case opRing:
		e := in.events[0]
		n.mem[e]++
		if n.mem[e] == 0 {
			x.fault = fmt.Sprintf("the counter of %s overflows", x.model.words[e].name)
		}
		if x.memory == Weak {
			for q := range x.programs {
				x.remember(n, q, past{word: e, spent: true})
			}
		}
		x.did(deed{process: p, what: rang, instr: in, word: e, value: n.mem[e]})
	case opWait, opPoll, opDrain:
		for _, e := range in.events {
			t.observe(e, int(t.necho), acquire)
			if in.op == opDrain || n.mem[e] != 0 {
				x.did(deed{process: p, what: woke, instr: in, word: e, value: n.mem[e]})
			}
			if in.op == opDrain {
				t.vars[in.dst] = n.mem[e]
			}
			if in.op != opPoll {
				n.mem[e] = 0
			}
		}
	}
}
