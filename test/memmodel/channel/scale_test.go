package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	poolCredit   = "pool: credit is given with release order, after the bytes are read"
	poolDrained  = "pool: only a window whose reader has all of it is taken"
	poolSeen     = "pool: it is taken by exchanging the word that was seen"
	poolPin      = "pool: its holder writes only after it has exchanged the word, too"
	poolEnd      = "pool: the end is there before the window is left, with release order"
	poolOwnBytes = "a reader finds the bytes of its own lane"

	markLook  = "mark: who asks for a mark fences before it looks at the lane once more"
	markPost  = "mark: a producer fences between posting and reading who asks"
	markFence = "mark: a producer fences between marking and reading the epoch"
	markAgain = "mark: who sleeps fences before it looks at the marks once more"
	markFound = "who was woken finds a mark"
)

// pool is a window of one byte that two lanes of a file share (preload/pool.c). Its holder has put
// byte 1 there, and puts 2 when that is taken. The other lane takes the window when everything in
// it is taken, and puts 3. The holder word is odd while the window is left: 1, and 3 after the
// holder's second write. It is 2 while the holder pins the window, and 4 while the other lane does.
func pool() *Model {
	const left, pinned, leftAgain, others = 1, 2, 3, 4
	m := New("pool: a window of two lanes")
	holder, end := m.Word("holder", left), m.Word("end", 1) // in memory of the family
	window := m.Word("window", 1)                           // in memory of the file
	posted, other := m.Word("posted", 1), m.Word("posted on the other lane", 0)
	taken := m.Word("taken", 0) // written by the reader

	h := m.Process("holder")
	credit, ok := h.Var("credit"), h.Var("ok")
	h.Does(
		LoadAcquire(credit, taken),
		If(Eq(credit, 1),
			Rule(poolPin,
				CompareAndSwap(ok, holder, left, pinned),
				Store(holder, pinned), Set(ok, 1)),
			If(Ne(ok, 0),
				Store(window, 2),
				StoreRelease(posted, 2),
				Rule(poolEnd,
					Seq(Store(end, 2), StoreRelease(holder, leftAgain)),
					StoreRelease(holder, leftAgain), Store(end, 2)))),
	)

	thief := m.Process("other lane")
	is, e, c, got := thief.Var("holder"), thief.Var("end"), thief.Var("credit"), thief.Var("ok")
	thief.Does(
		LoadAcquire(is, holder),
		If(Odd(is),
			Load(e, end),
			LoadAcquire(c, taken),
			Rule(poolDrained, If(Lt(c, e), Set(is, 0))),
			If(Ne(is, 0),
				Rule(poolSeen,
					CompareAndSwap(got, holder, is, others),
					Store(holder, others), Set(got, 1)),
				If(Ne(got, 0), Store(window, 3), StoreRelease(other, 1)))),
	)

	reader := m.Process("reader")
	there, v := reader.Var("posted"), reader.Var("byte")
	reader.Does(
		Rule(poolCredit,
			Seq(Load(v, window), StoreRelease(taken, 1)),
			StoreRelease(taken, 1), Load(v, window)),
		Assert(Eq(v, 1), poolOwnBytes),
		LoadAcquire(there, posted),
		If(Eq(there, 2),
			Load(v, window),
			Assert(Eq(v, 2), poolOwnBytes),
			StoreRelease(taken, 2)),
	)

	second := m.Process("reader of the other lane")
	there2, v2 := second.Var("posted"), second.Var("byte")
	second.Does(
		LoadAcquire(there2, other),
		If(Eq(there2, 1),
			Load(v2, window),
			Assert(Eq(v2, 3), poolOwnBytes)),
	)
	return m
}

// marks is a thread that sleeps on many lanes. It asks the producer of a quiet lane for a mark
// (ext-ds.md, section 5).
func marks() *Model {
	m := New("marks: one lane of many")
	asked, epoch := m.Word("asked", 0), m.Word("epoch", 0) // written by the sleeper
	// written by the producer
	posted, mark, bell := m.Word("posted", 0), m.Word("mark", 0), m.Event("bell")

	p := m.Process("producer")
	wants, sleeps := p.Var("asked"), p.Var("epoch")
	p.Does(
		StoreRelease(posted, 1),
		Rule(markPost, Fence()),
		Load(wants, asked),
		If(Eq(wants, 1),
			StoreRelease(mark, 1),
			Rule(markFence, Fence())),
		Load(sleeps, epoch),
		If(Odd(sleeps), Ring(bell)),
	)

	c := m.Process("sleeper")
	there, has := c.Var("posted"), c.Var("mark")
	c.Does(
		Store(asked, 1),
		Rule(markLook, Seq(Fence(), LoadAcquire(there, posted)), LoadAcquire(there, posted), Fence()),
		If(Eq(there, 0), // the lane is quiet: from now on only the mark is checked
			Store(epoch, 1),
			Rule(markAgain, Seq(Fence(), LoadAcquire(has, mark)), LoadAcquire(has, mark), Fence()),
			If(Eq(has, 0),
				Wait(bell),
				LoadAcquire(has, mark)),
			Assert(Eq(has, 1), markFound),
			LoadAcquire(there, posted),
			Assert(Eq(there, 1), markFound)),
	)
	return m
}

func TestWindowsAreShared(t *testing.T) { holds(t, pool()) }

func TestWindowsNeedTheirRules(t *testing.T) {
	needs(t, []rule{
		{poolCredit, SC, poolOwnBytes},
		{poolDrained, SC, poolOwnBytes},
		{poolSeen, SC, poolOwnBytes},
		{poolPin, SC, poolOwnBytes},
		{poolEnd, SC, poolOwnBytes},
	}, pool())
}

func TestMarks(t *testing.T) { holds(t, marks()) }

func TestMarksNeedTheirRules(t *testing.T) {
	needs(t, []rule{
		{markLook, TSO, lost},
		{markPost, TSO, lost},
		{markFence, TSO, lost},
		{markAgain, TSO, lost},
	}, marks())
}
