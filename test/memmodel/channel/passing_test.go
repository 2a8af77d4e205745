package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	passedOnce   = "who closes: says that it is free only if it was passed on once"
	takenBack    = "who finds it free: takes the word back"
	waysLook     = "who finds it free: looks whether it went other ways"
	waysSaid     = "who passes it on before it was found free: says that it went other ways"
	waysFirst    = "and says so before it sends"
	peekSaid     = "who has only peeked at the message says that it went other ways"
	heldByNobody = "who found it free holds it alone"
)

// passing is how three processes pass a connection back and forth, and how one that receives it
// finds out that no other process has it (directsockets/preload/passing.c). The words are the
// kernel's, in the open file, so each step is a system call.
//
//	pass                              close                          find free
//	  accepted, or found free?          close                          free, and no other ways?
//	    no: other ways := 1             passed once?                     free := 0
//	  send                                free := 1
//
// The first process has accepted the connection. Each process does as many things as the model
// says: one of these, or it takes a message or peeks at it, in any order.
func passing(things [3]int) *Model {
	m := New(fmt.Sprintf("passing: three processes do %v things", things))
	free, ways := m.Word("free", 0), m.Word("other ways", 0)
	var holds, mail [3]Word
	for i := range holds {
		holds[i], mail[i] = m.Word(fmt.Sprintf("%d holds it", i), 0), m.Word(fmt.Sprintf("mail to %d", i), 0)
	}
	get := func(v Var, w Word) Stmt { return Seq(Load(v, w), Fence()) }
	put := func(w Word, v int) Stmt { return Seq(Store(w, v), Fence()) }

	for i := range holds {
		p := m.Process(fmt.Sprint(i))
		done, held, mine, passes := p.Var("done"), p.Var("holds it"), p.Var("found free"), p.Var("passes")
		is, other := p.Var("is"), p.Var("other")

		find := Seq(
			get(is, free), Rule(waysLook, get(other, ways), Set(other, 0)),
			If(And(Eq(is, 1), Eq(other, 0)),
				Set(mine, 1), Rule(takenBack, put(free, 0), Seq())))
		alone := Seq()
		for j := range holds {
			alone = Seq(alone, get(is, mail[j]), Assert(Eq(is, 0), heldByNobody))
			if j != i {
				alone = Seq(alone, get(is, holds[j]), Assert(Eq(is, 0), heldByNobody))
			}
		}
		have := Seq(put(holds[i], 1), Set(held, 1), Set(mine, 0), Set(passes, 0))
		acts := []Stmt{
			Seq(get(is, mail[i]), If(And(Eq(held, 0), Eq(is, 1)),
				// or it stays in the socket
				Choose(put(mail[i], 0), Rule(peekSaid, put(ways, 1), Seq())),
				have)),
			If(And(Eq(held, 1), Eq(mine, 0)), find, If(Eq(mine, 1), alone)),
			If(Eq(held, 1),
				Set(held, 0), put(holds[i], 0),
				Rule(passedOnce, Set(is, Eq(passes, 1)), Set(is, Lt(0, passes))),
				If(Eq(is, 1), put(free, 1))),
		}
		for j := range holds {
			say := Rule(waysSaid, If(Eq(mine, 0), put(ways, 1)), Seq())
			send := Seq(put(mail[j], 1), Set(passes, Add(passes, 1)))
			if j != i {
				acts = append(acts, Seq(get(is, mail[j]), If(And(Eq(held, 1), Eq(is, 0)),
					If(Eq(mine, 0), find),
					Rule(waysFirst, Seq(say, send), Seq(send, say)))))
			}
		}
		p.Does(
			If(Eq(i, 0), have, Set(mine, 1)),
			While(Lt(done, things[i]), Choose(acts...), Set(done, Add(done, 1))))
	}
	return m
}

func TestPassing(t *testing.T) {
	holds(t, passing([3]int{3, 3, 2}))
}

func TestPassingNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{passedOnce, SC, heldByNobody},
		{takenBack, SC, heldByNobody},
		{waysLook, SC, heldByNobody},
		{waysSaid, SC, heldByNobody},
		{waysFirst, SC, heldByNobody},
		{peekSaid, SC, heldByNobody},
	}, passing([3]int{3, 3, 2}))
}
