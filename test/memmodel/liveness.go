package memmodel

// Two states that differ only in values that no process will ever look at have the same future. So
// a variable that is written before it is next read is set to 0, and an entry of the echo is
// dropped if its word is not loaded before the next fence. That makes the exploration several times
// smaller and loses nothing.

// live computes, for each place of a program, what matters from there on.
func (p *program) live(results uint32) {
	p.liveVars = make([]uint32, len(p.code))
	p.liveWords = make([]uint64, len(p.code))
	for changed := true; changed; {
		changed = false
		for i := len(p.code) - 1; i >= 0; i-- {
			in := &p.code[i]
			vars, words := results, uint64(0)
			for _, next := range p.successors(i) {
				vars |= p.liveVars[next]
				words |= p.liveWords[next]
			}
			if in.dst != none {
				vars &^= 1 << in.dst
			}
			vars |= in.uses | results
			switch in.op {
			case opFence, opExchange, opCompareAndSwap:
				words = 0
			case opLoad:
				for k := range in.at.size {
					words |= 1 << (in.at.first + k)
				}
			case opWait, opPoll, opDrain:
				for _, e := range in.events {
					words |= 1 << e
				}
			}
			changed = changed || vars != p.liveVars[i] || words != p.liveWords[i]
			p.liveVars[i], p.liveWords[i] = vars, words
		}
	}
}

// successors lists where a process can be after the instruction at i.
func (p *program) successors(i int) []int {
	var next []int
	switch in := &p.code[i]; in.op {
	case opEnd:
		return nil
	case opJump, opChoose:
		next = in.to
	default:
		next = []int{i + 1}
	}
	if p.mortal && i < p.death {
		next = append(next[:len(next):len(next)], p.death)
	}
	return next
}

// prune removes from a thread what does not matter any more.
func (p *program) prune(t *thread) {
	for slot := range t.vars {
		if p.liveVars[t.pc]&(1<<slot) == 0 {
			t.vars[slot] = 0
		}
	}
	t.keep(p.liveWords[t.pc])
}
