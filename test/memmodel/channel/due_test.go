package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	dueFirst  = "writer: says what it waits for before the second look"
	dueExact  = "writer: waits for no more than it looks for"
	dueBehind = "reader: gives credit, then looks what is due"
	dueFence  = "reader: fence between giving credit and looking what is due"
	duePosted = "writer: what it waits for is no more than what was posted"
)

// due is how a reader that takes a full lane in small parts wakes its writer once, and not for each
// part (preload/doorbell.c, doorbell_room). The lane has three slots, all full, and the writer
// waits for two. The word starts as left by another thread of the writer, which waited for all
// three.
//
//	writer                                  reader, after each part
//	  due := 2                                credit := parts taken
//	  new odd epoch, fence                    fence
//	  look again; sleep if credit < 2         credit >= due, and epoch odd, not yet rung: ring
//
// A reader that stops after two parts until the writer has gone on must have rung for them, even if
// the other thread meanwhile asks for less. A reader that takes everything rings whatever the other
// thread says, because no thread ever waits for more than what was posted.
func due(parts, other int) *Model {
	const slots, enough = 3, 2
	m := New("due: a writer waits for two of three slots")
	word, epoch, credit := m.Word("due", slots), m.Word("epoch", 0), m.Word("credit", 0)
	bell, on := m.Event("bell"), m.Event("on")

	w := m.Process("writer")
	{
		got := w.Var("credit")
		s := newSleeper("writer", w, epoch, edges, bell)
		look := LoadAcquire(got, credit)
		say := Rule(dueExact, Store(word, enough), Store(word, slots))
		w.Does(
			look,
			While(Lt(got, enough),
				Rule(dueFirst, Seq(say, s.sleep(look, Lt(got, enough))), s.sleep(Seq(look, say), Lt(got, enough))),
			),
			Ring(on),
		)
	}

	m.Process("another thread of the writer's").Does(Rule(duePosted, Store(word, other), Store(word, slots+1)))

	r := m.Process("reader")
	{
		taken, asked := r.Var("taken"), r.Var("due")
		ring := newRinger("reader", r, epoch, bell)
		give, find := StoreRelease(credit, Add(taken, 1)), Load(asked, word)
		r.Does(
			While(Lt(taken, parts),
				Rule(dueBehind, Seq(give, Rule(dueFence, Fence()), find), Seq(find, give, Fence())),
				Set(taken, Add(taken, 1)),
				If(Not(Lt(taken, asked)), Load(ring.seen, ring.epoch), ring.ring()),
			),
			Wait(on),
		)
	}
	return m
}

func dues() []*Model { return []*Model{due(2, 0), due(2, 2), due(3, 3)} }

func TestDue(t *testing.T) { holds(t, dues()...) }

func TestDueNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{dueFirst, SC, lost},
		{dueExact, SC, lost},
		{duePosted, SC, lost},
		{dueBehind, SC, lost},
		{dueFence, TSO, lost},
		{"reader" + ringOnce, SC, "an epoch is rung once"},
		{"writer" + epochFence, TSO, lost},
		{"writer" + secondLook, SC, lost},
		{"writer" + ownEpoch, SC, lost},
	}, dues()...)
}
