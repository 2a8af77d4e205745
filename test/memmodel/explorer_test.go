package memmodel

import (
	"errors"
	"strings"
	"testing"
)

// explore fails the test if there is no verdict.
func explore(t *testing.T, m *Model, run Run) *Result {
	t.Helper()
	r, err := m.Explore(run)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// finds checks that the exploration ends with a counter-example that contains says, or with none if
// says is empty.
func finds(t *testing.T, m *Model, run Run, says string) {
	t.Helper()
	r := explore(t, m, run)
	switch {
	case says == "" && r.CounterExample != nil, says != "" && r.CounterExample == nil:
		t.Errorf("want %q, got %s", says, r)
	case says != "" && !strings.Contains(r.CounterExample.What, says):
		t.Errorf("want %q, got %s", says, r)
	}
}

// A lock needs everything: two processes in a circle, an atomic, and an order.
func lock() *Model {
	const free, held = 0, 1
	m := New("lock")
	word, n := m.Word("lock", free), m.Word("n", 0)
	for _, name := range []string{"P0", "P1"} {
		p := m.Process(name)
		mine, sum := p.Var("mine"), p.Var("sum")
		p.Does(
			Rule("the lock is taken by compare and swap",
				While(Not(mine), CompareAndSwap(mine, word, free, held)),
				While(Not(mine), Load(mine, word), Set(mine, Eq(mine, free))), Store(word, held)),
			Load(sum, n),
			Store(n, Add(sum, 1)),
			Rule("the lock is left with release order", StoreRelease(word, free), Store(word, free)),
		)
	}
	m.Finally("both have counted", func(s State) bool { return s.Word(n) == 2 })
	return m
}

func TestLock(t *testing.T) {
	m := lock()
	if got := strings.Join(m.Rules(), "; "); got != "the lock is left with release order; the lock is taken by compare and swap" {
		t.Errorf("rules: %s", got)
	}
	for _, memory := range Memories {
		finds(t, m, Run{Memory: memory}, "")
		finds(t, m, Run{Memory: memory, Without: "the lock is taken by compare and swap"}, "both have counted")
		broken := ""
		if memory == Weak {
			broken = "both have counted"
		}
		finds(t, m, Run{Memory: memory, Without: "the lock is left with release order"}, broken)
	}
}

// A trace shows every step from the start to the fault, and the memory at the end.
func TestTrace(t *testing.T) {
	m := New("trace")
	v, w, e := m.Word("v", 1), m.Word("w", 0), m.Event("e")
	p, q := m.Process("P"), m.Process("Q")
	a, ok := p.Var("a"), p.Var("ok")
	p.Does(CompareAndSwap(ok, v, 1, 4), Exchange(a, v, 5), Store(w, a), Ring(e))
	q.Does(Wait(e), Expect(w, 5))
	const want = `trace, TSO: 6 states, 5 steps, depth 5: Q expects 5 in w and finds 4
  P  compare and swap v: 1 to 4
  P  exchange v: 4 to 5
  P  w := 4                      into its store buffer
  P    w := 4 is visible
  P  ring e
  Q  wait e: 1
  Q  expect w: 4
  memory in the end: v=5 w=4
`
	if got := explore(t, m, Run{Memory: TSO}).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Exploring twice gives the same result, to the letter.
func TestDeterministic(t *testing.T) {
	run := Run{Memory: Weak, Without: "the lock is left with release order"}
	if a, b := explore(t, lock(), run), explore(t, lock(), run); a.String() != b.String() {
		t.Errorf("first %s, then %s", a, b)
	}
}

// A process that only polls goes on as soon as there is something to see, and runs in a circle if
// there never is.
func TestCircle(t *testing.T) {
	for _, memory := range Memories {
		for _, comes := range []bool{true, false} {
			m := New("circle")
			word := m.Word("word", 0)
			looker, writer := m.Process("looker"), m.Process("writer")
			seen := looker.Var("seen")
			looker.Does(While(Not(seen), Load(seen, word)))
			says := "runs in a circle"
			if comes {
				writer.Does(Store(word, 1))
				says = ""
			}
			finds(t, m, Run{Memory: memory}, says)
		}
	}
}

// A process can be killed between any two stores. What it has stored is visible before its hang-up
// is seen.
func TestDeath(t *testing.T) {
	build := func() (m *Model, x, y Word) {
		m = New("death")
		x, y = m.Word("x", 0), m.Word("y", 0)
		hangUp := m.Event("hang-up")
		mortal, heir := m.Process("mortal"), m.Process("heir")
		mortal.MayDie(Ring(hangUp))
		mortal.Does(Store(x, 1), Store(y, 1), Ring(hangUp))
		before, after := heir.Result("before"), heir.Result("after")
		heir.Does(Wait(hangUp), Load(before, x), Fence(), Load(after, x))
		m.Finally("nothing moves after the hang-up", func(s State) bool { return s.Var(before) == s.Var(after) })
		return m, x, y
	}
	for _, memory := range Memories {
		m, _, _ := build()
		finds(t, m, Run{Memory: memory}, "")
		for _, end := range [][2]int{{0, 0}, {1, 0}, {1, 1}} {
			m, x, y := build()
			m.Finally("never ends so", func(s State) bool { return s.Word(x) != end[0] || s.Word(y) != end[1] })
			finds(t, m, Run{Memory: memory}, "never ends so")
		}
	}
}

// What is stored after a death can come from a variable.
func TestDeathWill(t *testing.T) {
	m := New("will")
	w, e := m.Word("w", 0), m.Event("e")
	p := m.Process("P")
	v := p.Var("v")
	p.MayDie(Store(w, v))
	p.Does(Set(v, 1), Ring(e), Ring(e), Store(w, 1))
	m.Finally("w is stored", func(s State) bool { return s.Word(w) == 1 })
	for _, memory := range Memories {
		finds(t, m, Run{Memory: memory}, "")
	}
}

// A store of a value computed from a load waits for the load, even where a store of a mere copy
// would not.
func TestComputedStore(t *testing.T) {
	m := New("computed")
	x, y, z := m.Word("x", 0), m.Word("y", 0), m.Word("z", 0)
	p, q := m.Process("P"), m.Process("Q")
	a := p.Result("a")
	p.Does(Load(a, x), Store(y, Add(a, 1)), Store(z, 1))
	q.Does(Store(x, 1))
	m.Finally("y is a + 1", func(s State) bool { return s.Word(y) == s.Var(a)+1 })
	for _, memory := range Memories {
		finds(t, m, Run{Memory: memory}, "")
	}
}

// Elements of an array are words of their own.
func TestArray(t *testing.T) {
	m := New("array")
	a, flag := m.Array("a", 3), m.Word("flag", 0)
	p, q := m.Process("P"), m.Process("Q")
	p.Does(Store(At(a, 2), 1), StoreRelease(flag, 1))
	i, seen, value := q.Var("i"), q.Result("seen"), q.Result("value")
	q.Does(
		While(Lt(i, 2), Set(i, Add(i, 1))),
		Rule("acquire", LoadAcquire(seen, flag), Load(seen, flag)),
		Load(value, At(a, i)),
	)
	m.Finally("what is announced is there", func(s State) bool { return s.Var(value) >= s.Var(seen) })
	m.Finally("nothing else is", func(s State) bool { return s.Word(At(a, 0)) == 0 && s.Word(At(a, 2)) == 1 })
	for _, memory := range Memories {
		finds(t, m, Run{Memory: memory}, "")
	}
	finds(t, m, Run{Memory: TSO, Without: "acquire"}, "")
	finds(t, m, Run{Memory: Weak, Without: "acquire"}, "what is announced")
}

// Each branch of a Choose is followed; an Else belongs to its If.
func TestChoose(t *testing.T) {
	for _, want := range []int{1, 2, 3, 4} {
		m := New("choose")
		p := m.Process("P")
		v, w := p.Result("v"), p.Result("w")
		p.Does(
			Choose(Set(v, 1), Seq(Set(v, 2), Set(v, Add(v, 1))), Seq()),
			If(Eq(v, 0), Set(v, 2)).Else(If(Lt(v, 3), Set(v, 4))),
			While(Lt(w, v), Set(w, Add(w, 1))),
		)
		m.Finally("counted", func(s State) bool { return s.Var(w) == s.Var(v) })
		m.Finally("never so", func(s State) bool { return s.Var(v) != want })
		says := "never so"
		if want == 1 {
			says = ""
		}
		finds(t, m, Run{}, says)
	}
}

// Every kind of fault in a state is found, on every memory, and ends the trace.
func TestFaults(t *testing.T) {
	tests := []struct {
		says  string
		build func(m *Model, p *Process, v Var) []Stmt
	}{
		{`P: "v is 0" does not hold: v == 0`, func(m *Model, p *Process, v Var) []Stmt {
			return []Stmt{Set(v, 1), Assert(Eq(v, 0), "v is 0")}
		}},
		{"P expects 2 in w and finds 0", func(m *Model, p *Process, v Var) []Stmt {
			return []Stmt{Expect(m.Word("w", 0), 2)}
		}},
		{`"w is small" does not hold`, func(m *Model, p *Process, v Var) []Stmt {
			w := m.Word("w", 0)
			m.Always("w is small", func(s State) bool { return s.Word(w) < 2 })
			return []Stmt{Store(w, 1), Store(w, 2), Store(w, 1)}
		}},
		{`"v is 0" does not hold`, func(m *Model, p *Process, v Var) []Stmt {
			r, e := p.Result("r"), m.Event("e")
			m.Always("v is 0", func(s State) bool { return s.Var(r) == 0 })
			return []Stmt{Set(r, 1), Drain(r, e)}
		}},
		{"asleep for ever: P at poll e f", func(m *Model, p *Process, v Var) []Stmt {
			e, f := m.Event("e"), m.Event("f")
			return []Stmt{Ring(e), Drain(v, e), Poll(e, f)}
		}},
		{"index 3 in a[v], which has 3 words", func(m *Model, p *Process, v Var) []Stmt {
			a := m.Array("a", 3)
			return []Stmt{While(Lt(v, 9), Store(At(a, v), 1), Set(v, Add(v, 1)))}
		}},
		{"index 7 in a[7], which has 3 words", func(m *Model, p *Process, v Var) []Stmt {
			return []Stmt{Load(v, At(m.Array("a", 3), 7))}
		}},
		{"the counter of e overflows", func(m *Model, p *Process, v Var) []Stmt {
			return []Stmt{While(Eq(1, 1), Ring(m.Event("e")))}
		}},
		{"P runs for ever without touching memory", func(m *Model, p *Process, v Var) []Stmt {
			return []Stmt{While(Eq(v, 0), Set(v, 0))}
		}},
	}
	for _, test := range tests {
		for _, memory := range Memories {
			m := New(test.says)
			p := m.Process("P")
			p.Does(test.build(m, p, p.Var("v"))...)
			finds(t, m, Run{Memory: memory}, test.says)
		}
	}
}

// A mistake in the model gives an error, not a verdict.
func TestMistakes(t *testing.T) {
	tests := []struct {
		says  string
		build func(m *Model, p *Process, v Var)
	}{
		{`no rule "r"`, func(m *Model, p *Process, v Var) { p.Does(Rule("s", Fence())) }},
		{"Q uses a variable of another process in v + 1", func(m *Model, p *Process, v Var) {
			q := m.Process("Q")
			q.Does(Set(q.Var("own"), Add(v, 1)))
		}},
		{"Q uses the variable v of another process", func(m *Model, p *Process, v Var) { m.Process("Q").Does(Set(v, 1)) }},
		{"a constant in v < 300 is not a byte", func(m *Model, p *Process, v Var) { p.Does(If(Lt(v, 300), Fence())) }},
		{"a claim looks at v, which is not declared by Result", func(m *Model, p *Process, v Var) {
			m.Finally("", func(s State) bool { return s.Var(v) == 0 })
		}},
		{"a claim looks at a[2]", func(m *Model, p *Process, v Var) {
			a := m.Array("a", 2)
			m.Always("", func(s State) bool { return s.Word(At(a, 2)) == 0 })
		}},
		{"more than 48 words and events", func(m *Model, p *Process, v Var) { m.Array("a", 49) }},
		{"more than 8 processes", func(m *Model, p *Process, v Var) {
			for range 8 {
				m.Process("Q").Does()
			}
		}},
		{"P has more than 24 variables", func(m *Model, p *Process, v Var) {
			for range 24 {
				v = p.Var("w")
			}
			p.Does(Set(v, 1))
		}},
		{"P has 301 instructions, at most 255 fit", func(m *Model, p *Process, v Var) {
			for range 300 {
				p.body = append(p.body, Set(v, 1))
			}
		}},
	}
	for _, test := range tests {
		m := New("mistaken")
		p := m.Process("P")
		test.build(m, p, p.Var("v"))
		run := Run{}
		if strings.HasPrefix(test.says, "no rule") {
			run.Without = "r"
		}
		r, err := m.Explore(run)
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("want %q, got %v, %v", test.says, r, err)
		}
	}
}

// A run reports that it met a limit.
func TestLimits(t *testing.T) {
	m := New("many stores")
	p := m.Process("P")
	v := p.Var("v")
	p.Does(While(Lt(v, maxBuffer+1), Store(m.Word("w", 0), v), Set(v, Add(v, 1))))
	for _, memory := range Memories {
		if r := explore(t, m, Run{Memory: memory}); r.Bounded != (memory != SC) {
			t.Errorf("bounded: %v in %s", r.Bounded, r)
		}
	}
	if r, err := lock().Explore(Run{MaxStates: 10}); !errors.Is(err, ErrTooManyStates) {
		t.Errorf("want ErrTooManyStates, got %v, %v", r, err)
	}
}
