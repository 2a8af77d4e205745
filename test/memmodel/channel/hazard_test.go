package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	sayFirst      = "requester: says in flight, then checks the entry"
	sayFence      = "requester: fence between saying in flight and checking the entry"
	entryAcquire  = "requester: the entry is read with acquire order"
	generation    = "requester: compares the generation, not only the index"
	clearLast     = "requester: in flight is cleared after the access"
	clearRelease  = "requester: in flight is cleared with release order"
	invalidFirst  = "owner: invalidates, then scans"
	invalidFence  = "owner: fence between invalidating and scanning"
	scanDefers    = "owner: waits while a requester names the NLA"
	scanAll       = "owner: scans every requester"
	deathClears   = "owner: a dead requester names nothing"
	validRelease  = "owner: the new entry is published with release order"
	belongsToNext = "the memory belongs to generation 2"
)

// hazard is deferred deregistration: memory that others may read and write through an NLA is reused
// without asking them. The NLA is one index, in generation 1, then 2. The memory holds its
// generation, so each access can check that it found the right one. One requester GETs, one PUTs;
// either may die at any step.
//
//	requester                               owner
//	  in flight := NLA                        entry := invalid
//	  fence                                   fence
//	  entry valid, of the same generation?    wait while a live requester has the NLA in flight
//	    access                                use the memory for generation 2
//	  in flight := none                       entry := generation 2
//
// Either the requester finds the entry invalid, or the owner finds the NLA in flight.
func hazard(requests int) *Model {
	const first, second = 1, 2 // generations
	m := New(fmt.Sprintf("hazard: GET and PUT, %d each", requests))
	entry, memory := m.Word("entry", first), m.Word("memory", first)

	owner := m.Process("owner")
	named, gone := owner.Var("named"), owner.Var("gone")
	var scans []Stmt
	for _, kind := range []string{"GET", "PUT"} {
		inFlight, hangUp := m.Word(kind+" in flight", 0), m.Event(kind+" hang-up")
		look := LoadAcquire(named, inFlight)
		scans = append(scans, Seq(
			Set(gone, 0),
			look,
			Rule(scanDefers, While(And(Eq(named, first), Not(gone)),
				look,
				Rule(deathClears, Drain(gone, hangUp)),
			)),
		))

		requester := m.Process(kind)
		requester.MayDie(Ring(hangUp))
		done, nla, valid := requester.Var("done"), requester.Var("NLA"), requester.Var("entry")
		say := Store(inFlight, nla)
		check := Rule(entryAcquire, LoadAcquire(valid, entry), Load(valid, entry))
		clear := Rule(clearRelease, StoreRelease(inFlight, 0), Store(inFlight, 0))
		access := Expect(memory, nla)
		if kind == "PUT" {
			access = Store(memory, nla)
		}
		requester.Does(While(Lt(done, requests),
			Choose(Set(nla, first), Set(nla, second)),
			Rule(sayFirst,
				Seq(say, Rule(sayFence, Fence()), check),
				check, say, Fence()),
			Rule(generation,
				If(Eq(valid, nla), Rule(clearLast, access, clear, access)),
				If(Ne(valid, 0), access)),
			clear,
			Set(done, Add(done, 1)),
		))
	}
	invalidate := Store(entry, 0)
	scan := Rule(scanAll, Seq(scans...), scans[0])
	owner.Does(
		Rule(invalidFirst,
			Seq(invalidate, Rule(invalidFence, Fence()), scan),
			scan, invalidate, Fence()),
		Store(memory, second),
		Rule(validRelease, StoreRelease(entry, second), Store(entry, second)),
	)
	m.Finally(belongsToNext, func(s State) bool { return s.Word(memory) == second })
	return m
}

func TestATU4DeferredDeregistration(t *testing.T) {
	holds(t, hazard(1), hazard(2))
}

func TestATU4DeferredDeregistrationNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{sayFirst, SC, damaged},
		{sayFence, TSO, damaged},
		{entryAcquire, Weak, damaged},
		{generation, SC, damaged},
		{clearLast, SC, damaged},
		{clearRelease, Weak, damaged},
		{invalidFirst, SC, damaged},
		{invalidFence, TSO, damaged},
		{scanDefers, SC, damaged},
		{scanAll, SC, damaged},
		{deathClears, SC, stuck},
		{validRelease, Weak, damaged},
	}, hazard(1))
}
