package memmodel

// An instr is one instruction of a compiled program. A process's place in its program is one byte
// of the state.
type instr struct {
	op     opcode
	dst    int8  // variable that receives a value, or none
	at     Word  // word accessed
	x      Expr  // value stored, set or expected; condition
	old    Expr  // value a CompareAndSwap compares with
	order  order // of a load or store
	late   bool  // a load that later stores can overtake
	to     []int // jump: where if true, where if false; choice: its branches
	events []uint8
	uses   uint32 // variables its expressions read
	text   string // of an assertion
}

type opcode uint8

const (
	opEnd opcode = iota

	// On variables only.
	opSet
	opAssert
	opJump

	// On what is shared, or with several outcomes.
	opChoose
	opLoad
	opStore
	opFence
	opExchange
	opCompareAndSwap
	opRing
	opWait
	opPoll
	opDrain
)

type order uint8

const (
	plain order = iota
	acquire
	release
)

const none = -1

// A program is a process's compiled code.
type program struct {
	code   []instr
	mortal bool
	death  int // where a killed process continues

	liveVars  []uint32 // for each place, the variables that matter there
	liveWords []uint64 // for each place, the words that are loaded before the next fence
}

type compiler struct {
	model   *Model
	process *Process
	without string          // the rule to break
	rules   map[string]bool // the rules met
	code    []instr
}

// compile translates all programs. It breaks the rule without, unless that is empty.
func (m *Model) compile(without string) ([]program, map[string]bool) {
	c := &compiler{model: m, without: without, rules: map[string]bool{}}
	var programs []program
	for _, p := range m.procs {
		c.process, c.code = p, nil
		c.block(p.body)
		c.add(instr{op: opEnd, dst: none})
		death := c.here()
		if p.mortal {
			c.block(p.last)
			c.add(instr{op: opEnd, dst: none})
		}
		if len(c.code) > maxInstructions {
			m.mistake("%s has %d instructions, at most %d fit", p.name, len(c.code), maxInstructions)
		}
		prog := program{code: c.code, death: death, mortal: p.mortal}
		for i := range prog.code {
			prog.code[i].late = overtaken(prog.code, i)
		}
		prog.live(p.results)
		programs = append(programs, prog)
	}
	return programs, c.rules
}

func (c *compiler) block(body []Stmt) {
	for _, s := range body {
		s.compile(c)
	}
}

func (c *compiler) here() int { return len(c.code) }

// add appends an instruction and returns its place.
func (c *compiler) add(in instr) int {
	for _, e := range []Expr{in.x, in.old, in.at.index} {
		in.uses |= e.uses
		if e.owners&^(1<<c.process.index) != 0 {
			c.model.mistake("%s uses a variable of another process in %s", c.process.name, e.text)
		}
		if e.wide {
			c.model.mistake("%s: a constant in %s is not a byte", c.process.name, e.text)
		}
	}
	c.code = append(c.code, in)
	return len(c.code) - 1
}

func (c *compiler) target(jump int, to ...int) { c.code[jump].to = to }

func (c *compiler) slot(v Var) int8 {
	if v.owner != c.process.index {
		c.model.mistake("%s uses the variable %s of another process", c.process.name, v.name)
	}
	return int8(v.slot)
}

// overtaken reports whether a plain load at code[i] can still be under way when a later store of
// its process is visible: whether some path reaches a plain store before anything that waits for
// the load. Only then is it worth exploring its late arrival on Weak. Against other loads, the echo
// covers all reordering.
func overtaken(code []instr, i int) bool {
	load := code[i]
	if load.op != opLoad || load.order != plain {
		return false
	}
	visited := make([]bool, len(code))
	var reaches func(i int) bool
	reaches = func(i int) bool {
		if visited[i] {
			return false
		}
		visited[i] = true
		in := &code[i]
		if in.awaits(&load) {
			return false
		}
		switch in.op {
		case opStore:
			if in.order == plain && !in.copies(&load) {
				return true
			}
		case opJump, opChoose:
			for _, t := range in.to {
				if reaches(t) {
					return true
				}
			}
			return false
		}
		return reaches(i + 1)
	}
	return reaches(i + 1)
}

// awaits reports whether an instruction cannot run before an earlier load of its process has its
// value.
func (in *instr) awaits(load *instr) bool {
	switch in.op {
	case opEnd, opFence, opExchange, opCompareAndSwap, opRing, opWait, opPoll, opDrain:
		return true
	}
	return load.dst != none && (in.dst == load.dst || in.uses&(1<<load.dst) != 0 && !in.copies(load))
}

// copies reports whether an instruction stores exactly what a load has loaded. Such a store can
// wait for the value in the buffer, and does not delay those behind it.
func (in *instr) copies(load *instr) bool {
	return in.op == opStore && load.dst != none && in.x.copy && in.x.uses == 1<<load.dst &&
		in.at.index.uses&in.x.uses == 0
}
