package lane

import (
	"bytes"
	"testing"
)

// lanes makes both ends of the first n lanes of a pool.
func lanes(g Geometry, n uint32) (p *Pool, w []Writer, r []Reader) {
	a, b := memory(g), memory(g)
	p = pool(a, b)
	for lane := range n {
		b.Control(lane).Generation.Store(1)
		w, r = append(w, NewWriter(p, lane)), append(r, NewReader(b, a, lane))
	}
	return p, w, r
}

// Lanes share windows. What the reader has not taken stays, whichever lane needs room. A lane that
// has lost its window knows how little room the next one has.
func TestPool(t *testing.T) {
	g := Geometry{Lanes: 4, Slots: 64, Windows: 2, Window: 256 << 10}
	p, w, r := lanes(g, 3)
	fill := func(n int, v byte) (total int) {
		for piece := bytes.Repeat([]byte{v}, Piece); ; total += Piece {
			if w[n].Write(piece, 480) == 0 {
				return total
			}
		}
	}
	drain := func(n int, v byte, want int) {
		t.Helper()
		got := make([]byte, want)
		k, hostile := r[n].Read(got)
		if k != want || hostile || len(bytes.Trim(got, string(v))) != 0 {
			t.Fatalf("lane %d: %d bytes of %d, hostile %v, or not its own", n, k, want, hostile)
		}
		r[n].Give()
	}
	if all := fill(0, 'a'); all != 256<<10 {
		t.Fatalf("it has grown to %d bytes", all)
	}
	drain(0, 'a', 256<<10)
	for range 3 { // not so much that its writer looks at the credit
		w[0].Write(bytes.Repeat([]byte{'a'}, Piece), 480)
	}
	drain(0, 'a', 192<<10)
	p.afford = func(bytes uint64, growth bool) bool { return !growth }
	w[1].Write(make([]byte, 1000), 480) // in the window of lane 0
	drain(1, 0, 1000)
	w[2].Write(make([]byte, 1000), 480)
	if len(p.used) != 1 {
		t.Errorf("%d windows for lanes that are drained", len(p.used))
	}
	if all := fill(0, 'b'); all != 64<<10 {
		t.Errorf("%d bytes in a window that cannot grow", all)
	}
	if n := w[1].Write(make([]byte, 1000), 480); n != 0 || !w[1].Poor() {
		t.Errorf("%d bytes where there is no window", n)
	}
	if n := w[1].Write([]byte("by slots"), 0); n != 8 {
		t.Errorf("%d bytes by slots", n)
	}
	drain(0, 'b', 64<<10)
	drain(2, 0, 1000)
	if !w[1].Rich() {
		t.Error("no window, though both are drained")
	}
	w[2].Write(make([]byte, 1000), 480)
	p.Left(2) // closed by us, unread
	p.peer.Control(0).Generation.Store(0)
	if w[1].Rich(); p.used[w[2].window].holder != 2 {
		t.Error("what is unread was given away")
	}
	p.peer.Control(2).Generation.Store(0)
	if w[0].Rich(); !w[1].Rich() {
		t.Error("the window of a lane that both sides have left is lost")
	}
}

// A writer of much data goes round in windows. What it has left behind stays there until the reader
// has it. Withdrawn data stay until TCP has them, although the reader gives credit for them before.
func TestRound(t *testing.T) {
	const size = 16 << 10
	g := Geometry{Lanes: 2, Slots: 64, Windows: round * roundPart, Window: size}
	p, w, r := lanes(g, 2)
	turn := 0
	write := func(n int) int {
		turn++
		return w[n].Write(bytes.Repeat([]byte{byte(turn)}, size), 480)
	}
	stream := func(n int) {
		t.Helper()
		wrote := write(n)
		got := make([]byte, size)
		if k, _ := r[n].Read(got); k != wrote || bytes.Count(got, []byte{byte(turn)}) != wrote {
			t.Fatalf("lane %d: %d bytes of %d, or not its own", n, k, wrote)
		}
		r[n].Give()
	}
	went := map[int]bool{}
	for range 4 * round {
		stream(0)
		went[w[0].window] = true
	}
	if len(went) != round || len(p.used) != round {
		t.Errorf("it went by %d windows of %d, want %d", len(went), len(p.used), round)
	}

	first := turn + 1
	total := 0
	for n := write(0); n > 0; n = write(0) {
		total += n
	}
	if total != inAll*size {
		t.Errorf("%d bytes wait for the reader, want %d windows full", total, inAll)
	}
	done, _ := w[0].Bytes()
	if !w[0].Withdraw(done - uint64(total)) {
		t.Fatal("refused")
	}
	done, _ = w[0].Bytes()
	w[0].Post(Back, done, 0)
	if r[0].Skip() != Command {
		t.Fatal("BACK is not found")
	}
	r[0].Give()
	for range 4 * round {
		stream(1)
	}
	for i := range inAll {
		if again := w[0].Again(); len(again) != size || bytes.Count(again, []byte{byte(first + i)}) != size {
			t.Fatalf("what waits for TCP was overwritten in window %d", i)
		}
		w[0].Sent(size)
	}
	for n := range p.used {
		if !p.drained(&p.used[n]) {
			t.Errorf("window %d is lost", n)
		}
	}

	// After a close, what is left there belongs to the reader until its end has ended.
	for range inAll {
		write(1)
	}
	p.Left(1)
	unread := func() (n int) {
		for i := range p.used {
			if !p.drained(&p.used[i]) {
				n++
			}
		}
		return n
	}
	if n := unread(); n != inAll {
		t.Errorf("%d windows are not read yet, want %d", n, inAll)
	}
	if w[1] = NewWriter(p, 1); unread() != 0 {
		t.Errorf("a lane that begins anew has %d windows", unread())
	}
}

// A lane that goes on takes the window that was taken longest ago, and not the one taken last,
// whose lane will go on there.
func TestRoundLeavesOthersTheirs(t *testing.T) {
	const size = 16 << 10
	_, w, r := lanes(Geometry{Lanes: 2, Slots: 64, Windows: round * roundPart, Window: size}, 2)
	piece := make([]byte, size)
	write := func(n int) int {
		t.Helper()
		if k := w[n].Write(piece, 480); k != size {
			t.Fatalf("lane %d: %d bytes", n, k)
		}
		return w[n].window
	}
	read := func(n int) {
		r[n].Read(piece)
		r[n].Give()
	}
	for range 4 * round {
		write(0)
		read(0)
	}
	first := write(0) // which nobody reads
	its := write(1)
	read(1)
	if its != (first+1)%round {
		t.Errorf("window %d for another lane, behind %d", its, first)
	}
	if next := write(0); next != (its+1)%round {
		t.Errorf("from window %d to %d, where another lane has %d", first, next, its)
	}
}
