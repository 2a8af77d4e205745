package memmodel

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
)

// A Run says how to explore a model.
type Run struct {
	Memory    Memory
	Without   string // a rule to break; empty: the protocol as it is
	MaxStates int    // give up beyond this number; 0: 4 million, some 500 MB
}

// A Result says what an exploration found.
type Result struct {
	Model  string
	Run    Run
	States int // distinct states seen
	Steps  int // transitions between them
	Depth  int // of a shortest way to the state farthest from the start

	// Bounded is set if a process ever had as much under way as there is room for. With more
	// room more might show.
	Bounded bool

	// CounterExample is nil if the model holds.
	CounterExample *CounterExample
}

// ErrTooManyStates means that an exploration was given up.
var ErrTooManyStates = errors.New("too many states: make the model smaller or raise Run.MaxStates")

// Explore visits every reachable state of the model, breadth first, until something is wrong with
// one. An error means that there is no verdict: the model itself is faulty or too large.
func (m *Model) Explore(run Run) (*Result, error) { return m.explore(run, false) }

func (m *Model) explore(run Run, unreduced bool) (*Result, error) {
	programs, rules := m.compile(run.Without)
	if run.Without != "" && !rules[run.Without] {
		return nil, fmt.Errorf("model %q: no rule %q; it has %q", m.name, run.Without, m.Rules())
	}
	if m.err != nil {
		return nil, m.err
	}
	if run.MaxStates == 0 {
		run.MaxStates = 4_000_000
	}
	x := &explorer{model: m, memory: run.Memory, programs: programs, unreduced: unreduced}
	found, err := x.search(run.MaxStates)
	if err == nil {
		err = m.err
	}
	if err != nil {
		return nil, fmt.Errorf("model %q on %s: %w", m.name, run.Memory, err)
	}
	r := &Result{
		Model: m.name, Run: run, Bounded: x.bounded,
		States: len(x.states.ends), Steps: len(x.edges), Depth: x.depth,
	}
	if found != nil {
		r.CounterExample = x.explain(found)
	}
	return r, nil
}

// An explorer is one exploration under way.
type explorer struct {
	model    *Model
	memory   Memory
	programs []program

	// unreduced makes every instruction a step and keeps values that do not matter: many more
	// states for the same verdict. A test compares the two.
	unreduced bool

	// State of the transition being made.
	next   state
	deeds  []deed
	fault  string
	values []reading
	visit  func(*state) // called by finish with the new state

	// State of the search.
	states  stateSet
	parents []uint32 // the state from which each was first reached
	edges   []uint32 // successors of all states, one after the other
	first   []uint32 // where each state's successors start in edges
	depth   int
	bounded bool
}

// A finding is a state in which, or a step after which, something is wrong.
type finding struct {
	what  string
	state uint32
	step  int // which successor of the state is wrong, or none
}

func (x *explorer) search(limit int) (*finding, error) {
	var found *finding
	x.states.seed = maphash.MakeSeed()

	var at uint32 // the state being expanded
	var successors int
	x.visit = func(s *state) {
		step := successors
		successors++
		if found != nil {
			return
		}
		if x.fault != "" {
			found = &finding{x.fault, at, step}
			return
		}
		id, isNew := x.states.add(x.pack(x.states.scratch[:0], s))
		x.edges = append(x.edges, id)
		if isNew {
			x.parents = append(x.parents, at)
			if broken := x.broken(x.model.always, s); broken != "" {
				found = &finding{broken, id, none}
			}
		}
	}

	s := x.start()
	x.states.add(x.pack(nil, &s))
	x.parents = append(x.parents, 0)
	if x.fault == "" {
		x.fault = x.broken(x.model.always, &s)
	}
	if x.fault != "" {
		return &finding{x.fault, 0, none}, nil
	}
	for level := 1; int(at) < len(x.parents) && found == nil; at++ {
		if int(at) == level {
			x.depth++
			level = len(x.parents)
		}
		if len(x.parents) > limit {
			return nil, ErrTooManyStates
		}
		x.first = append(x.first, uint32(len(x.edges)))
		x.unpack(&s, x.states.get(at))
		successors = 0
		x.expand(&s)
		if successors == 0 && found == nil {
			if what := x.ending(&s); what != "" {
				found = &finding{what, at, none}
			}
		}
	}
	if found == nil {
		found = x.trap()
	}
	return found, nil
}

