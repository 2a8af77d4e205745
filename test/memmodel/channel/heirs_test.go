package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	lockFirst     = "starter: locks, then counts"
	countsFirst   = "starter: counts, then looks at the state"
	awaitsEngager = "starter: waits for who is engaging"
	engagingFirst = "engager: sets the state, then looks at the count"
	countBefore   = "engager: notes the count of before it looked for the lock"
	heirsLook     = "engager: looks for the lock when the count is another"
	noHeir        = "no connection is on its lane while a program has it"
)

// heirs is how a connection stays on TCP while a program that inherited it still runs
// (preload/heirs.c). The program inherits a lock with the connection; the lock disappears when the
// program ends.
//
//	starter                                 engager
//	  lock                                    state := engaging
//	  exposures + 1                           n := exposures; n is ended: engage
//	  state engaging: wait                    no lock: ended := n; engage
//	  state engaged: take it back             else state := resting
//	  the program runs, and ends: no lock
//
// Both do it several times. Locking is a system call. The words are changed by sequentially
// consistent atomic operations.
func heirs() *Model {
	const resting, engaging, engaged = 0, 1, 2
	m := New("heirs: two programs, one after the other")
	lock, exposures, ended, state := m.Word("lock", 0), m.Word("exposures", 0), m.Word("ended", 0), m.Word("state", resting)
	decided := m.Event("decided")

	starter := m.Process("starter")
	{
		is, old, n := starter.Var("state"), starter.Var("old"), starter.Var("programs")
		count := Seq(Set(n, Add(n, 1)), Exchange(old, exposures, n))
		take, look := Exchange(old, lock, 1), LoadAcquire(is, state)
		runs := Seq(look, Assert(Ne(is, engaged), noHeir))
		starter.Does(While(Lt(n, 2),
			Rule(lockFirst, Seq(take, count), Seq(count, take)),
			Rule(countsFirst, look, Seq()),
			Rule(awaitsEngager, While(Eq(is, engaging), Wait(decided), look), Seq()),
			If(Eq(is, engaged), Exchange(old, state, resting)),
			runs, runs,
			Exchange(old, lock, 0),
		))
	}

	engager := m.Process("engager")
	{
		is, old, n, seen := engager.Var("state"), engager.Var("old"), engager.Var("exposures"), engager.Var("ended")
		held, tries := engager.Var("lock"), engager.Var("tries")
		set, ask := Exchange(old, state, engaging), LoadAcquire(n, exposures)
		engager.Does(While(Lt(tries, 3),
			Set(tries, Add(tries, 1)),
			LoadAcquire(is, state),
			If(Eq(is, resting),
				Rule(engagingFirst, Seq(set, ask), Seq(ask, set)),
				Load(seen, ended),
				Set(held, 0),
				If(Ne(n, seen),
					Rule(heirsLook, Load(held, lock), Seq()),
					Rule(countBefore, Seq(), LoadAcquire(n, exposures)),
					If(Not(held), Store(ended, n)),
				),
				If(Not(held), Exchange(old, state, engaged)).Else(Exchange(old, state, resting)),
				Ring(decided),
			),
		))
	}
	return m
}

func TestPRC1Heirs(t *testing.T) { holds(t, heirs()) }

func TestPRC1HeirsNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{lockFirst, SC, noHeir},
		{countsFirst, SC, noHeir},
		{awaitsEngager, SC, noHeir},
		{engagingFirst, SC, noHeir},
		{countBefore, SC, noHeir},
		{heirsLook, SC, noHeir},
	}, heirs())
}
