package memmodel

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// The explorer is worth only as much as its memories. Litmus tests are small programs whose
// possible outcomes are known for real machines. Their names are those of the literature (Alglave,
// Maranget, Sarkar, Sewell). Each row names the strongest memory that allows the outcome.
//
// "|" separates processes, ";" statements. Letters from x on are words, letters before are
// variables. "x=1" is a plain store and "a=x" a plain load; ":=" makes them release and acquire.
// "a<>x" exchanges x for 1. What follows "if a" runs only if a is not 0.
var litmusTests = []struct {
	name, program, outcome string
	allowed                Memory
}{
	// Store buffering: a store is late. The bug of every sleeper without a fence.
	{"SB", "x=1; a=y | y=1; b=x", "a=0 b=0", TSO},
	{"SB+fence+fence", "x=1; fence; a=y | y=1; fence; b=x", "a=0 b=0", never},
	{"SB+fence+po", "x=1; fence; a=y | y=1; b=x", "a=0 b=0", TSO},
	{"SB+exchange", "c<>x; a=y | d<>y; b=x", "a=0 b=0", never},
	{"SB+exchange between", "x=1; c<>z; a=y | y=1; d<>z; b=x", "a=0 b=0", never},
	// arm64 forbids it for STLR and LDAR, not for LDAPR
	{"SB+rel-acq", "x:=1; a:=y | y:=1; b:=x", "a=0 b=0", TSO},
	{"SB+forwarding", "x=1; a=x; b=y | y=1; c=y; d=x", "a=1 b=0 c=1 d=0", TSO},
	{"R", "x=1; y=1 | y=2; a=x", "y=2 a=0", TSO},
	{"R+fence+fence", "x=1; fence; y=1 | y=2; fence; a=x", "y=2 a=0", never},
	{"RWC", "x=1 | a=x; b=y | y=1; c=x", "a=1 b=0 c=0", TSO},
	{"RWC+acq+fence", "x=1 | a:=x; b=y | y=1; fence; c=x", "a=1 b=0 c=0", never},

	// Message passing: stores overtake each other, or loads do. The bug of every ring without
	// release and acquire.
	{"MP", "x=1; y=1 | a=y; b=x", "a=1 b=0", Weak},
	{"MP+rel+acq", "x=1; y:=1 | a:=y; b=x", "a=1 b=0", never},
	{"MP+po+acq", "x=1; y=1 | a:=y; b=x", "a=1 b=0", Weak},
	{"MP+rel+po", "x=1; y:=1 | a=y; b=x", "a=1 b=0", Weak},
	{"MP+rel+ctrl", "x=1; y:=1 | a=y; if a; b=x", "a=1 b=0", Weak},
	{"MP+rel+fence", "x=1; y:=1 | a=y; fence; b=x", "a=1 b=0", never},
	{"MP+fence+acq", "x=1; fence; y=1 | a:=y; b=x", "a=1 b=0", never},
	{"MP+rel+acq again", "x=1; y:=1 | a=y; c:=y; b=x", "a=1 c=1 b=0", never},
	{"MP+exchange+acq", "x=1; a<>y | b:=y; c=x", "b=1 c=0", never},
	{"MP+event", "x=1; ring | wait; a=x", "a=0", never},
	{"WRC+ctrl+po", "x=1 | a=x; if a; y=1 | b=y; c=x", "a=1 b=1 c=0", Weak},
	{"WRC+ctrl+acq", "x=1 | a=x; if a; y=1 | b:=y; c=x", "a=1 b=1 c=0", never},
	{"ISA2+rel+ctrl+acq", "x=1; y:=1 | a=y; if a; z=1 | b:=z; c=x", "a=1 b=1 c=0", never},

	// Load buffering: a load is late. The bug of every buffer that is returned without release.
	{"LB", "a=x; y=1 | b=y; x=1", "a=1 b=1", Weak},
	{"LB+rel+po", "a=x; y:=1 | b=y; x=1", "a=1 b=1", Weak},
	{"LB+rel+rel", "a=x; y:=1 | b=y; x:=1", "a=1 b=1", never},
	{"LB+acq+acq", "a:=x; y=1 | b:=y; x=1", "a=1 b=1", never},
	{"LB+fence+ctrl", "a=x; fence; y=1 | b=y; if b; x=1", "a=1 b=1", never},
	{"LB+ctrl+ctrl", "a=x; if a; y=1 | b=y; if b; x=1", "a=1 b=1", never},
	{"LB+data+data", "a=x; y=a | b=y; x=b", "a=1 b=1", never},
	{"LB+event, then a store", "a=x; ring; y=1 | wait; x=1", "a=1", never},
	{"LB+variable used again", "a=x; a=z; y=1 | x=1", "a=1", never},
	{"LB+event", "a=x; ring | wait; x=1", "a=1", never},
	{"LB+acq between", "a=x; c:=z; y=1 | b=y; if b; x=1", "a=1 b=1", Weak},
	{"LB+rel between", "a=x; z:=1; y=1 | b=y; if b; x=1", "a=1 b=1", Weak},
	{"LB+rel before", "z:=1; a=x; y=1 | b=y; if b; x=1", "a=1 b=1", Weak},
	{"LB+rel before, seen late", "z:=1; a=x; y=1 | b:=y; c:=z; d=z; if d; x=1", "a=1 b=1 c=0", Weak},
	{"LB+exchange", "a=x; c<>z; y=1 | b=y; if b; x=1", "a=1", never},
	{"LB+same word stored", "a=x; x=2; y=1 | b=y; if b; x=1", "a=1 b=1", Weak},
	{"LB+same word loaded", "a=x; c=x; y=1 | b=y; if b; x=1", "a=1 b=1 c=1", Weak},
	{"LB+forwarding", "a=x; x=1; b=x; y=1 | c=y; if c; x=2", "a=2 b=1", Weak},
	{"LB+forwarding+ctrl", "a=x; x=1; b=x; if b; y=1 | c=y; if c; x=2", "a=2 b=1", Weak},
	{"LB+same word, fence", "a=x; c=x; fence; y=1 | b=y; if b; x=1", "a=1 b=1 c=1", never},
	{"LB+3", "a=x; y=1 | b=y; z=1 | c=z; x=1", "a=1 b=1 c=1", Weak},

	// Stores of two processes to the same words.
	{"S", "x=2; y=1 | a=y; if a; x=1", "a=1 x=2", Weak},
	{"S+rel", "x=2; y:=1 | a=y; if a; x=1", "a=1 x=2", never},
	{"2+2W", "x=1; y=2 | y=1; x=2", "x=1 y=1", Weak},
	{"2+2W+rel", "x=1; y:=2 | y=1; x:=2", "x=1 y=1", never},

	// All processes see a store at once, on every machine of today.
	{"IRIW", "x=1 | y=1 | a=x; b=y | c=y; d=x", "a=1 b=0 c=1 d=0", Weak},
	{"IRIW+acq", "x=1 | y=1 | a:=x; b=y | c:=y; d=x", "a=1 b=0 c=1 d=0", never},

	// Coherence: one word has one history.
	{"CoRR", "x=1 | a=x; b=x", "a=1 b=0", never},
	{"CoRR+late", "a=x; b=x; y=1 | x=1", "a=1 b=0", never},
	{"CoRR2", "x=1 | x=2 | a=x; b=x | c=x; d=x", "a=1 b=2 c=2 d=1", never},
	{"CoWW", "x=1; x=2 | a=x", "x=1", never},
	{"CoWR", "x=1; a=x | x=2", "a=0", never},
	{"CoRW late", "a=x; x=2; y=1 | b=y; x=1", "a=2", never},
	{"CoRW1", "a=x; x=1", "a=1", never},
	{"CoRW2", "a=x; x=1 | x=2", "a=2 x=2", never},
	{"n5", "x=1; a=x | x=2; b=x", "a=2 b=1", never},
	{"exchange", "a<>x | b<>x", "a=0 b=0", never},
}

