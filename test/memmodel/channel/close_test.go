package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	clearFirst = "who closes: takes the connection out of the table, then closes its descriptor"
	copyFirst  = "who walks: copies the descriptor, then looks whether the table has the connection still"
	rightOne   = "the copy is of the connection"

	closeRaise  = "who closes: counts itself as a user, then reads the state"
	closeFence  = "who closes: fence between counting itself and reading the state"
	closeWaits  = "who closes: waits while somebody engages it"
	engageYield = "engager: gives up while somebody closes it"
	engageTakes = "engager: takes its state back only while nobody has set another"
	stillOpen   = "the engager uses a descriptor of the connection"
	staysClosed = "what is closed stays closed"
)

// pinning is how a thread uses the descriptor of a connection that other threads may close
// meanwhile, and whose number may then belong to another connection (number_pin in
// directsockets/preload/number.c). System calls are fences.
//
//	walker                              closer                    another
//	  copy := the descriptor              table := nothing          opens with the same number
//	  table has it? use the copy          close the descriptor
func pinning() *Model {
	const ours, none, other = 1, 0, 2
	m := New("pinning: a walk over connections, a close")
	table, number := m.Word("table", ours), m.Word("number", ours)

	closes := m.Process("closes")
	{
		old := closes.Var("old")
		clear, shut := Seq(Store(table, none), Fence()), Exchange(old, number, none)
		closes.Does(
			Rule(clearFirst, Seq(clear, shut), shut, clear),
			Exchange(old, number, other),
		)
	}

	walks := m.Process("walks")
	{
		copied, is := walks.Var("copy"), walks.Var("table")
		dup, look := Seq(Fence(), Load(copied, number), Fence()), LoadAcquire(is, table)
		walks.Does(
			Rule(copyFirst, Seq(dup, look), look, dup),
			If(Eq(is, ours), Assert(Eq(copied, ours), rightOne)),
		)
	}
	return m
}

func TestPinning(t *testing.T) { holds(t, pinning()) }

func TestPinningNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{clearFirst, SC, rightOne},
		{copyFirst, SC, rightOne},
	}, pinning())
}

// closing is how a connection is closed that another thread may be about to engage (conn_close and
// conn_try_engage). As in engage, one of the two sees the other.
//
//	closer                                  engager
//	  users := 1                              attached? state := engaging, by an exchange
//	  fence                                   users?
//	  state engaging: wait for the lock         still engaging? state := attached
//	  state := closed                         else
//	  close the descriptor                      use the descriptor; state := engaged
//	                                          release the lock
//
// A closer that has read the state before it became engaging goes on. Then the engager sees the
// closer, but may find that closed is set.
func closing() *Model {
	const attached, engaging, engaged, closed = 0, 1, 2, 3
	m := New("closing: a close, an engager")
	users, state, open := m.Word("users", 0), m.Word("state", attached), m.Word("open", 1)
	unlocked := m.Event("unlocked")

	closes := m.Process("closes")
	{
		is, old := closes.Var("state"), closes.Var("old")
		raise, look := Store(users, 1), LoadAcquire(is, state)
		closes.Does(
			Rule(closeRaise,
				Seq(raise, Rule(closeFence, Fence()), look),
				look, raise, Fence()),
			Rule(closeWaits, If(Eq(is, engaging), Wait(unlocked)), Seq()),
			Exchange(old, state, closed),
			Exchange(old, open, 0),
		)
	}

	engager := m.Process("engager")
	{
		ok, busy, is := engager.Var("ok"), engager.Var("users"), engager.Var("open")
		set, look := CompareAndSwap(ok, state, attached, engaging), Load(busy, users)
		use := Seq(Load(is, open), Assert(Eq(is, 1), stillOpen), StoreRelease(state, engaged))
		back := Rule(engageTakes, CompareAndSwap(ok, state, engaging, attached), StoreRelease(state, attached))
		engager.Does(
			Rule(stateFirst, Seq(set, look), look, set),
			If(Ne(ok, 0),
				Rule(engageYield,
					If(Ne(busy, 0), back).Else(use),
					use)),
			Ring(unlocked),
		)
	}
	m.Finally(staysClosed, func(s State) bool { return s.Word(state) == closed })
	return m
}

func TestClosing(t *testing.T) { holds(t, closing()) }

func TestClosingNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{closeRaise, SC, stillOpen},
		{closeFence, TSO, stillOpen},
		{closeWaits, SC, stillOpen},
		{stateFirst, SC, stillOpen},
		{engageYield, SC, stillOpen},
		{engageTakes, SC, staysClosed},
	}, closing())
}
