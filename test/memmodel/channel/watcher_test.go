package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	listFirst = "sleeper: in the list, then looks"
	maskFirst = "sleeper: its bit is in the mask, then looks"
	maskFence = "sleeper: fence between the mask and the second look"
	wholeList = "watcher: the second look is at all of the list"
)

// watcher is how Go programs sleep (directsockets/watch.go): one goroutine, the watcher, has the channel's waiter and looks
// for all calls that sleep. A call looks at its own lane only, and says in a mask that somebody sleeps on it.
//
//	sleeper                    watcher                    peer
//	  into the list              look at all of the list    post
//	  bit in the mask, fence     a new odd epoch, fence     fence
//	  look again: nothing        look again: nothing        mask, then epoch:
//	  sleep                      sleep on the doorbell      odd and not rung: ring
//
// The list has a lock, so its changes are whole and full fences; who takes a sleeper off the list wakes it. A wake-up that
// comes late makes one later sleep short.
func watcher(lanes, messages int) *Model {
	m := New(fmt.Sprintf("watcher: %d lanes, %d messages each", lanes, messages))
	epoch, bell := m.Word("epoch", 0), m.Event("bell")
	ended, over := m.Word("ended", 0), m.Word("over", 0)
	rings, masks, listed, places := make([]Array, lanes), make([]Word, lanes), make([]Word, lanes), make([]Word, lanes)
	naps := make([]Event, lanes)
	for i := range lanes {
		rings[i], naps[i] = m.Array(fmt.Sprintf("ring%d", i), messages), m.Event(fmt.Sprintf("nap%d", i))
		masks[i], listed[i] = m.Word(fmt.Sprintf("mask%d", i), 0), m.Word(fmt.Sprintf("listed%d", i), 0)
		places[i] = m.Word(fmt.Sprintf("place%d", i), 0) // where the reader of a sleeper is
	}

	for i := range lanes {
		p := m.Process(fmt.Sprintf("sleeper%d", i))
		taken, status, old := p.Var("taken"), p.Var("status"), p.Var("old")
		look := LoadAcquire(status, At(rings[i], taken))
		list := Exchange(old, listed[i], 1)
		mask := Store(masks[i], 1)
		again := Rule("sleeper"+secondLook, look)
		p.Does(
			While(Lt(taken, messages),
				look,
				If(Eq(status, 1), Set(taken, Add(taken, 1))).Else(
					Store(places[i], taken),
					Rule(listFirst,
						Seq(list, Rule(maskFirst,
							Seq(mask, Rule(maskFence, Fence()), again),
							again, mask, Fence())),
						mask, Fence(), again, list),
					If(Eq(status, 0), Wait(naps[i])),
					Store(masks[i], 0), Fence(),
					Exchange(old, listed[i], 0),
				),
			),
			// The last one ends the channel.
			Exchange(old, ended, 1),
			If(Eq(old, lanes-1), StoreRelease(over, 1), Fence(), Ring(bell)),
		)
	}

	w := m.Process("watcher")
	{
		on, place, status, old := w.Var("on"), w.Var("place"), w.Var("status"), w.Var("old")
		found, end := w.Var("found"), w.Var("end")
		var looks []Stmt
		for i := range lanes {
			looks = append(looks,
				LoadAcquire(on, listed[i]),
				If(Eq(on, 1),
					LoadAcquire(place, places[i]),
					LoadAcquire(status, At(rings[i], place)),
					If(Eq(status, 1),
						Exchange(old, listed[i], 0),
						If(Eq(old, 1), Ring(naps[i]), Set(found, 1)),
					),
				))
		}
		scan := Seq(Set(found, 0), Seq(looks...), LoadAcquire(end, over))
		again := scan
		if lanes > 1 {
			again = Seq(Set(found, 0), Seq(looks[:2]...), Rule(wholeList, Seq(looks[2:]...)), LoadAcquire(end, over))
		}
		s := newSleeper("watcher", w, epoch, edges, bell)
		w.Does(While(Eq(end, 0),
			scan,
			If(And(Eq(found, 0), Eq(end, 0)), s.sleep(again, And(Eq(found, 0), Eq(end, 0)))),
		))
	}

	peer := m.Process("peer")
	{
		r := newRinger("peer", peer, epoch, bell)
		bit := peer.Var("bit")
		var posts []Stmt
		for i := range lanes {
			for k := range messages {
				what := StoreRelease(At(rings[i], k), 1)
				ask := Seq(Load(bit, masks[i]), Load(r.seen, epoch)) // in the other order it would hold as well
				posts = append(posts,
					Rule("peer"+publishFirst,
						Seq(what, Rule("peer"+publishFence, Fence()), ask),
						ask, what),
					If(Eq(bit, 1), r.ring()))
			}
		}
		peer.Does(posts...)
	}
	return m
}

func TestWatcher(t *testing.T) {
	holds(t, watcher(1, 2))
	for _, memory := range []Memory{SC, TSO} { // of two sleepers Weak has too many states
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
		{wholeList, SC, lost},
		{"sleeper" + secondLook, SC, lost},
		{"watcher" + secondLook, SC, lost},
		{"watcher" + epochFence, TSO, lost},
		{"watcher" + ownEpoch, SC, lost},
		{"peer" + publishFirst, SC, lost},
		{"peer" + publishFence, TSO, lost},
		{"peer" + ringOnce, SC, "an epoch is rung once"},
	}, watcher(1, 2), watcher(2, 1))
}
