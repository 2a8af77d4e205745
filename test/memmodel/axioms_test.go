package memmodel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The explorer is checked against an independent definition of the same memories: the axiomatic
// one, as published for x86 (Owens, Sarkar, Sewell 2009) and ARMv8 (Pulte, Flur, Deacon, French,
// Sarkar, Sewell 2018). There an execution is a set of accesses with freely chosen "reads from" and
// coherence. It is possible unless certain relations have a cycle. Small random programs must have
// the same outcomes under both definitions.
//
// In the ARMv8 relations used here, acquire loads are LDAPR, not LDAR. There are no address
// dependencies, which Weak ignores, and no atomics, which are fences by definition.
func TestMemoriesAgainstAxioms(t *testing.T) {
	const programs = 1500
	random := rand.New(rand.NewPCG(3, 14))
	for range programs {
		text := randomPrograms(random)
		for _, memory := range Memories {
			explored, _ := outcomes(t, newLab(text, text), memory, false)
			derived := axiomatic(text, memory)
			for end := range derived {
				if !explored[end] {
					t.Errorf("%s on %s: %sis possible but not found", text, memory, end)
				}
			}
			for end := range explored {
				if !derived[end] && !(memory == Weak && copiesAndAcquires(text)) {
					t.Errorf("%s on %s: %sis found but not possible", text, memory, end)
				}
			}
		}
	}
}

// copiesAndAcquires reports whether a process stores a loaded value and later loads it back with
// acquire order. ARMv8 then remembers where the value came from. Weak does not, and allows a little
// more.
func copiesAndAcquires(text string) bool {
	for _, body := range strings.Split(text, "|") {
		copied := ""
		for _, s := range strings.Split(body, ";") {
			s = strings.TrimSpace(s)
			first, last := s[:1], s[len(s)-1:]
			switch {
			case first >= "x" && last >= "a":
				copied += first
			case strings.Contains(s, ":=") && strings.Contains(copied, last):
				return true
			}
		}
	}
	return false
}

// randomPrograms writes two or three small processes in the language of the litmus tests.
func randomPrograms(random *rand.Rand) string {
	pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
	var processes []string
	variables := "abcdefgh"
	loads, stores := 0, 0
	for range 2 + random.IntN(2) {
		var body []string
		last, branched := "", false
		for len(body) < 4 {
			switch n := random.IntN(10); {
			case n < 4 && loads < 5:
				last = variables[loads : loads+1]
				body = append(body, last+pick("=", "=", ":=")+pick("x", "y", "z"))
				loads++
			case n < 8 && stores < 5:
				value := fmt.Sprint(1 + stores)
				if last != "" && random.IntN(4) == 0 {
					value = last
				}
				body = append(body, pick("x", "y", "z")+pick("=", "=", ":=")+value)
				stores++
			case n == 8 && len(body) > 0:
				body = append(body, "fence")
			case n == 9 && last != "" && !branched:
				body = append(body, "if "+last)
				branched = true
			default:
				body = append(body, "fence")
			}
			if len(body) > 1 && random.IntN(4) == 0 {
				break
			}
		}
		processes = append(processes, strings.Join(body, "; "))
	}
	return strings.Join(processes, " | ")
}

// An access is an event of an execution: a load, a store or a fence.
type access struct {
	process        int
	load, store    bool
	word, variable byte
	ordered        bool // acquire or release
	constant       int  // the value of a store without a data dependency
	data           int  // the load whose value it stores, or none
	control        int  // the load that decides whether it happens, or none
}

// An execution is a choice of one path through every process, of a source for every load, and of an
// order of the stores to each word.
type execution struct {
	accesses []access
	branches map[int]bool   // by load: whether the branch on it is taken
	source   map[int]int    // by load: the store it reads from, or none for the initial 0
	history  map[byte][]int // by word: its stores, in the order in which they reach memory
}

// axiomatic returns the outcomes that a memory allows, in the form that outcomes uses.
func axiomatic(text string, memory Memory) map[string]bool {
	ends := map[string]bool{}
	for _, e := range paths(text) {
		e.sources(0, func() {
			if !e.plausible() {
				return
			}
			e.histories(0, func() {
				if e.coherent() && e.allowed(memory) {
					ends[e.end(text)] = true
				}
			})
		})
	}
	return ends
}

// paths returns an execution, with nothing chosen yet, for every way through the branches.
func paths(text string) []*execution {
	all := []*execution{{branches: map[int]bool{}}}
	for p, body := range strings.Split(text, "|") {
		var longer []*execution
		for _, e := range all {
			longer = append(longer, e.follow(p, strings.Split(body, ";"), map[byte]int{}, none)...)
		}
		all = longer
	}
	for _, e := range all {
		e.source, e.history = map[int]int{}, map[byte][]int{}
	}
	return all
}

// follow appends a process to an execution. The process has at most one branch.
func (e *execution) follow(p int, body []string, loads map[byte]int, control int) []*execution {
	e = &execution{accesses: slices.Clone(e.accesses), branches: maps.Clone(e.branches)}
	for i, s := range body {
		s = strings.TrimSpace(s)
		if variable, ok := strings.CutPrefix(s, "if "); ok {
			on := loads[variable[0]]
			skipped := &execution{accesses: slices.Clone(e.accesses), branches: maps.Clone(e.branches)}
			skipped.branches[on], e.branches[on] = false, true
			return append(e.follow(p, body[i+1:], loads, on), skipped)
		}
		a := access{process: p, ordered: strings.Contains(s, ":="), data: none, control: control}
		left, right := s[0], s[len(s)-1]
		switch {
		case s == "fence":
		case left >= 'x':
			a.store, a.word, a.constant = true, left, int(right-'0')
			if right >= 'a' {
				a.data = loads[right]
			}
		default:
			a.load, a.variable, a.word = true, left, right
			loads[left] = len(e.accesses)
		}
		e.accesses = append(e.accesses, a)
	}
	return []*execution{e}
}

