package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	needsConsent   = "writer: the k-th SWITCH needs the k-th consent"
	slotRelease    = "writer: a slot is published with release order"
	heedFence      = "writer: fence between SWITCH and the look at go_back"
	heedLook       = "writer: looks at go_back after SWITCH, before any byte"
	afterJoin      = "writer: goes back by itself only after the reader has taken SWITCH"
	endPosted      = "writer: SHUTDOWN is posted before FIN"
	slotAcquire    = "reader: a slot is read with acquire order"
	upToN          = "reader: reads TCP up to N and not beyond"
	beforeTripwire = "reader: looks at the lane again before the tripwire's verdict"
	beforeEnd      = "reader: looks at the lane again before FIN counts as the end"
	finFirst       = "reader: the end of the stream is behind its bytes"
	withdrawFirst  = "reader: withdraws, then looks for SWITCH"
	withdrawFence  = "reader: fence between withdrawing and looking for SWITCH"
	awaitsBack     = "reader: a SWITCH it finds then is followed to its BACK"
	crossedBack    = "reader: clears go_back once nothing that crossed it lacks its BACK"
	renewFence     = "reader: fence between clearing go_back and looking for SWITCH"
	renewLook      = "reader: clears go_back, then looks for SWITCH before it reads TCP"
	notHostile     = "an honest writer is not taken for a hostile one"
	noTripwire     = "TCP bytes of an honest writer are in order with those of the lane"
	noDeath        = "an orderly end is not taken for a death"
	allThere       = "all bytes arrive"
	allPublished   = "what a dead writer had published arrives"
)

