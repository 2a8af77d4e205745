package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	runSeize  = "run: each window is taken by exchanging the word that was seen"
	runAll    = "run: it is written only if all windows could be had"
	runBack   = "run: its windows are given back once the reader has all of it"
	runCredit = "run: the reader gives credit after it has read, with release order"
	runSeen   = "lane: it takes a window by exchanging the word that was seen"
	runBytes  = "who reads finds the bytes of the buffer, or of the lane"
)

// run is two windows of one byte each that a registered buffer needs (preload/pool.c), while two
// lanes look for a window, too. The buffer's bytes are 7, and its windows are returned when both
// were read. A lane's byte is 3. A holder word is odd while anyone may take the window.
func run() *Model {
	const free, buffer, freed, lane = 1, 2, 3, 4
	m := New("run: two windows of a buffer, and two lanes")
	holders := [2]Word{m.Word("first holder", free), m.Word("second holder", free)}
	windows := [2]Word{m.Word("first window", 0), m.Word("second window", 0)}
	posted, taken := m.Word("advert", 0), m.Word("taken", 0)
	others := [2]Word{m.Word("posted by the first lane", 0), m.Word("posted by the second lane", 0)}

	w := m.Process("writer")
	first, second, credit := w.Var("first"), w.Var("second"), w.Var("taken")
	wait := Seq(LoadAcquire(credit, taken), While(Eq(credit, 0), LoadAcquire(credit, taken)))
	back := Seq(StoreRelease(holders[0], freed), StoreRelease(holders[1], freed))
	seize := func(ok Var, holder Word) Stmt {
		return Rule(runSeize, CompareAndSwap(ok, holder, free, buffer), Seq(Store(holder, buffer), Set(ok, 1)))
	}
	w.Does(
		seize(first, holders[0]),
		If(Ne(first, 0), seize(second, holders[1])),
		Rule(runAll, Seq(), Set(second, first)),
		If(Ne(second, 0),
			Store(windows[0], 7),
			Store(windows[1], 7),
			StoreRelease(posted, 1),
			Rule(runBack, Seq(wait, back), back, wait),
		).Else(
			StoreRelease(posted, 2), // no two windows are free
			If(Ne(first, 0), StoreRelease(holders[0], freed)),
		),
	)

	for i, name := range []string{"first lane", "second lane"} {
		l := m.Process(name)
		is, got := l.Var("holder"), l.Var("ok")
		l.Does(
			LoadAcquire(is, holders[i]),
			If(Odd(is),
				Rule(runSeen,
					CompareAndSwap(got, holders[i], is, lane),
					Seq(Store(holders[i], lane), Set(got, 1))),
				If(Ne(got, 0), Store(windows[i], 3), StoreRelease(others[i], 1))),
		)
	}

	r := m.Process("reader")
	there, a, b := r.Var("advert"), r.Var("first byte"), r.Var("second byte")
	read := Seq(Load(a, windows[0]), Load(b, windows[1]))
	r.Does(
		LoadAcquire(there, posted),
		While(Eq(there, 0), LoadAcquire(there, posted)),
		If(Eq(there, 1),
			Rule(runCredit, Seq(read, StoreRelease(taken, 1)), StoreRelease(taken, 1), read),
			Assert(And(Eq(a, 7), Eq(b, 7)), runBytes)),
	)

	for i, name := range []string{"reader of the first lane", "reader of the second lane"} {
		o := m.Process(name)
		there, v := o.Var("posted"), o.Var("byte")
		o.Does(
			LoadAcquire(there, others[i]),
			If(Eq(there, 1), Load(v, windows[i]), Assert(Eq(v, 3), runBytes)),
		)
	}
	return m
}

func TestRunsAreNobodyElses(t *testing.T) { holds(t, run()) }

func TestRunsNeedTheirRules(t *testing.T) {
	needs(t, []rule{
		{runSeize, SC, runBytes},
		{runAll, SC, runBytes},
		{runBack, SC, runBytes},
		{runCredit, SC, runBytes},
		{runSeen, SC, runBytes},
	}, run())
}