// sources tries every store to its word as the source of every load from i on.
func (e *execution) sources(i int, try func()) {
	if i == len(e.accesses) {
		try()
		return
	}
	if !e.accesses[i].load {
		e.sources(i+1, try)
		return
	}
	e.source[i] = none
	e.sources(i+1, try)
	for w, a := range e.accesses {
		if a.store && a.word == e.accesses[i].word {
			e.source[i] = w
			e.sources(i+1, try)
		}
	}
}

// histories tries every place in its word's history for every store from i on.
func (e *execution) histories(i int, try func()) {
	if i == len(e.accesses) {
		try()
		return
	}
	if !e.accesses[i].store {
		e.histories(i+1, try)
		return
	}
	word := e.accesses[i].word
	before := e.history[word]
	for place := range len(before) + 1 {
		e.history[word] = slices.Insert(slices.Clone(before), place, i)
		e.histories(i+1, try)
	}
	e.history[word] = before
}

// value follows an access to the constant that its value comes from. It fails if a value comes out
// of thin air: from itself.
func (e *execution) value(i int) (value int, ok bool) {
	for range len(e.accesses) {
		switch a := e.accesses[i]; {
		case a.load && e.source[i] == none:
			return 0, true
		case a.load:
			i = e.source[i]
		case a.data != none:
			i = a.data
		default:
			return a.constant, true
		}
	}
	return 0, false
}

// plausible reports whether all values have a source and agree with the branches.
func (e *execution) plausible() bool {
	for i, a := range e.accesses {
		if !a.load && !a.store {
			continue
		}
		value, ok := e.value(i)
		taken, branches := e.branches[i]
		if !ok || branches && taken != (value != 0) {
			return false
		}
	}
	return true
}

func (e *execution) end(text string) string {
	ends := map[byte]int{'x': 0, 'y': 0, 'z': 0}
	for i := range text {
		if text[i] >= 'a' && text[i] <= 'h' && strings.IndexByte("=:", text[min(i+1, len(text)-1)]) >= 0 {
			ends[text[i]] = 0
		}
	}
	for i, a := range e.accesses {
		if a.load {
			ends[a.variable], _ = e.value(i)
		}
	}
	for word, stores := range e.history {
		if len(stores) > 0 {
			ends[word], _ = e.value(stores[len(stores)-1])
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		fmt.Fprintf(&b, "%c=%d ", name, ends[name])
	}
	return b.String()
}

// A relation holds, for each access, the set of accesses that it comes before.
type relation []uint32

func (r relation) add(from, to int) { r[from] |= 1 << to }

func (r relation) acyclic() bool {
	left := uint32(1)<<len(r) - 1
	for removed := true; removed; {
		removed = false
		for i, next := range r {
			if left&(1<<i) != 0 && next&left == 0 {
				left &^= 1 << i
				removed = true
			}
		}
	}
	return left == 0
}

// communication calls add for each pair in "reads from", coherence, and "from reads": a load comes
// before the store that overwrites what it read.
func (e *execution) communication(add func(from, to int)) {
	for i, a := range e.accesses {
		if !a.load {
			continue
		}
		if e.source[i] != none {
			add(e.source[i], i)
		}
		stores := e.history[a.word]
		for _, w := range stores[slices.Index(stores, e.source[i])+1:] {
			add(i, w)
		}
	}
	for _, stores := range e.history {
		for k, w := range stores {
			for _, later := range stores[k+1:] {
				add(w, later)
			}
		}
	}
}

// coherent reports whether each word by itself behaves like a word.
func (e *execution) coherent() bool {
	r := make(relation, len(e.accesses))
	e.communication(r.add)
	for i, a := range e.accesses {
		for k, b := range e.accesses[:i] {
			if a.process == b.process && a.word != 0 && a.word == b.word {
				r.add(k, i)
			}
		}
	}
	return r.acyclic()
}

// allowed reports whether the memory lets the execution happen.
func (e *execution) allowed(memory Memory) bool {
	r := make(relation, len(e.accesses))
	e.communication(func(from, to int) {
		own := e.accesses[from].process == e.accesses[to].process
		if memory == SC || !own || memory == TSO && e.accesses[from].store == e.accesses[to].store {
			r.add(from, to)
		}
	})
	for i := range e.accesses {
		for k := range i {
			if e.accesses[i].process == e.accesses[k].process && e.ordered(memory, k, i) {
				r.add(k, i)
			}
		}
	}
	return r.acyclic()
}

// ordered reports whether two accesses of one process, i before k in its program, are kept in
// order.
func (e *execution) ordered(memory Memory, i, k int) bool {
	a, b := e.accesses[i], e.accesses[k]
	if memory == SC || e.anyBetween(i, k, func(c access) bool { return !c.load && !c.store }) {
		// a fence
		return true
	}
	if memory == TSO {
		return a.load || b.store
	}
	switch {
	case a.load && a.ordered, b.store && b.ordered: // acquire, release
		return true
	case b.store && (b.data == i || b.control == i): // dependencies
		return true
	case b.store:
		// a store stays behind one to the same word, and so behind what that one stays
		// behind
		return e.anyBetween(i, k, func(c access) bool {
			return c.store && c.word == b.word && (c.ordered || c.data == i || c.control == i)
		})
	case b.load && e.source[k] != none: // and so does a load that reads a store of its own process
		c := e.accesses[e.source[k]]
		return c.process == b.process && c.data == i
	}
	return false
}

func (e *execution) anyBetween(i, k int, is func(access) bool) bool {
	return slices.ContainsFunc(e.accesses[i+1:k], is)
}
