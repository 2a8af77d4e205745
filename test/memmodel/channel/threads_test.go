package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	underLock   = "thread: a TCP write and its count are one step under the writer's lock"
	lockAtomic  = "thread: the lock is taken by one atomic instruction"
	lockRelease = "thread: the lock is given with release order"
	switchLock  = "thread: SWITCH is posted under the writer's lock"
	inOrder     = "the bytes of two threads arrive, each once"
)

// threads is two writers on one side of a connection, threads or processes of a family. Each writes
// one byte, and one of them switches the direction first. N must count all bytes that went by TCP,
// and no others. So for the switching writer, a TCP write and its count are one step. The mode, the
// count and the place in the lane are read and written under one lock. A reader that finds N TCP
// bytes, and then the rest on the lane, has everything.
func threads() *Model {
	const switches, data = 1, 2
	m := New("threads: two writers of one side")
	lock, lane := m.Word("lock", 0), m.Word("on the lane", 0) // the family's memory
	byTCP, slot := m.Word("by TCP", 0), m.Word("slot", 0)
	tag, offset := m.Array("tag", 4), m.Word("N", 0) // the channel's memory
	sent := m.Event("sent by TCP")

	for _, name := range []string{"switcher", "writer"} {
		p := m.Process(name)
		ok, at, is, n := p.Var("lock"), p.Var("slot"), p.Var("lane"), p.Var("count")
		take := Rule(lockAtomic,
			While(Not(ok), CompareAndSwap(ok, lock, 0, 1)),
			While(Not(ok), Load(is, lock), If(Eq(is, 0), Store(lock, 1), Set(ok, 1))))
		give := Seq(Rule(lockRelease, StoreRelease(lock, 0), Store(lock, 0)), Set(ok, 0))
		post := func(what int) Stmt {
			return Seq(
				Load(at, slot),
				Store(slot, Add(at, 1)),
				StoreRelease(At(tag, at), what),
			)
		}
		count := Seq(Load(n, byTCP), Store(byTCP, Add(n, 1)))
		write := Seq(
			Load(is, lane),
			If(Ne(is, 0), post(data)).Else(Rule(underLock,
				Seq(Ring(sent), count),
				give, Ring(sent), take, count)),
		)
		moves := Seq(
			Load(n, byTCP), Store(offset, n), post(switches),
			Store(lane, 1),
		)
		if name == "switcher" {
			p.Does(
				Rule(switchLock,
					Seq(take, moves),
					moves, take),
				write, give,
			)
		} else {
			p.Does(take, write, give)
		}
	}

	reader := m.Process("reader")
	got, n, there, next := reader.Result("got"), reader.Var("N"), reader.Var("there"), reader.Var("tag")
	late := reader.Result("TCP bytes behind N")
	reader.Does(
		While(Ne(next, switches), LoadAcquire(next, At(tag, 0))),
		Load(n, offset),
		Set(next, 0),
		// what the kernel has received
		While(Lt(there, n), Drain(next, sent), Set(there, Add(there, next))),
		Set(got, Add(n, 1)),
		While(Lt(got, 2+1),
			LoadAcquire(next, At(tag, Sub(got, n))),
			If(Eq(next, data), Set(got, Add(got, 1))),
			If(Not(late), Drain(late, sent)),
			Assert(And(Not(late), Eq(there, n)), noTripwire),
		),
	)
	m.Finally(inOrder, func(s State) bool { return s.Var(got) == 3 })
	return m
}

func TestSWI1Threads(t *testing.T) { holds(t, threads()) }

func TestSWI1ThreadsNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{underLock, SC, noTripwire},
		{lockAtomic, SC, noTripwire},
		{lockRelease, Weak, noTripwire},
		{switchLock, SC, noTripwire},
	}, threads())
}
