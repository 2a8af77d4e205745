package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	takerArms  = "asker: arms anew for those who sleep, of whom it has taken the ring"
	takerFirst = "asker: looks after it has armed"
	takerFence = "asker: fence between arming and the look"
)

// beside is two threads: one sleeps in an epoll set while the other only asks what is ready
// (preload/epwait.c, ask). The set's perch reports an event once, to either thread. The peer rings
// once for an epoch. So a thread that has taken the ring owes the sleeper another epoch, or nobody
// rings it any more. Each of two messages is reported to one of the two threads.
//
//	sleeper, with the lock           asker                            peer, twice
//	  new odd epoch, fence             take what is on the bell         post
//	  look: all told? else sleep       lock; new odd epoch, fence       fence
//	  lock; epoch even                 look                             odd, and not yet rung: ring
func beside() *Model {
	const messages = 2
	m := New("beside: one thread sleeps in a set, another asks it")
	posted, epoch := m.Word("posted", 0), m.Word("epoch", 0)
	lock, told := m.Word("lock", 0), m.Word("told", 0) // of the set
	bell, over := m.Event("bell"), m.Event("over")

	type thread struct {
		p              *Process
		ok, is, at, by Var
	}
	make := func(name string) thread {
		p := m.Process(name)
		return thread{p, p.Var("lock"), p.Var("epoch"), p.Var("posted"), p.Var("told")}
	}
	take := func(t thread) Stmt { return While(Not(t.ok), CompareAndSwap(t.ok, lock, 0, 1)) }
	give := func(t thread) Stmt { return Seq(StoreRelease(lock, 0), Set(t.ok, 0)) }
	odd := func(t thread) Stmt { return Seq(Load(t.is, epoch), Store(epoch, Add(Add(t.is, 1), Mod(t.is, 2)))) }
	look := func(t thread) Stmt { return Seq(LoadAcquire(t.at, posted), Store(told, t.at), Set(t.by, t.at)) }

	s := make("sleeper")
	s.p.Does(
		While(Ne(s.by, messages),
			take(s),
			odd(s), Rule("sleeper"+epochFence, Fence()),
			Rule("sleeper"+secondLook, look(s)),
			give(s),
			If(Ne(s.by, messages), Wait(bell, over)),
			take(s),
			If(Ne(s.by, messages), Load(s.by, told)),
			Load(s.is, epoch), If(Odd(s.is), Store(epoch, Add(s.is, 1))),
			give(s),
		),
	)

	a := make("asker")
	got := a.p.Var("rings")
	arm := Rule(takerArms, Seq(odd(a), Rule(takerFence, Fence())), Seq())
	a.p.Does(
		Drain(got, bell),
		take(a),
		If(Ne(got, 0), Rule(takerFirst, Seq(arm, look(a)), Seq(look(a), arm))).Else(look(a)),
		give(a),
		If(Eq(a.by, messages), Ring(over)), // nothing is left to report to the sleeper
	)

	r := m.Process("peer")
	n, is, rung := r.Var("message"), r.Var("epoch"), r.Var("rung")
	r.Does(
		While(Ne(n, messages),
			Set(n, Add(n, 1)),
			StoreRelease(posted, n),
			Fence(),
			Load(is, epoch),
			If(And(Odd(is), Ne(is, rung)), Ring(bell), Set(rung, is)),
		),
	)
	return m
}

func TestBeside(t *testing.T) { holds(t, beside()) }

func TestBesideNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{takerArms, SC, lost},
		{takerFirst, SC, lost},
		{takerFence, TSO, lost},
		{"sleeper" + epochFence, TSO, lost},
		{"sleeper" + secondLook, SC, lost},
	}, beside())
}
