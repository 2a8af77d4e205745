package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	notesEvent  = "sleeper: notes what its perch told, before it looks"
	heedsHint   = "sleeper: looks at the hint before it sleeps"
	heedsEnd    = "sleeper: looks at the end after the hint"
	handlerHint = "handler: notes what it took"
	handlerBell = "handler: rings the bell of the sleep that it interrupts"
)

// alone is a thread that sleeps only in its own epoll instance (its perch). The kernel reports
// there once that a peer has died (preload/perch.c, perch_alone). A read asks the kernel only if
// rx_hint says so. Signal handlers that sleep also take what the perch reports, at any time until
// the sleep begins. Another thread that reads clears the hint, and notes what the kernel reported.
func alone() *Model {
	m := New("alone: a thread sleeps on its perch alone")
	died, ended, hint, lock := m.Word("died", 0), m.Word("ended", 0), m.Word("hint", 0), m.Word("lock", 0)
	edge, bell := m.Event("edge"), m.Event("bell")

	type thread struct {
		p                    *Process
		ok, hint, died       Var
		ended, told, mine, x Var
	}
	make := func(name string) thread {
		p := m.Process(name)
		return thread{p, p.Var("ok"), p.Var("hint"), p.Var("died"), p.Var("ended"), p.Var("told"), p.Var("bell"), p.Var("x")}
	}
	note := func(t thread) Stmt { return Exchange(t.x, hint, 1) }
	read := func(t thread) Stmt { // rx_take and rx_probe
		return Seq(
			While(Not(t.ok), CompareAndSwap(t.ok, lock, 0, 1)),
			Load(t.ended, ended),
			Load(t.hint, hint),
			If(And(Not(t.ended), Ne(t.hint, 0)),
				Exchange(t.x, hint, 2),
				Fence(), Load(t.died, died), // a system call
				If(Ne(t.died, 0), Store(ended, 1), Set(t.ended, 1)),
				CompareAndSwap(t.x, hint, 2, 0),
			),
			StoreRelease(lock, 0), Set(t.ok, 0),
		)
	}

	o := make("other")
	o.p.Does(read(o), read(o))

	s := make("sleeper")
	handler := func(armed bool) Stmt {
		ring := Seq()
		if armed {
			ring = Rule(handlerBell, Ring(bell), Seq())
		}
		return Choose(Seq(), Seq(Drain(s.told, edge), If(Ne(s.told, 0), Rule(handlerHint, note(s), Seq()), ring)))
	}
	s.p.Does(
		While(Not(s.ended),
			Drain(s.mine, bell), Drain(s.told, edge),
			Rule(notesEvent,
				Seq(If(Ne(s.told, 0), note(s)), read(s)),
				Seq(read(s), If(Ne(s.told, 0), note(s), Exchange(s.x, hint, 0))),
			),
			If(Not(s.ended),
				handler(false),
				// The bell is armed here.
				handler(true),
				Rule(heedsEnd,
					Seq(LoadAcquire(s.hint, hint), Load(s.ended, ended)),
					Seq(Load(s.ended, ended), LoadAcquire(s.hint, hint)),
					LoadAcquire(s.hint, hint)),
				Rule(heedsHint, Seq(), Set(s.hint, 0)),
				handler(true),
				// otherwise it also sleeps on the socket, which reports the end
				// again
				If(And(Not(s.hint), Not(s.ended)), Poll(edge, bell)),
			),
		),
	)

	m.Process("kernel").Does(StoreRelease(died, 1), Fence(), Ring(edge))
	return m
}

func TestAlone(t *testing.T) { holds(t, alone()) }

func TestAloneNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{notesEvent, SC, lost},
		{heedsHint, SC, lost},
		{heedsEnd, SC, lost},
		{handlerHint, SC, lost},
		{handlerBell, SC, lost},
	}, alone())
}
