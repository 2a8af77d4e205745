package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	retractFirst  = "writer: withdraws, then looks whether the reader is busy"
	retractFence  = "writer: fence between withdrawing and looking whether the reader is busy"
	waitsForBusy  = "writer: waits while the reader is busy"
	busyAcquire   = "writer: busy is read with acquire order"
	deathEndsBusy = "writer: a dead reader is not busy"
	busyFirst     = "reader: says busy, then looks whether the advert is withdrawn"
	busyFence     = "reader: fence between saying busy and looking whether the advert is withdrawn"
	eachPart      = "reader: looks before each part"
	takenFirst    = "reader: gives credit while it is busy"
	busyRelease   = "reader: busy ends with release order"
	sameCount     = "both ends count the same bytes"
)

// zcopy is the withdrawal of an advert (ext-ds.md, sections 4 and 5). Each part of the writer's
// memory holds 0 while it is lent, and 9 once the program has it back. The rest that was not taken
// comes by a slot, which says where it begins.
//
//	writer                                  reader, for each part
//	  withdrawn := 1                          busy := 1
//	  fence                                   fence
//	  wait while a reader that lives is busy  withdrawn? busy := 0, take the rest from the slot
//	  k := taken                              copy the part
//	  use the memory                          taken := taken + 1
//	  slot := from k on                       busy := 0
//
// Either the reader finds the advert withdrawn, or the writer finds it busy.
func zcopy(parts int, dies bool) *Model {
	m := New(fmt.Sprintf("zcopy: an advert of %d parts, the reader may die: %v", parts, dies))
	memory := m.Array("memory", parts)
	withdrawn, slot := m.Word("withdrawn", 0), m.Word("slot", 0)
	busy, taken := m.Word("busy", 0), m.Word("taken", 0)
	hangUp := m.Event("hang-up")

	writer := m.Process("writer")
	{
		is, k, gone, i := writer.Var("busy"), writer.Var("taken"), writer.Var("gone"), writer.Var("part")
		look := Rule(busyAcquire, LoadAcquire(is, busy), Load(is, busy))
		wait := Seq(look, Rule(waitsForBusy, While(And(Ne(is, 0), Not(gone)),
			look,
			Rule(deathEndsBusy, Drain(gone, hangUp)),
		)))
		writer.Does(
			Rule(retractFirst,
				Seq(Store(withdrawn, 1), Rule(retractFence, Fence()), wait),
				wait, Store(withdrawn, 1), Fence()),
			Load(k, taken),
			While(Lt(i, parts), Store(At(memory, i), 9), Set(i, Add(i, 1))),
			StoreRelease(slot, Add(k, 1)),
		)
	}

	reader := m.Process("reader")
	{
		if dies {
			reader.MayDie(Ring(hangUp))
		}
		n, over, from := reader.Var("taken"), reader.Var("withdrawn"), reader.Var("slot")
		look := Load(over, withdrawn)
		leave := Rule(busyRelease, StoreRelease(busy, 0), Store(busy, 0))
		give := Store(taken, Add(n, 1))
		reader.Does(
			While(And(Lt(n, parts), Not(over)),
				Rule(busyFirst,
					Seq(Store(busy, 1), Rule(busyFence, Fence()), Rule(eachPart, look, If(Eq(n, 0), look))),
					look, Store(busy, 1), Fence()),
				If(Ne(over, 0), leave).Else(
					Expect(At(memory, n), 0),
					Rule(takenFirst, Seq(give, leave), leave, give),
					Set(n, Add(n, 1)),
				),
			),
			If(Ne(over, 0),
				While(Eq(from, 0), LoadAcquire(from, slot)),
				Assert(Eq(from, Add(n, 1)), sameCount),
			),
		)
	}
	return m
}

const wakesCall = "another: wakes the call that made the advert, also if the reader is busy"

// begun is a withdrawal begun by another thread than the one whose call made the advert and sleeps.
// The other thread looks once. If the reader is busy, the call has to go on, since the reader gets
// nothing more of this advert; so the call is woken and waits.
//
//	another                the call, asleep            reader
//	  withdrawn := 1         woken:                      as above
//	  fence                  withdrawn? wait while the
//	  busy? no matter        reader is busy; the rest
//	  wake the call          comes by a slot
func begun(parts int) *Model {
	m := New(fmt.Sprintf("zcopy: another thread withdraws an advert of %d parts", parts))
	withdrawn, slot := m.Word("withdrawn", 0), m.Word("slot", 0)
	busy, taken := m.Word("busy", 0), m.Word("taken", 0)
	woken, posted := m.Event("woken"), m.Event("posted")

	another := m.Process("another")
	seen := another.Var("busy")
	another.Does(
		Store(withdrawn, 1), Fence(), Load(seen, busy),
		Rule(wakesCall, Ring(woken), If(Eq(seen, 0), Ring(woken))),
	)

	call := m.Process("call")
	done, got, k, is := call.Var("done"), call.Var("woken"), call.Var("taken"), call.Var("busy")
	call.Does(While(Eq(done, 0),
		Poll(woken), Drain(got, woken),
		Load(k, taken),
		If(Eq(k, parts), Set(done, 1)).Else(
			Load(is, withdrawn),
			If(Ne(is, 0),
				While(Ne(is, 0), LoadAcquire(is, busy)),
				Load(k, taken), StoreRelease(slot, Add(k, 1)), Ring(posted),
				Set(done, 1),
			),
		),
	))

	reader := m.Process("reader")
	n, over, from, rung := reader.Var("taken"), reader.Var("withdrawn"), reader.Var("slot"), reader.Var("posted")
	reader.Does(
		While(And(Lt(n, parts), Not(over)),
			Store(busy, 1), Fence(), Load(over, withdrawn),
			If(Ne(over, 0), StoreRelease(busy, 0)).Else(
				Set(n, Add(n, 1)), Store(taken, n), StoreRelease(busy, 0),
			),
		),
		If(Eq(n, parts), Ring(woken)).Else(
			While(Eq(from, 0), Poll(posted), Drain(rung, posted), LoadAcquire(from, slot)),
			Assert(Eq(from, Add(n, 1)), sameCount),
		),
	)
	return m
}

func TestZCP1Withdrawal(t *testing.T) {
	holds(t, zcopy(1, false), zcopy(2, false), zcopy(2, true), begun(2))
}

func TestZCP1WithdrawalBegunByAnother(t *testing.T) {
	needs(t, []rule{{wakesCall, SC, lost}}, begun(2))
}

func TestZCP1WithdrawalNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{retractFirst, SC, damaged},
		{retractFence, TSO, damaged},
		{waitsForBusy, SC, damaged},
		{busyAcquire, Weak, sameCount},
		{busyFirst, SC, damaged},
		{busyFence, TSO, damaged},
		{eachPart, SC, damaged},
		{takenFirst, SC, sameCount},
		{busyRelease, Weak, damaged},
		{deathEndsBusy, SC, stuck},
	}, zcopy(2, true))
}
