package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	everyRing  = "waiter: the second look is at every ring"
	yieldTaken = "another: lets a sleeper look after taking what the perch had"
	perchFence = "waiter: the store of sleepers is before the look"
)

// wake is the protocol of sleeping and waking alone. One waiter looks at a ring per producer. Each
// producer publishes messages, and rings the waiter only if it sleeps.
//
//	waiter                                  producer
//	  look at every ring: nothing             status word := valid
//	  epoch := odd                            fence
//	  fence                                   read the epoch
//	  look at every ring again: nothing       odd, and not the one rung last: ring
//	  sleep
//	  epoch := even
//
// Of two stores and two loads, one load must see the other's store: either the waiter finds the
// message, or the producer finds the waiter asleep. A ring that comes after the waiter has found
// the message itself shortens one later sleep.
func wake(producers, messages int, how readiness) *Model {
	m := New(fmt.Sprintf("wake: %d producers, %d messages each, %s", producers, messages, how))
	epoch := m.Word("epoch", 0)

	waiter := m.Process("waiter")
	left, status, found := waiter.Var("left"), waiter.Var("status"), waiter.Var("found")
	var bells []Event
	var looks []Stmt
	for i := range producers {
		ring, bell := m.Array(fmt.Sprintf("ring%d", i), messages), m.Event(fmt.Sprintf("bell%d", i))
		taken := waiter.Var(fmt.Sprintf("taken%d", i))
		bells = append(bells, bell)
		looks = append(looks, If(Lt(taken, messages),
			LoadAcquire(status, At(ring, taken)),
			If(Eq(status, 1),
				Set(taken, Add(taken, 1)),
				Set(left, Sub(left, 1)),
				Set(found, 1),
			),
		))

		producer := m.Process(fmt.Sprintf("producer%d", i))
		sent, r := producer.Var("sent"), newRinger("producer", producer, epoch, bell)
		producer.Does(While(Lt(sent, messages),
			r.publish(StoreRelease(At(ring, sent), 1)),
			Set(sent, Add(sent, 1)),
		))
	}
	s := newSleeper("waiter", waiter, epoch, how, bells...)
	look := Seq(Set(found, 0), Seq(looks...))
	again := Seq(Set(found, 0), looks[0], Seq(looks[1:]...))
	if producers > 1 {
		again = Seq(Set(found, 0), looks[0], Rule(everyRing, Seq(looks[1:]...)))
	}
	waiter.Does(
		Set(left, producers*messages),
		While(Ne(left, 0),
			look,
			If(Not(found), s.sleep(again, Not(found))),
		),
	)
	return m
}

func TestWake(t *testing.T) {
	holds(t, wake(1, 4, edges), wake(1, 4, counter), wake(2, 2, edges), wake(2, 2, counter))
}

func TestWakeNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{"waiter" + epochFence, TSO, lost},
		{"waiter" + secondLook, SC, lost},
		{"waiter" + ownEpoch, SC, lost},
		{"waiter" + drainFirst, SC, lost},
		{everyRing, SC, lost},
		{"producer" + publishFirst, SC, lost},
		{"producer" + publishFence, TSO, lost},
		{"producer" + ringOnce, SC, "an epoch is rung once"},
	}, wake(1, 3, edges), wake(1, 3, counter), wake(2, 1, edges))
}

// perch is an epoll set of a program (directsockets/preload/epset.c), whose events are reported
// once. One thread sleeps on it. Another takes its events without sleeping, as a close of a
// duplicated connection does. A waiter that was woken and finds the event gone sleeps on. The lock
// of the set guards sleepers.
func perch() *Model {
	m := New("perch: a waiter, and another who takes")
	posted, sleepers, events := m.Word("posted", 0), m.Word("sleepers", 0), m.Event("events")

	m.Process("producer").Does(StoreRelease(posted, 1), Ring(events))

	waiter := m.Process("waiter")
	there, got := waiter.Var("posted"), waiter.Var("got")
	waiter.Does(
		Rule(perchFence,
			Seq(Store(sleepers, 1), Fence(), LoadAcquire(there, posted)),
			Seq(LoadAcquire(there, posted), Store(sleepers, 1))),
		If(Eq(there, 0),
			While(Eq(got, 0), Poll(events), Drain(got, events)),
			LoadAcquire(there, posted)),
		Assert(Eq(there, 1), "the waiter finds what woke it"),
	)

	another := m.Process("another")
	took, asleep := another.Var("took"), another.Var("sleepers")
	another.Does(
		Drain(took, events),
		If(Ne(took, 0),
			Rule(yieldTaken, Seq(Load(asleep, sleepers), If(Eq(asleep, 1), Ring(events))))),
	)
	return m
}

func TestPerch(t *testing.T) { holds(t, perch()) }

func TestPerchNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{yieldTaken, SC, lost},
		{perchFence, SC, lost},
	}, perch())
}