// start returns the initial state, with every process at its first step that others can notice.
func (x *explorer) start() state {
	s := x.begin(&state{})
	for i, c := range x.model.words {
		s.mem[i] = c.initial
	}
	for p := range x.programs {
		if !x.unreduced && x.fault == "" {
			x.settle(s, p)
			x.programs[p].prune(&s.threads[p])
		}
	}
	return *s
}

// ending judges a state without successors.
func (x *explorer) ending(s *state) string {
	asleep := ""
	for p := range x.programs {
		in := &x.programs[p].code[s.threads[p].pc]
		if in.op != opEnd {
			asleep += fmt.Sprintf(", %s at %s", x.model.procs[p].name, x.describe(in))
		}
	}
	if asleep != "" {
		return "asleep for ever: " + asleep[2:]
	}
	return x.broken(x.model.finally, s)
}

// broken returns the first claim that does not hold.
func (x *explorer) broken(claims []claim, s *state) string {
	for _, c := range claims {
		if !c.holds(State{x.model, s}) {
			return notSo(c.text, "")
		}
	}
	return ""
}

// trap looks for a state from which no end can be reached any more: processes that run in a circle
// for ever. (A circle that can be left is no fault: a real scheduler leaves it.)
func (x *explorer) trap() *finding {
	x.first = append(x.first, uint32(len(x.edges)))
	n := len(x.parents)
	ends := make([]bool, n)
	for changed := true; changed; {
		changed = false
		for i := n - 1; i >= 0; i-- {
			if ends[i] {
				continue
			}
			next := x.edges[x.first[i]:x.first[i+1]]
			ends[i] = len(next) == 0
			for _, j := range next {
				ends[i] = ends[i] || ends[j]
			}
			changed = changed || ends[i]
		}
	}
	for i := range ends {
		if !ends[i] {
			return &finding{"runs in a circle from which no end can be reached", uint32(i), none}
		}
	}
	return nil
}

// A stateSet numbers packed states in the order in which they come.
type stateSet struct {
	seed    maphash.Seed
	bytes   []byte   // all of them, one after the other
	ends    []uint64 // where each ends
	slots   []uint32 // open hashing: number+1; 0 is free
	scratch []byte
}

func (t *stateSet) get(id uint32) []byte {
	start := uint64(0)
	if id > 0 {
		start = t.ends[id-1]
	}
	return t.bytes[start:t.ends[id]]
}

// add returns the number of a packed state, and whether it is new.
func (t *stateSet) add(packed []byte) (id uint32, isNew bool) {
	t.scratch = packed
	if len(t.slots) < 2*(len(t.ends)+1) {
		t.grow()
	}
	slot := t.find(packed)
	if t.slots[slot] != 0 {
		return t.slots[slot] - 1, false
	}
	t.bytes = append(t.bytes, packed...)
	t.ends = append(t.ends, uint64(len(t.bytes)))
	t.slots[slot] = uint32(len(t.ends))
	return uint32(len(t.ends) - 1), true
}

// find returns the slot that holds a state, or the free one where it belongs.
func (t *stateSet) find(packed []byte) int {
	mask := len(t.slots) - 1
	slot := int(maphash.Bytes(t.seed, packed)) & mask
	for t.slots[slot] != 0 && !bytes.Equal(t.get(t.slots[slot]-1), packed) {
		slot = (slot + 1) & mask
	}
	return slot
}

func (t *stateSet) grow() {
	t.slots = make([]uint32, max(1024, 2*len(t.slots)))
	for id := range t.ends {
		t.slots[t.find(t.get(uint32(id)))] = uint32(id) + 1
	}
}
