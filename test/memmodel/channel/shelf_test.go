package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	shelfLent   = "shelf: who lends says so before it looks at the key"
	shelfFence  = "shelf: with a fence between the two"
	shelfKey    = "shelf: it goes without if the key is another"
	shelfRange  = "shelf: it goes without what is not in the range"
	shelfBusy   = "shelf: who fills makes the part busy before it looks who has lent it"
	shelfSeen   = "shelf: it does so by exchanging the key that was seen"
	shelfAll    = "shelf: it fills when the reader has all of what was lent"
	shelfCredit = "shelf: the reader gives credit after it has read, with release order"
	shelfAdded  = "shelf: the range is there after the bytes, with release order"
	shelfBytes  = "who reads finds the bytes that were lent"
)

// shelf is a cached part of a file of two bytes (preload/shelf.c). It holds the file's first byte,
// 7. A lane lends the part of the two bytes that it has. Meanwhile one process adds the second
// byte, also 7, and another fills the part with 9, from another file.
func shelf() *Model {
	const busy, ours, others = 1, 2, 3 // keys
	m := New("shelf: a part that is lent, added to and filled")
	key, upTo, lent := m.Word("key", ours), m.Word("range", 1), m.Word("lent", 0)
	window := [2]Word{m.Word("first byte", 7), m.Word("second byte", 0)}
	posted, taken := m.Word("posted", 0), m.Word("taken", 0)

	l := m.Process("lane")
	is, has, a, b := l.Var("key"), l.Var("range"), l.Var("first byte"), l.Var("second byte")
	say, look := Store(lent, 1), LoadAcquire(is, key)
	l.Does(
		Rule(shelfLent, Seq(say, Rule(shelfFence, Fence()), look), look, say, Fence()),
		Rule(shelfKey, Seq(), Set(is, ours)),
		If(Eq(is, ours),
			LoadAcquire(has, upTo),
			Rule(shelfRange, Seq(), Set(has, 2)),
			Load(a, window[0]),
			Load(b, window[1]),
			// Comparing finds the file's bytes; otherwise the part would not be lent.
			If(Eq(a, 7),
				If(Eq(has, 2),
					StoreRelease(posted, 2),
				).Else(StoreRelease(posted, 1)))),
	)

	r := m.Process("reader")
	there := r.Var("posted")
	x, y := r.Var("first byte"), r.Var("second byte")
	read := Seq(Load(x, window[0]), Load(y, window[1]))
	r.Does(
		LoadAcquire(there, posted),
		If(Ne(there, 0),
			Rule(shelfCredit, Seq(read, StoreRelease(taken, 1)), StoreRelease(taken, 1), read),
			Assert(Eq(x, 7), shelfBytes),
			If(Eq(there, 2), Assert(Eq(y, 7), shelfBytes))),
	)

	seize := func(ok Var) Stmt {
		return Rule(shelfSeen, CompareAndSwap(ok, key, ours, busy), Store(key, busy), Set(ok, 1))
	}
	add := m.Process("who adds")
	got := add.Var("ok")
	add.Does(
		seize(got),
		If(Ne(got, 0),
			Rule(shelfAdded, Seq(Store(window[1], 7), StoreRelease(upTo, 2)), Store(window[1], 7), Store(upTo, 2)),
			StoreRelease(key, ours)),
	)

	f := m.Process("who fills")
	ok, out, credit := f.Var("ok"), f.Var("lent"), f.Var("taken")
	asks := Seq(Load(out, lent), LoadAcquire(credit, taken))
	f.Does(
		Rule(shelfBusy, Seq(seize(ok), asks), asks, seize(ok)),
		If(Ne(ok, 0),
			Rule(shelfAll, If(Lt(credit, out), Set(ok, 0))),
			If(Ne(ok, 0),
				Store(window[0], 9),
				Store(window[1], 9),
				StoreRelease(key, others),
			).Else(StoreRelease(key, ours))),
	)
	return m
}

func TestShelfIsReadAsItWasLent(t *testing.T) { holds(t, shelf()) }

func TestShelfNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{shelfLent, SC, shelfBytes},
		{shelfFence, TSO, shelfBytes},
		{shelfKey, SC, shelfBytes},
		{shelfRange, SC, shelfBytes},
		{shelfBusy, SC, shelfBytes},
		{shelfSeen, SC, shelfBytes},
		{shelfAll, SC, shelfBytes},
		{shelfCredit, SC, shelfBytes},
		{shelfAdded, Weak, shelfBytes},
	}, shelf())
}
