package lane

import (
	"slices"
	"testing"
)

// Each marked lane is seen once, and the count shows what the bits do not.
func TestMarks(t *testing.T) {
	const w = 3
	g := small
	g.Lanes = mostLanes
	peer := memory(g)
	peer.Mark(7, Ask(w, 1)) // before NewMarks
	marks := NewMarks(peer, w)
	gather := func() (seen []uint32, all bool) {
		all = marks.Gather(func(lane uint32) { seen = append(seen, lane) })
		return seen, all
	}
	check := func(what string, want []uint32, lost bool) {
		t.Helper()
		if seen, all := gather(); !slices.Equal(seen, want) || all != lost {
			t.Errorf("%s: lanes %v, all %v; want %v, %v", what, seen, all, want, lost)
		}
	}
	check("nothing", nil, false)
	peer.Mark(7, Ask(w+1, 1))
	check("of another waiter", nil, false)
	for _, lane := range []uint32{4095, 0, 63, 64, 7} {
		peer.Mark(lane, Ask(w, 2)|1<<w)
	}
	check("five lanes", []uint32{0, 7, 63, 64, 4095}, false)
	check("again", nil, false)
	peer.Mark(5, Ask(w, 3))
	peer.Mark(5, Ask(w, 4))
	peer.Mark(6, Ask(w, 1))
	check("one that changed twice", []uint32{6}, true)
	check("after that", nil, false)

	// A bit that is seen before it is counted.
	h := peer.Head()
	h.mark[w][0].Store(h.mark[w][0].Load() ^ 1<<9)
	check("not counted", nil, false)
	peer.Mark(10, Ask(w, 1))
	check("two, one counted", []uint32{9, 10}, false)
	h.marked[w].count.Add(1)
	check("counted", nil, false)
	if word := Ask(w, 1<<48-1) | 0xff; Asked(word) != 1<<48-1 || Asked(0xff) != 0 {
		t.Errorf("word %#x: asked %d times", word, Asked(word))
	}
}