const never Memory = 99 // no memory allows it

func TestLitmus(t *testing.T) {
	for _, test := range litmusTests {
		l := newLab(test.name, test.program)
		l.Finally("the outcome is not "+test.outcome, func(s State) bool {
			for _, part := range strings.Fields(test.outcome) {
				if l.value(s, part[0]) != int(part[2]-'0') {
					return true
				}
			}
			return false
		})
		for _, memory := range Memories {
			r, err := l.Explore(Run{Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			if seen, allowed := r.CounterExample != nil, memory >= test.allowed; seen != allowed {
				t.Errorf("%s on %s: outcome seen: %v, allowed: %v\n%s", test.name, memory, seen, allowed, r)
			}
			if r.Bounded {
				t.Errorf("%s on %s: bounded", test.name, memory)
			}
		}
	}
}

// The reductions of expand and prune lose no outcome.
func TestReductionsLoseNothing(t *testing.T) {
	for _, test := range litmusTests {
		for _, memory := range Memories {
			reduced, n := outcomes(t, newLab(test.name, test.program), memory, false)
			full, m := outcomes(t, newLab(test.name, test.program), memory, true)
			if !maps.Equal(reduced, full) {
				t.Errorf("%s on %s: %d of %d outcomes left", test.name, memory, len(reduced), len(full))
			}
			if n > m {
				t.Errorf("%s on %s: %d states made of %d", test.name, memory, n, m)
			}
		}
	}
}

// outcomes returns the possible final values of memory and variables, and the number of states.
func outcomes(t *testing.T, l lab, memory Memory, unreduced bool) (map[string]bool, int) {
	seen := map[string]bool{}
	l.Finally("", func(s State) bool {
		var end strings.Builder
		for name := byte('a'); name <= 'z'; name++ {
			if _, ok := l.vars[name]; ok || l.words[name].size > 0 {
				fmt.Fprintf(&end, "%c=%d ", name, l.value(s, name))
			}
		}
		seen[end.String()] = true
		return true
	})
	r, err := l.explore(Run{Memory: memory}, unreduced)
	if err != nil || r.CounterExample != nil || r.Bounded {
		t.Fatal(r, err)
	}
	return seen, r.States
}

// A lab holds what litmus programs consist of.
type lab struct {
	*Model
	words map[byte]Word
	bell  Event
	vars  map[byte]Var
}

func newLab(name, programs string) lab {
	m := New(name)
	l := lab{m, map[byte]Word{}, m.Event("bell"), map[byte]Var{}}
	for _, name := range "xyz" {
		l.words[byte(name)] = m.Word(string(name), 0)
	}
	for i, text := range strings.Split(programs, "|") {
		p := m.Process(fmt.Sprintf("P%d", i))
		p.Does(l.program(p, strings.Split(text, ";"))...)
	}
	return l
}

func (l lab) program(p *Process, text []string) (body []Stmt) {
	for i, s := range text {
		s = strings.TrimSpace(s)
		switch {
		case s == "fence":
			body = append(body, Fence())
		case s == "ring":
			body = append(body, Ring(l.bell))
		case s == "wait":
			body = append(body, Wait(l.bell))
		case strings.HasPrefix(s, "if "):
			return append(body, If(Ne(l.vars[s[3]], 0), l.program(p, text[i+1:])...))
		default:
			body = append(body, l.access(p, s))
		}
	}
	return body
}

func (l lab) access(p *Process, s string) Stmt {
	left, right, ordered := s[0], s[len(s)-1], strings.Contains(s, ":=")
	if to, ok := l.words[left]; ok {
		value := expr(int(right - '0'))
		if v, ok := l.vars[right]; ok {
			value = expr(v)
		}
		if ordered {
			return StoreRelease(to, value)
		}
		return Store(to, value)
	}
	if _, ok := l.vars[left]; !ok {
		l.vars[left] = p.Result(string(left))
	}
	switch {
	case strings.Contains(s, "<>"):
		return Exchange(l.vars[left], l.words[right], 1)
	case ordered:
		return LoadAcquire(l.vars[left], l.words[right])
	default:
		return Load(l.vars[left], l.words[right])
	}
}

func (l lab) value(s State, name byte) int {
	if w, ok := l.words[name]; ok {
		return s.Word(w)
	}
	return s.Var(l.vars[name])
}
