package channel

import (
	"testing"

	. "exnet/test/memmodel"
)

const (
	changeFirst   = "thread: says that it changes the table, then looks whether somebody forks"
	changeFence   = "thread: fence between saying so and looking"
	changeWaits   = "thread: changes nothing while somebody forks"
	changeRelease = "thread: is done by a release"
	forkFirst     = "who forks: says so, then looks whether somebody changes the table"
	forkFence     = "who forks: fence between saying so and looking"
	forkWaits     = "who forks: waits until nobody changes the table"
	forkAcquire   = "who forks: looks by an acquire load"
	oneState      = "what the child gets and what is counted for it are of one moment"
)

// forking is how the table of descriptors is copied together with the counts that belong to it
// (files_begin and files_fork in directsockets/preload/files.c).
//
//	thread                              forker
//	  changing := 1                       forking := 1
//	  fence                               fence
//	  forking? changing := 0, later       wait until changing is 0
//	  change the table, and the count     read both
//	  changing := 0                       forking := 0
//
// Either the thread sees the fork, or the forker sees the thread.
func forking() *Model {
	m := New("forking: a change of the table beside a fork")
	fork, changing := m.Word("forking", 0), m.Word("changing", 0)
	table, count := m.Word("table", 0), m.Word("count", 0)

	thread := m.Process("thread")
	is := thread.Var("forking")
	change := Seq(Store(table, 1), Store(count, 1))
	thread.Does(
		Rule(changeFirst,
			Seq(Store(changing, 1), Rule(changeFence, Fence()), Load(is, fork)),
			Load(is, fork), Store(changing, 1), Fence()),
		If(Ne(is, 0), StoreRelease(changing, 0), Rule(changeWaits, Seq(), change)).
			Else(change, Rule(changeRelease, StoreRelease(changing, 0), Store(changing, 0))),
	)

	forks := m.Process("forks")
	a, b, in := forks.Var("table"), forks.Var("count"), forks.Var("changing")
	look := Rule(forkAcquire, LoadAcquire(in, changing), Load(in, changing))
	wait := Seq(look, Rule(forkWaits, While(Ne(in, 0), look)))
	forks.Does(
		Rule(forkFirst,
			Seq(Store(fork, 1), Rule(forkFence, Fence()), wait),
			wait, Store(fork, 1), Fence()),
		Load(a, table), Load(b, count),
		Assert(Eq(a, b), oneState),
	)
	return m
}

func TestForking(t *testing.T) {
	holds(t, forking())
}

func TestForkingNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{changeFirst, SC, oneState},
		{changeFence, TSO, oneState},
		{changeWaits, SC, oneState},
		{changeRelease, Weak, oneState},
		{forkFirst, SC, oneState},
		{forkFence, TSO, oneState},
		{forkWaits, SC, oneState},
		{forkAcquire, Weak, oneState},
	}, forking())
}
