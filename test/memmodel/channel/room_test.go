package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	countFirst = "filler: counts that it found no room, then looks for sleepers"
	countFence = "filler: fence between the count and reading the epoch"
	rouses     = "filler: wakes a sleeper"
	roomAsleep = "sleeper: looks for room once its epoch is odd"
	roomFence  = "sleeper: fence between asking for credit and the second look"
	asksRoom   = "sleeper: asks to be rung for credit if there is no room"
	roomCredit = "reader: fence between giving credit and reading the mask"
)

// room is how a thread that sleeps in an edge-triggered set learns that there is room again, when
// another thread of its program fills the lane (preload/epwait.c, arm, and doorbell_rouse). The
// lane has one slot. The sleeper must report room once the filler has found none and there is some
// again.
//
//	sleeper                          filler                            reader
//	  room and counted: report         fill the slot                     take the message
//	  new odd epoch, fence             no room: count that, fence        return credit
//	  no room: mask, fence             epoch odd: ring                   fence
//	  look again: nothing to report    wait for the report               mask, and epoch odd: ring
//	  sleep; clear the mask
func room() *Model {
	m := New("room: one thread sleeps, another fills, the peer takes")
	posted, starved, over := m.Word("posted", 0), m.Word("starved", 0), m.Word("over", 0)
	epoch, mask, credit := m.Word("epoch", 0), m.Word("mask", 0), m.Word("credit", 0)
	bell, told := m.Event("bell"), m.Event("told")

	s := m.Process("sleeper")
	{
		counted, full, taken := s.Var("counted"), s.Var("posted"), s.Var("credit")
		ended, done, mine := s.Var("over"), s.Var("done"), s.Var("mine")
		fill := Seq(LoadAcquire(taken, credit), Load(full, posted))
		look := Seq(LoadAcquire(counted, starved), fill, LoadAcquire(ended, over))
		due := Not(And(Not(And(Eq(counted, 1), Eq(full, taken))), Eq(ended, 0)))
		next := Seq(Set(mine, Add(mine, 1)), Store(epoch, mine))
		asleep := Seq(next, Rule("sleeper"+epochFence, Fence()))
		ask := Seq(fill, Rule(asksRoom, If(Ne(full, taken), Store(mask, 1), Rule(roomFence, Fence())), Seq()))
		s.Does(
			While(Eq(done, 0),
				look,
				If(due, Set(done, 1)).Else(
					Rule(roomAsleep, Seq(asleep, ask), Seq(ask, asleep)),
					Rule("sleeper"+secondLook, look),
					If(Not(due), Wait(bell)),
					next,
					Store(mask, 0),
				),
			),
			Ring(told),
		)
	}

	f := m.Process("filler")
	{
		taken, sleeps := f.Var("credit"), f.Var("epoch")
		count, find := Store(starved, 1), Load(sleeps, epoch)
		f.Does(
			Store(posted, 1),
			LoadAcquire(taken, credit),
			If(Eq(taken, 1), // there is room already: the end
				StoreRelease(over, 1),
				Ring(bell),
			).Else(
				Rule(countFirst, Seq(count, Rule(countFence, Fence()), find), Seq(find, count)),
				Rule(rouses, If(Odd(sleeps), Ring(bell)), Seq()),
			),
			Wait(told),
		)
	}

	r := m.Process("reader")
	{
		there, asked, sleeps := r.Var("posted"), r.Var("mask"), r.Var("epoch")
		r.Does(
			While(Eq(there, 0), LoadAcquire(there, posted)),
			StoreRelease(credit, 1),
			Rule(roomCredit, Fence()),
			Load(asked, mask),
			If(Eq(asked, 1), Load(sleeps, epoch), If(Odd(sleeps), Ring(bell))),
		)
	}
	return m
}

func TestRoom(t *testing.T) { holds(t, room()) }

func TestRoomNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{countFirst, SC, lost},
		{countFence, TSO, lost},
		{rouses, SC, lost},
		{roomAsleep, SC, lost},
		{roomFence, TSO, lost},
		{asksRoom, SC, lost},
		{roomCredit, TSO, lost},
		{"sleeper" + epochFence, TSO, lost},
		{"sleeper" + secondLook, SC, lost},
	}, room())
}