// stream is one direction of a connection that moves from TCP to the lane and back. Its reader may
// withdraw its consent at any time, and its writer may die at any step. Byte n carries n, so the
// reader knows what it must find.
//
//	writer                                  reader
//	  on TCP, with consent, not go_back:      slot: SWITCH{N}: reads TCP up to N, then the lane
//	    slot := SWITCH{bytes by TCP}                BACK:      TCP again; consents again
//	    fence                                       byte:      takes it
//	    go_back: slot := BACK                       SHUTDOWN:  the end
//	    else on the lane                      TCP byte while on the lane: looks at the lane again,
//	  on the lane, go_back,                     still nothing: tripwire
//	  or on its own when SWITCH was taken:    FIN: looks at the lane again, still nothing: the end
//	    slot := BACK                          to withdraw: go_back := 1; fence; looks at the lane;
//	  writes the byte there                     SWITCH: follows it to BACK; else stops looking
//	  at the end: SHUTDOWN; FIN               to go on: takes what crossed go_back; go_back := 0;
//	                                            consents, if the last one was used; fence; looks
//
// A reader on TCP looks at the lane, finds nothing, and reads TCP without a limit. A whole visit to
// the lane may lie between the two, followed by TCP bytes. So a writer that goes back on its own
// waits until SWITCH was taken. A writer that was asked to go back need not wait, because the
// reader looks at the lane after it has asked.
//
// TCP is the kernel's. A process that received a byte or FIN sees what was stored before the call
// that sent it, and FIN comes after all bytes. Sleeping is not in this model, where both sides
// poll; wake models it. Credit is not in it either; credit models it.
func stream(bytes, consents int, mortal bool) *Model {
	const switches, back, ends, data = 1, 2, 3, 4 // contents of a slot; byte n is data + n
	m := New(fmt.Sprintf("stream: %d bytes, %d consents, mortal %v", bytes, consents, mortal))
	slots := bytes + 2*consents + 1

	tag, offset := m.Array("tag", slots), m.Array("N", slots) // written by the writer
	consent, goBack, joined := m.Word("consent", 0), m.Word("go_back", 0), m.Word("switches taken", 0)
	segment, arrived, fin := m.Array("tcp", bytes), m.Event("arrived"), m.Event("fin")

	writer := m.Process("writer")
	{
		if mortal {
			writer.MayDie(Ring(fin))
		}
		sent, byTCP, slot := writer.Var("sent"), writer.Var("by TCP"), writer.Var("slot")
		lane, done := writer.Var("on the lane"), writer.Var("switches")
		may, must, seen := writer.Var("consent"), writer.Var("go_back"), writer.Var("switches taken")
		post := func(what Expr) Stmt {
			return Seq(
				Rule(slotRelease,
					Seq(Store(At(offset, slot), byTCP), StoreRelease(At(tag, slot), what)),
					Store(At(offset, slot), byTCP), Store(At(tag, slot), what)),
				Set(slot, Add(slot, 1)),
			)
		}
		leave := Seq(post(Add(back, 0)), Set(lane, 0))
		enter := Seq(
			post(Add(switches, 0)),
			Set(done, Add(done, 1)),
			Set(lane, 1),
			Rule(heedFence, Fence()),
			Rule(heedLook, Seq(Load(must, goBack), If(Ne(must, 0), leave))),
		)
		writer.Does(
			While(Lt(sent, bytes),
				Load(must, goBack),
				If(Ne(lane, 0),
					If(Ne(must, 0), leave).Else(
						LoadAcquire(seen, joined),
						Rule(afterJoin,
							If(Eq(seen, done), Choose(Seq(), leave)),
							Choose(Seq(), leave)),
					),
				).Else(
					Rule(needsConsent, LoadAcquire(may, consent), Set(may, consents)),
					If(And(Lt(done, may), Not(must)), Choose(Seq(), enter)),
				),
				Set(sent, Add(sent, 1)),
				If(Ne(lane, 0), post(Add(sent, data))).Else(
					Store(At(segment, byTCP), sent),
					Set(byTCP, Add(byTCP, 1)),
					Ring(arrived),
				),
			),
			Rule(endPosted,
				Seq(If(Ne(lane, 0), post(Add(ends, 0))), Ring(fin)),
				Ring(fin), If(Ne(lane, 0), post(Add(ends, 0)))),
		)
	}

	reader := m.Process("reader")
	got := reader.Result("got")
	{
		there, byTCP, slot := reader.Var("there"), reader.Var("by TCP"), reader.Var("slot")
		lane, pending, limit := reader.Var("on the lane"), reader.Var("pending"), reader.Var("N")
		given, ended, closed := reader.Var("consents"), reader.Var("ended"), reader.Var("fin")
		off, out, n := reader.Var("withdrew"), reader.Var("left the lane"), reader.Var("tag")
		followed := reader.Var("switches taken")
		crossing, renewals := reader.Var("crossing"), reader.Var("renewals")

		look := Rule(slotAcquire, LoadAcquire(n, At(tag, slot)), Load(n, At(tag, slot)))
		next := Set(slot, Add(slot, 1))
		consents := If(And(Not(off), Lt(given, consents)), Set(given, Add(given, 1)), StoreRelease(consent, given))

		// take handles the slot that was looked at, if there is one.
		take := Seq(
			If(Eq(n, switches),
				Assert(And(Ne(given, 0), And(Not(lane), Not(pending))), notHostile),
				Load(limit, At(offset, slot)), next,
				Set(pending, 1),
				Set(followed, Add(followed, 1)), StoreRelease(joined, followed),
			),
			If(And(Eq(n, back), lane),
				next, Set(lane, 0), consents,
				If(Ne(off, 0), Set(out, 1)),
			),
			If(And(Eq(n, ends), lane), next, Set(ended, 1)),
			If(And(Not(Lt(n, data)), lane),
				Set(got, Add(got, 1)),
				Assert(Eq(n, Add(got, data)), noTripwire),
				next,
			),
		)
		turn := Seq(
			If(And(pending, Eq(byTCP, limit)), Set(pending, 0), Set(lane, 1)),
			Set(n, 0),
			If(And(Not(out), Not(pending)), look, take),
		)
		// The kernel's state: ask for FIN first, because all bytes are there once it is.
		ask := Rule(finFirst,
			Seq(
				If(Not(closed), Drain(closed, fin)),
				Drain(n, arrived), Set(there, Add(there, n)),
			),
			Drain(n, arrived), Set(there, Add(there, n)),
			If(Not(closed), Drain(closed, fin)),
		)
		again := func(rule string, verdict Stmt) Stmt {
			return Seq(
				Set(n, 0),
				If(Not(out), Rule(rule, look)),
				If(Eq(n, 0), verdict),
			)
		}
		native := Seq(
			ask,
			If(Ne(there, 0),
				Set(there, Sub(there, 1)),
				Set(got, Add(got, 1)),
				Expect(At(segment, byTCP), got),
				Set(byTCP, Add(byTCP, 1)),
			).Else(If(And(closed, Not(pending)),
				again(beforeEnd, Set(ended, 1)),
			).Else(If(Ne(closed, 0), Assert(Eq(pending, 0), noDeath)))),
		)
		died := Assert(Eq(0, 1), noDeath)
		if mortal {
			died = Set(ended, 1)
		}
		// A look at the kernel while on the lane: the tripwire, and death.
		probe := Seq(
			ask,
			If(Ne(there, 0), again(beforeTripwire, Assert(Eq(0, 1), noTripwire))).
				Else(If(Ne(closed, 0), again(beforeEnd, died))),
		)
		withdraw := Seq(
			Set(off, 1),
			Rule(withdrawFirst,
				Seq(Store(goBack, 1), Rule(withdrawFence, Fence()), look),
				look, Store(goBack, 1), Fence()),
			Rule(awaitsBack, If(Eq(n, switches), take), Seq()),
			If(Not(pending), Set(out, 1)),
		)
		// To go on, once, as before the withdrawal.
		renewal := Seq(
			Set(off, 0), Set(out, 0), Set(renewals, 1),
			Store(goBack, 0),
			If(Eq(followed, given), consents),
			Rule(renewLook, Seq(Rule(renewFence, Fence()), look, take), Seq()),
		)
		renew := Seq(
			look,
			If(Eq(n, switches),
				next, Set(crossing, 1),
				Set(followed, Add(followed, 1)), StoreRelease(joined, followed),
				look,
			),
			If(And(Eq(n, back), crossing), next, Set(crossing, 0)),
			Rule(crossedBack, If(Not(crossing), renewal), Seq(Set(crossing, 0), renewal)),
		)
		reader.Does(
			Choose(Seq(), consents),
			While(Not(ended),
				turn,
				If(Not(ended),
					If(Ne(lane, 0),
						If(Eq(n, 0), probe),
					).Else(
						Choose(Seq(), If(And(Not(off), Not(pending)), withdraw).
							Else(If(And(out, And(Not(pending), Not(renewals))), renew))),
						Rule(upToN,
							If(Not(And(pending, Eq(byTCP, limit))), native),
							native),
					),
				),
			),
		)
	}
	if mortal {
		m.Finally(allPublished, func(s State) bool {
			for i := range slots {
				if s.Word(At(tag, i)) == data+s.Var(got)+1 {
					return false
				}
			}
			return true
		})
	} else {
		m.Finally(allThere, func(s State) bool { return s.Var(got) == bytes })
	}
	return m
}

func TestSWI1Stream(t *testing.T) {
	holds(t, stream(3, 2, false), stream(3, 3, false), stream(3, 2, true))
}

func TestSWI1StreamNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{needsConsent, SC, notHostile},
		{slotRelease, Weak, noTripwire},
		{heedFence, TSO, damaged},
		{heedLook, SC, damaged},
		{endPosted, SC, noDeath},
		{slotAcquire, Weak, noTripwire},
		{upToN, SC, noDeath},
		{afterJoin, SC, damaged},
		{beforeTripwire, SC, noTripwire},
		{beforeEnd, SC, allThere},
		{finFirst, SC, allThere},
		{withdrawFirst, SC, damaged},
		{withdrawFence, TSO, damaged},
		{awaitsBack, SC, damaged},
		{renewFence, TSO, noDeath},
		{renewLook, SC, noDeath},
		{crossedBack, SC, damaged},
	}, stream(2, 1, false), stream(2, 2, false))
}
