package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	listFirst  = "sleeper: is asleep for the watcher, then looks"
	maskFirst  = "sleeper: its bit and its request are in the mask, then looks"
	maskFence  = "sleeper: fence between the mask and the second look"
	askAgain   = "sleeper: asks again after a mark was seen"
	markedBell = "peer: fence between the mark and reading the epoch"
	markSeen   = "watcher: a mark was seen, also of who is awake"
)

// watcher is how Go programs sleep (directsockets/watch.go). One goroutine, the watcher, has the
// channel's waiter and sleeps for all calls that read. A call looks only at its own lane. It sets a
// bit in a mask to say that it sleeps, and asks for a mark unless the last one that it asked for
// has not been seen. The watcher looks only at marks.
//
//	sleeper                   watcher                  peer
//	  asleep, asked           look at the marks        post
//	  bit and request in      new odd epoch, fence     fence
//	  the mask, fence         look again: none         mask: asked again: mark, count it, fence
//	  look again: nothing     sleep on the doorbell    epoch: odd and not rung, and bit set: ring
//	  sleep
//
// A lock guards asleep and asked, and each section changes both. 0 means neither, so they are one
// word here. A late wake-up shortens one later sleep.
func watcher(lanes, messages int) *Model {
	const asked, asleep = 2, 3 // values of state: asked and awake, asked and asleep
	m := New(fmt.Sprintf("watcher: %d lanes, %d messages each", lanes, messages))
	epoch, bell := m.Word("epoch", 0), m.Event("bell")
	ended, over := m.Word("ended", 0), m.Word("over", 0)
	count := m.Word("marks made", 0)
	rings, masks, states, marks := make([]Array, lanes), make([]Word, lanes), make([]Word, lanes), make([]Word, lanes)
	naps := make([]Event, lanes)
	for i := range lanes {
		rings[i], naps[i] = m.Array(fmt.Sprintf("ring%d", i), messages), m.Event(fmt.Sprintf("nap%d", i))
		// mask: bit 0, and requests
		masks[i], states[i] = m.Word(fmt.Sprintf("mask%d", i), 0), m.Word(fmt.Sprintf("state%d", i), 0)
		marks[i] = m.Word(fmt.Sprintf("mark%d", i), 0)
	}

	for i := range lanes {
		p := m.Process(fmt.Sprintf("sleeper%d", i))
		taken, status, old, asks := p.Var("taken"), p.Var("status"), p.Var("old"), p.Var("asks")
		look := LoadAcquire(status, At(rings[i], taken))
		list := Exchange(old, states[i], asleep)
		ask := Rule(askAgain,
			If(Eq(old, 0), Set(asks, Add(asks, 1))),
			If(Eq(asks, 0), Set(asks, 1)))
		mask := Store(masks[i], Add(Add(asks, asks), 1))
		again := Rule("sleeper"+secondLook, look)
		p.Does(
			While(Lt(taken, messages),
				look,
				If(Eq(status, 1), Set(taken, Add(taken, 1))).Else(
					Rule(listFirst,
						Seq(list, ask, Rule(maskFirst,
							Seq(mask, Rule(maskFence, Fence()), again),
							again, mask, Fence())),
						mask, Fence(), again, list, ask),
					If(Eq(status, 0), Wait(naps[i])),
					Store(masks[i], Add(asks, asks)), Fence(),
					CompareAndSwap(old, states[i], asleep, asked),
				),
			),
			// The last one ends the channel.
			Exchange(old, ended, 1),
			If(Eq(old, lanes-1), StoreRelease(over, 1), Fence(), Ring(bell)),
		)
	}

	w := m.Process("watcher")
	{
		made, seen, bit, old := w.Var("made"), w.Var("seen"), w.Var("bit"), w.Var("old")
		found, end := w.Var("found"), w.Var("end")
		wake := func(i int) Stmt {
			return Seq(
				Rule(markSeen,
					Exchange(old, states[i], 0),
					CompareAndSwap(old, states[i], asleep, 0), If(Ne(old, 0), Set(old, asleep))),
				If(Eq(old, asleep), Ring(naps[i]), Set(found, 1)))
		}
		var changed, all []Stmt
		for i := range lanes {
			was := w.Var(fmt.Sprintf("was%d", i))
			changed = append(changed,
				LoadAcquire(bit, marks[i]),
				If(Ne(bit, was), Set(was, bit), Set(seen, Add(seen, 1)), wake(i)))
			all = append(all, wake(i))
		}
		scan := Seq(
			Set(found, 0),
			LoadAcquire(made, count),
			If(Ne(made, seen),
				Seq(changed...),
				If(Lt(seen, made), Set(seen, made), Seq(all...))),
			LoadAcquire(end, over))
		s := newSleeper("watcher", w, epoch, edges, bell)
		w.Does(While(Eq(end, 0),
			scan,
			If(And(Eq(found, 0), Eq(end, 0)), s.sleep(scan, And(Eq(found, 0), Eq(end, 0)))),
		))
	}

	peer := m.Process("peer")
	{
		r := newRinger("peer", peer, epoch, bell)
		mask, made := peer.Var("mask"), peer.Var("made")
		var posts []Stmt
		for i := range lanes {
			marked, bit := peer.Var(fmt.Sprintf("marked%d", i)), peer.Var(fmt.Sprintf("bit%d", i))
			mark := Seq(Set(bit, Sub(1, bit)), StoreRelease(marks[i], bit), Set(made, Add(made, 1)), StoreRelease(count, made),
				Rule(markedBell, Fence()))
			for k := range messages {
				what := StoreRelease(At(rings[i], k), 1)
				ask := Seq(
					Load(mask, masks[i]),
					If(Ne(Div(mask, 2), marked), Set(marked, Div(mask, 2)), mark),
					Load(r.seen, epoch))
				posts = append(posts,
					Rule("peer"+publishFirst,
						Seq(what, Rule("peer"+publishFence, Fence()), ask),
						ask, what),
					If(Odd(mask), r.ring()))
			}
		}
		peer.Does(posts...)
	}
	return m
}

func TestWatcher(t *testing.T) {
	holds(t, watcher(1, 2))
	for _, memory := range []Memory{SC, TSO} { // with two sleepers Weak has too many states
		if r := explore(t, watcher(2, 1), Run{Memory: memory}); r.CounterExample != nil || r.Bounded {
			t.Error(r)
		}
	}
}

func TestWatcherNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{listFirst, SC, lost},
		{maskFirst, SC, lost},
		{maskFence, TSO, lost},
		{askAgain, SC, lost},
		{markSeen, SC, lost},
		{markedBell, TSO, lost},
		{"sleeper" + secondLook, SC, lost},
		{"watcher" + secondLook, SC, lost},
		{"watcher" + epochFence, TSO, lost},
		{"watcher" + ownEpoch, SC, lost},
		{"peer" + publishFirst, SC, lost},
		{"peer" + publishFence, TSO, lost},
		{"peer" + ringOnce, SC, "an epoch is rung once"},
	}, watcher(1, 2), watcher(2, 1))
}
