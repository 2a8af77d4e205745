package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	claimFirst  = "thread: claims the lock, then looks whether the connection is still its process' own"
	claimAtomic = "thread: claims the lock by a compare-and-swap"
	soleAgain   = "thread: does without the lock that it has claimed if the connection is not"
	giveRelease = "thread: gives the lock back by a release store"
	soleFirst   = "child: has the connection marked as shared, then looks for an owner"
	soleFence   = "child: fence between the mark and looking for an owner"
	ownerWait   = "child: waits until nobody owns the lock"
	ownerSeen   = "child: looks for an owner by an acquire load"
	onlyOne     = "one at a time is behind the lock"
)

// lock is the lock of a connection (directsockets/preload/lock.c). Threads of one process take it
// by its owner word. When another thread of the process forks, it is taken by a mutex between
// processes from then on. Of the processes that use the mutex, the model needs only one, the child.
//
//	thread                              forker: child
//	  owner := me, if it was 0            sole := 0
//	  sole? enter the lock                fence
//	  owner := 0                          wait until owner is 0
//	                                      enter the lock
//
// Either the thread finds the connection shared, or the child finds the owner.
func lock(threads int) *Model {
	m := New("lock: its two ways")
	owner, sole := m.Word("owner", 0), m.Word("sole", 1)
	first, second := m.Word("first", 0), m.Word("second", 0)
	// behind changes both words: another process inside the lock at the same time finds one
	// changed and one not.
	behind := func(p *Process) Stmt {
		a, b := p.Var("first"), p.Var("second")
		return Seq(Load(a, first), Load(b, second), Assert(Eq(a, b), onlyOne), Store(first, Add(a, 1)), Store(second, Add(b, 1)))
	}
	for i := range threads {
		p := m.Process([]string{"one", "two"}[i])
		mine, is, was := p.Var("mine"), p.Var("sole"), p.Var("owner")
		claim := Rule(claimAtomic, CompareAndSwap(mine, owner, 0, i+1),
			Seq(Load(was, owner), Set(mine, Eq(was, 0)), If(Ne(mine, 0), Store(owner, i+1), Fence())))
		p.Does(
			Rule(claimFirst,
				Seq(claim, Load(is, sole)),
				Load(is, sole), claim),
			If(Ne(mine, 0),
				If(Ne(is, 0), behind(p)).Else(Rule(soleAgain, Seq(), behind(p))),
				Rule(giveRelease, StoreRelease(owner, 0), Store(owner, 0)),
			),
		)
	}
	p := m.Process("child")
	was := p.Var("owner")
	look := Rule(ownerSeen, LoadAcquire(was, owner), Load(was, owner))
	p.Does(
		Rule(soleFirst,
			Seq(Store(sole, 0), Rule(soleFence, Fence()), look, Rule(ownerWait, While(Ne(was, 0), look))),
			look, While(Ne(was, 0), look), Store(sole, 0), Fence()),
		behind(p),
	)
	return m
}

func TestLock(t *testing.T) {
	holds(t, lock(1), lock(2))
}

func TestLockNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{claimFirst, SC, onlyOne},
		{claimAtomic, SC, onlyOne},
		{soleAgain, SC, onlyOne},
		{giveRelease, Weak, onlyOne},
		{soleFirst, SC, onlyOne},
		{soleFence, TSO, onlyOne},
		{ownerWait, SC, onlyOne},
		{ownerSeen, Weak, onlyOne},
	}, lock(2))
}
