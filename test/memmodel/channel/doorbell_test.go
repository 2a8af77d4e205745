package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	judgeLast     = "victim: looks at everything before it judges"
	lifeLong      = "victim: the account is kept over the life of the channel, not per wake-up"
	creditCounts  = "victim: a credit update pays for a ring as a message does"
	ringsWithData = "peer: rings only after publishing"
	honest        = "an honest peer keeps its channel"
)

// doorbell is the account by which a process detects a peer that rings without data. A peer may
// have rung as often as it has sent messages and returned credits, as far as we have seen them. An
// honest peer, which publishes in any order and rings by the rules of a ringer, must never be taken
// for a dishonest one. No slack is needed: each ring follows something published, and the kernel
// shows what was published before the ring to whoever drains the counter. A look that ends early
// because its budget is spent does no harm either.
func doorbell(messages, credits int) *Model {
	m := New(fmt.Sprintf("doorbell: %d messages, %d credits", messages, credits))
	ring, credit := m.Array("ring", messages), m.Word("credit", 0)
	epoch, bell := m.Word("epoch", 0), m.Event("bell")

	peer := m.Process("peer")
	{
		sent, given := peer.Var("sent"), peer.Var("given")
		r := newRinger("peer", peer, epoch, bell)
		send := Seq(r.publish(StoreRelease(At(ring, sent), 1)), Set(sent, Add(sent, 1)))
		give := Seq(r.publish(StoreRelease(credit, Add(given, 1))), Set(given, Add(given, 1)))
		peer.Does(
			Rule(ringsWithData, Seq(), Ring(bell)),
			While(And(Lt(sent, messages), Lt(given, credits)), Choose(send, give)),
			While(Lt(sent, messages), send),
			While(Lt(given, credits), give),
		)
	}

	victim := m.Process("victim")
	{
		taken, seen, status := victim.Var("taken"), victim.Var("credit"), victim.Var("status")
		rings, paid, before := victim.Var("rings"), victim.Var("paid"), victim.Var("before")
		s := newSleeper("victim", victim, epoch, counter, bell)
		all := Add(taken, seen)
		look := Seq(
			Set(before, all),
			LoadAcquire(seen, credit),
			Set(status, 1),
			While(And(status, Lt(taken, messages)),
				LoadAcquire(status, At(ring, taken)),
				Set(taken, Add(taken, status)),
				Choose(Seq(), Set(status, 0)), // the budget may be spent
			),
		)
		nothing := Eq(all, before)
		judge := Rule(lifeLong,
			Seq(
				Set(rings, Add(rings, s.count)),
				Rule(creditCounts, Set(paid, all), Set(paid, taken)),
				Assert(Not(Lt(paid, rings)), honest),
			),
			Assert(Not(Lt(Sub(all, before), s.count)), honest),
		)
		victim.Does(While(Lt(all, messages+credits),
			look,
			If(nothing,
				Set(s.count, 0),
				s.sleep(look, nothing),
				Rule(judgeLast, Seq(look, judge), judge, look),
			),
		))
	}
	return m
}

func TestDoorbellAccount(t *testing.T) {
	holds(t, doorbell(2, 2), doorbell(3, 1))
}

func TestDoorbellAccountNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{judgeLast, SC, honest},
		{lifeLong, SC, honest},
		{creditCounts, SC, honest},
		{ringsWithData, SC, honest},
		{"peer" + publishFirst, SC, lost},
		{"peer" + publishFence, TSO, lost},
		{"peer" + ringOnce, SC, "an epoch is rung once"},
		{"victim" + epochFence, TSO, lost},
		{"victim" + secondLook, SC, lost},
		{"victim" + ownEpoch, SC, lost},
		{"victim" + drainFirst, SC, lost},
	}, doorbell(2, 1))
}
