package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	insideFirst = "call: says that it is inside, then looks whether the set is shut"
	insideFence = "call: fence between saying that it is inside and looking whether the set is shut"
	goesBack    = "call: does not go in while the set is shut"
	insideUntil = "call: is inside until it has taken its event"
	shutFirst   = "engager: shuts the set, then looks whether somebody is inside"
	shutFence   = "engager: fence between shutting the set and looking whether somebody is inside"
	shutUntil   = "engager: opens the set when the member is out"
	asTold      = "the member fires only while it is in the set, or as fdinfo has told"
)

// oneshot is the gate of an epoll set with a one-shot member (directsockets/preload/oneshot.c). The
// member has to leave the kernel's set in the state that fdinfo reports: 1 while it is armed, 2
// after it has fired, 0 when it is out of the set.
//
//	calls                              engager
//	  inside := 1                        shut := 1
//	  fence                              fence
//	  shut? inside := 0, retry later     a call inside? not now
//	  armed? take the event, disarm      read fdinfo
//	  inside := 0                        take the member out
//	                                     shut := 0
//
// Either a call finds the set shut, or the engager finds the call inside.
func oneshot(calls int) *Model {
	m := New(fmt.Sprintf("oneshot: %d calls", calls))
	shut, member := m.Word("shut", 0), m.Word("member", 1)
	var inside []Word
	for i := range calls {
		inside = append(inside, m.Word(fmt.Sprintf("inside%d", i), 0))
		call := m.Process(fmt.Sprintf("call%d", i))
		is, took := call.Var("shut"), call.Var("took")
		take, leave := CompareAndSwap(took, member, 1, 2), StoreRelease(inside[i], 0)
		call.Does(
			Rule(insideFirst,
				Seq(Store(inside[i], 1), Rule(insideFence, Fence()), Load(is, shut)),
				Load(is, shut), Store(inside[i], 1), Fence()),
			If(Ne(is, 0), leave, Rule(goesBack, Seq(), take)).Else(
				Rule(insideUntil, Seq(take, leave), leave, take)),
		)
	}

	engager := m.Process("engager")
	told, was := engager.Var("told"), engager.Var("was")
	var looks []Stmt
	nobody := Eq(told, told)
	for i := range calls {
		in := engager.Var(fmt.Sprintf("inside%d", i))
		looks = append(looks, LoadAcquire(in, inside[i]))
		nobody = And(nobody, Eq(in, 0))
	}
	engager.Does(
		Rule(shutFirst,
			Seq(Store(shut, 1), Rule(shutFence, Fence()), Seq(looks...)),
			Seq(looks...), Store(shut, 1), Fence()),
		If(nobody,
			Load(told, member),
			Rule(shutUntil, Seq(), Store(shut, 0)),
			Exchange(was, member, 0),
			Assert(Eq(was, told), asTold),
		),
		Store(shut, 0),
	)
	return m
}

func TestOneshot(t *testing.T) {
	holds(t, oneshot(1), oneshot(2))
}

func TestOneshotNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{insideFirst, SC, asTold},
		{insideFence, TSO, asTold},
		{goesBack, SC, asTold},
		{insideUntil, SC, asTold},
		{shutFirst, SC, asTold},
		{shutFence, TSO, asTold},
		{shutUntil, SC, asTold},
	}, oneshot(2))
}
