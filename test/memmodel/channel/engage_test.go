package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	raiseFirst = "caller: counts itself as a user, then reads the state"
	raiseFence = "caller: fence between counting itself and reading the state"
	stateFirst = "engager: sets the state, then reads the count"
	stateFence = "engager: fence between setting the state and reading the count"
	nobodyElse = "engager: gives up while a call is under way"
)

// engage is how a connection leaves TCP without stranding a thread that sleeps in the kernel. A
// call that may sleep there counts itself as a user before it looks at the state. The engager
// changes the state before it looks at the count. The peer moves its byte to the lane as soon as it
// finds consent.
//
//	caller (any thread, any process)        engager
//	  users := 1                              state := engaging
//	  fence                                   fence
//	  state TCP: sleep in the kernel          users?
//	  users := 0                                state := TCP
//	  state engaging: wait for the lock       else
//	  state engaged: use the lane               state := engaged; consent
//	                                          release the lock
//
// Of two stores and two loads, one load must see the other's store. The rest of a switch is in
// stream.
func engage() *Model {
	const onTCP, engaging, engaged = 0, 1, 2
	m := New("engage: a native call, an engager, a peer")
	// the memory of the family, the processes that share the connection
	users, state := m.Word("users", 0), m.Word("state", onTCP)
	consent, slot := m.Word("consent", 0), m.Word("slot", 0) // the channel's memory
	tcp, unlocked := m.Event("tcp"), m.Event("unlocked")

	caller := m.Process("caller")
	{
		is, got, old := caller.Var("state"), caller.Var("got"), caller.Var("old")
		raise, look := Store(users, 1), LoadAcquire(is, state)
		caller.Does(While(Not(got),
			Rule(raiseFirst,
				Seq(raise, Rule(raiseFence, Fence()), look),
				look, raise, Fence()),
			If(Eq(is, onTCP),
				Wait(tcp),
				Set(got, 1),
			),
			Exchange(old, users, 0),
			If(Eq(is, engaging),
				Poll(unlocked),
				LoadAcquire(is, state),
			),
			If(Eq(is, engaged), While(Not(got), // engaged for good, as far as this model goes
				LoadAcquire(got, slot),
				If(Not(got), Drain(got, tcp)),
			)),
		))
	}

	engager := m.Process("engager")
	{
		busy := engager.Var("users")
		set, look := Store(state, engaging), Load(busy, users)
		engages := Seq(StoreRelease(state, engaged), StoreRelease(consent, 1))
		engager.Does(
			Rule(stateFirst,
				Seq(set, Rule(stateFence, Fence()), look),
				look, set, Fence()),
			Rule(nobodyElse,
				If(Ne(busy, 0), StoreRelease(state, onTCP)).Else(engages),
				engages),
			Ring(unlocked),
		)
	}

	peer := m.Process("peer")
	{
		may := peer.Var("consent")
		peer.Does(
			LoadAcquire(may, consent),
			If(Ne(may, 0), StoreRelease(slot, 1)).Else(Ring(tcp)),
		)
	}
	return m
}

func TestSWI1Engage(t *testing.T) { holds(t, engage()) }

func TestSWI1EngageNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{raiseFirst, SC, lost},
		{raiseFence, TSO, lost},
		{stateFirst, SC, lost},
		{stateFence, TSO, lost},
		{nobodyElse, SC, lost},
	}, engage())
}
