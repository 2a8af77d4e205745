package memmodel

import (
	"fmt"
	"maps"
	"slices"
)

// Limits of a model. The first three bound the working state, which is copied for every step (under
// 1 KiB). Of each stored state only what the model uses is kept.
const (
	maxProcesses    = 8
	maxWords        = 48  // words and events; a set of them has 64 bits
	maxVars         = 24  // per process; a set of them has 32 bits
	maxInstructions = 255 // per process; its place is a byte
)

// A Model consists of shared memory, events, the processes that use them, and the claims that must
// hold.
type Model struct {
	name    string
	words   []cell // words and events, by number
	procs   []*Process
	always  []claim
	finally []claim
	err     error // first mistake in the model itself
}

// A cell is one shared byte: a word of memory, or the counter of an event.
type cell struct {
	name    string
	initial uint8
}

type claim struct {
	text  string
	holds func(State) bool
}

// New returns an empty model.
func New(name string) *Model { return &Model{name: name} }

// Name returns the name given to New.
func (m *Model) Name() string { return m.name }

// A Word is one word of shared memory. It holds a byte: models need no larger numbers.
type Word struct {
	name  string
	first uint8 // its cell; in an array, the cell of element 0
	size  uint8 // words in its array; 1 if it stands alone
	index Expr
}

// An Array is a row of words.
type Array struct{ word Word }

// An Event is an eventfd.
type Event struct {
	name string
	id   uint8
}

// Word declares a word of shared memory that starts at the given value.
func (m *Model) Word(name string, initial uint8) Word {
	return Word{name: name, first: m.cell(name, initial), size: 1, index: expr(0)}
}

// Array declares n words that start at 0.
func (m *Model) Array(name string, n int) Array {
	a := Array{Word{name: name, first: uint8(len(m.words)), size: uint8(n), index: expr(0)}}
	for i := range n {
		m.cell(fmt.Sprintf("%s[%d]", name, i), 0)
	}
	return a
}

// At returns an element of an array. The index is computed when the statement runs.
func At[I Operand](a Array, index I) Word {
	w := a.word
	w.index = expr(index)
	w.name = fmt.Sprintf("%s[%s]", w.name, w.index.text)
	return w
}

// Event declares an eventfd; its counter starts at 0.
func (m *Model) Event(name string) Event {
	return Event{name: name, id: m.cell(name, 0)}
}

func (m *Model) cell(name string, initial uint8) uint8 {
	if len(m.words) == maxWords {
		m.mistake("more than %d words and events", maxWords)
		return 0
	}
	m.words = append(m.words, cell{name, initial})
	return uint8(len(m.words) - 1)
}

// A Process is a thread of execution with a store buffer of its own: a process, or one thread of
// several.
type Process struct {
	model   *Model
	index   int
	name    string
	vars    []string
	body    []Stmt
	results uint32 // set of variables that claims look at
	mortal  bool
	last    []Stmt // what the kernel does after the process's death
}

// Process declares a process.
func (m *Model) Process(name string) *Process {
	if len(m.procs) == maxProcesses {
		m.mistake("more than %d processes", maxProcesses)
	}
	p := &Process{model: m, index: len(m.procs), name: name}
	m.procs = append(m.procs, p)
	return p
}

// Var declares a variable of the process.
func (p *Process) Var(name string) Var {
	if len(p.vars) == maxVars {
		p.model.mistake("%s has more than %d variables", p.name, maxVars)
	}
	p.vars = append(p.vars, name)
	return Var{name: name, owner: p.index, slot: uint8(len(p.vars) - 1)}
}

// Result declares a variable of the process that claims may look at. The values of other variables
// are kept only as long as the program needs them.
func (p *Process) Result(name string) Var {
	v := p.Var(name)
	p.results |= 1 << v.slot
	return v
}

// Does gives the process its program.
func (p *Process) Does(body ...Stmt) { p.body = body }

// MayDie allows the process to be killed at any step. What it has stored still reaches memory. The
// kernel then runs the given statements in its name. A Ring among them, which like every Ring waits
// until all stores are visible, means that its socket hung up.
func (p *Process) MayDie(last ...Stmt) {
	p.mortal = true
	p.last = last
}

// Always claims that a condition holds in every state.
func (m *Model) Always(text string, holds func(State) bool) {
	m.always = append(m.always, claim{text, holds})
}

// Finally claims that a condition holds whenever all processes have ended.
func (m *Model) Finally(text string, holds func(State) bool) {
	m.finally = append(m.finally, claim{text, holds})
}

// Rules returns the sorted names of the rules that the programs mark.
func (m *Model) Rules() []string {
	_, rules := m.compile("")
	return slices.Sorted(maps.Keys(rules))
}

func (m *Model) mistake(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("model %q: %s", m.name, fmt.Sprintf(format, args...))
	}
}
