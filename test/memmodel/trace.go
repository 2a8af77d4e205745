package memmodel

import (
	"bytes"
	"fmt"
	"strings"
)

// A State is what the claims of a model can look at.
type State struct {
	model *Model
	s     *state
}

// Word returns the value that memory holds, without stores that are still in a buffer. The word may
// be an element of an array (At) with a constant index.
func (s State) Word(w Word) int {
	i := w.index.eval(&vars{})
	if w.index.uses != 0 || i >= w.size {
		s.model.mistake("a claim looks at %s", w.name)
		return 0
	}
	return int(s.s.mem[w.first+i])
}

// Var returns the value of a variable that was declared by Result.
func (s State) Var(v Var) int {
	if s.model.procs[v.owner].results&(1<<v.slot) == 0 {
		s.model.mistake("a claim looks at %s, which is not declared by Result", v.name)
	}
	return int(s.s.threads[v.owner].vars[v.slot])
}

// notSo words the complaint about a claim that does not hold.
func notSo(claim, cond string) string {
	if cond != "" {
		cond = ": " + cond
	}
	return fmt.Sprintf("%q does not hold%s", claim, cond)
}

// A CounterExample is a shortest way to a state in which something is wrong.
type CounterExample struct {
	What  string // what is wrong
	Trace []Line // how it came about
	End   string // what memory holds at the end
}

// A Line of a trace is one thing that one process did.
type Line struct {
	Process string
	Action  string // in the words of the program
	Remark  string // the memory's part in it
}

func (c *CounterExample) String() string {
	var process, action int
	for _, l := range c.Trace {
		process = max(process, len(l.Process))
		action = max(action, len(l.Action))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.What)
	for _, l := range c.Trace {
		line := fmt.Sprintf("  %-*s  %-*s  %s", process, l.Process, action, l.Action, l.Remark)
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, "  memory in the end: %s\n", c.End)
	return b.String()
}

func (r *Result) String() string {
	s := fmt.Sprintf("%s, %s", r.Model, r.Run.Memory)
	if r.Run.Without != "" {
		s += fmt.Sprintf(", without %q", r.Run.Without)
	}
	s += fmt.Sprintf(": %d states, %d steps, depth %d", r.States, r.Steps, r.Depth)
	if r.Bounded {
		s += ", bounded"
	}
	if r.CounterExample != nil {
		return s + ": " + r.CounterExample.String()
	}
	return s + ": holds"
}

// A deed is one line of a trace before it is worded.
type deed struct {
	process int
	what    what
	instr   *instr
	word    uint8
	value   uint8
	memory  uint8 // what memory held at that moment, or holds now
	from    source
	awaits  bool // a store that does not have its value yet
}

type what uint8

const (
	committed what = iota
	loaded
	issued
	stored
	fenced
	swapped
	rang
	woke
	killed
)

func (x *explorer) did(d deed) { x.deeds = append(x.deeds, d) }

// explain finds the way to a finding: from state to parent back to the start, then forward,
// repeating each step that led to the next state.
func (x *explorer) explain(f *finding) *CounterExample {
	var path []uint32
	for id := f.state; id != 0; id = x.parents[id] {
		path = append(path, id)
	}
	c := &CounterExample{What: f.what}
	s := x.start()
	c.add(x)
	at := uint32(0)
	for i := len(path) - 1; i >= 0; i-- {
		x.replay(at, func(n *state, _ int) bool {
			return x.fault == "" && bytes.Equal(x.pack(nil, n), x.states.get(path[i]))
		}, c)
		at = path[i]
	}
	x.unpack(&s, x.states.get(f.state))
	if f.step != none {
		x.replay(at, func(n *state, step int) bool {
			if step == f.step {
				s = *n
			}
			return step == f.step
		}, c)
	}
	c.End = x.picture(&s)
	return c
}

// replay repeats the steps from a state until one is wanted, and adds what that step did to the
// trace.
func (x *explorer) replay(from uint32, wanted func(n *state, step int) bool, c *CounterExample) {
	var s state
	x.unpack(&s, x.states.get(from))
	step, done := 0, false
	x.visit = func(n *state) {
		if !done && wanted(n, step) {
			done = true
			c.add(x)
		}
		step++
	}
	x.expand(&s)
}

func (c *CounterExample) add(x *explorer) {
	for _, d := range x.deeds {
		c.Trace = append(c.Trace, x.line(d))
	}
}

func (x *explorer) line(d deed) Line {
	l := Line{Process: x.model.procs[d.process].name}
	word := x.model.words[d.word].name
	dst := ""
	if d.instr != nil && d.instr.dst != none {
		dst = x.model.procs[d.process].vars[d.instr.dst]
	}
	switch d.what {
	case committed:
		l.Action = fmt.Sprintf("  %s := %d is visible", word, d.value)
	case loaded:
		l.Action = fmt.Sprintf("%s = %s: %d", dst, word, d.value)
		if dst == "" {
			l.Action = fmt.Sprintf("expect %s: %d", word, d.value)
		}
		switch {
		case d.from == fromBuffer:
			l.Remark = "its own store"
		case d.from == fromEcho:
			l.Remark = fmt.Sprintf("loaded early: memory holds %d", d.memory)
		}
	case issued:
		l.Action = fmt.Sprintf("%s = %s", dst, word)
		if dst == "" {
			l.Action = "expect " + word
		}
		l.Remark = "issued, satisfied late"
	case stored:
		l.Action = fmt.Sprintf("%s := %d", word, d.value)
		if x.memory != SC {
			l.Remark = "into its store buffer"
		}
		if d.awaits {
			l.Action = fmt.Sprintf("%s := %s", word, d.instr.x.text)
			l.Remark += ", without the value yet"
		}
	case fenced:
		l.Action = "fence"
	case swapped:
		l.Action = fmt.Sprintf("%s %s: %d to %d", verbs[d.instr.op], word, d.value, d.memory)
	case rang:
		l.Action = fmt.Sprintf("ring %s", word)
	case woke:
		l.Action = fmt.Sprintf("%s %s: %d", verbs[d.instr.op], word, d.value)
	case killed:
		l.Action = "is killed"
	}
	return l
}

var verbs = map[opcode]string{
	opExchange: "exchange", opCompareAndSwap: "compare and swap",
	opWait: "wait", opPoll: "poll", opDrain: "drain",
}

// describe words an instruction that a process is waiting at.
func (x *explorer) describe(in *instr) string {
	verb := verbs[in.op]
	for _, e := range in.events {
		verb += " " + x.model.words[e].name
	}
	return verb
}

// picture shows what is not 0 in memory.
func (x *explorer) picture(s *state) string {
	var parts []string
	for i, c := range x.model.words {
		if s.mem[i] != 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", c.name, s.mem[i]))
		}
	}
	if parts == nil {
		return "all 0"
	}
	return strings.Join(parts, " ")
}
