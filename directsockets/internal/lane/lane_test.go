package lane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	vector "exnet/test/ds/lane"
)

var small = Geometry{Lanes: 2, Slots: 16, Windows: 2, Window: 16 << 10}

// memory returns one that is not shared, for tests that damage it.
func memory(g Geometry) *Memory {
	return &Memory{Geometry: g, b: make([]byte, g.Size())} // large, so it is aligned
}

// pool returns one without a budget.
func pool(own, peer *Memory) *Pool {
	return NewPool(own, peer, 64<<10, func(uint64, bool) bool { return true })
}

// ends returns both ends of lane 0: b reads what a writes.
func ends(g Geometry) (w Writer, r Reader, a, b *Memory) {
	a, b = memory(g), memory(g)
	return NewWriter(pool(a, b), 0), NewReader(b, a, 0), a, b
}

func TestBytes(t *testing.T) {
	for _, veloMax := range []int{0, 120, 480, 4096} {
		w, r, _, _ := ends(small)
		var want, got []byte
		next := byte(0)
		for i := 0; i < 20000; i++ {
			b := make([]byte, 1+i*7919%[]int{10, 130, 700, 30000}[i%4])
			for k := range b {
				next = next*5 + 3
				b[k] = next
			}
			want = append(want, b...)
			for len(b) > 0 {
				n := w.Write(b, veloMax)
				b = b[n:]
				if n == 0 || i%3 == 0 {
					part := make([]byte, 1+i*31%20000)
					k, hostile := r.Read(part)
					if hostile || n == 0 && k == 0 {
						t.Fatalf("veloMax %d, write %d: %d bytes read, hostile %v", veloMax, i, k, hostile)
					}
					r.Give()
					got = append(got, part[:k]...)
				}
			}
			if len(want) > 1<<20 {
				break
			}
		}
		for r.Posted() {
			part := make([]byte, 5000)
			k, hostile := r.Read(part)
			if hostile {
				t.Fatal("hostile")
			}
			r.Give()
			got = append(got, part[:k]...)
		}
		if !bytes.Equal(got, want) || w.Unread() != 0 || w.Broken() {
			t.Errorf("veloMax %d: %d bytes of %d, %d unread, broken %v", veloMax, len(got), len(want), w.Unread(), w.Broken())
		}
	}
}

// The reader hands back exactly the bytes that it has not taken.
func TestWithdraw(t *testing.T) {
	for taken := range 900 {
		w, r, _, _ := ends(small)
		var all []byte
		for i := range 9 {
			b := bytes.Repeat([]byte{byte(i)}, 100)
			all = append(all, b...)
			w.Write(b, 50*(i%3))
		}
		part := make([]byte, taken)
		if n, _ := r.Read(part); n != taken {
			t.Fatal(n)
		}
		if taken%2 == 0 {
			r.Give()
		}
		if !w.Withdraw(uint64(taken)) {
			t.Fatalf("refused after %d", taken)
		}
		var again []byte
		for i := 0; w.HasAgain(); i++ {
			b := w.Again()
			n := min(len(b), 1+i%7)
			again = append(again, b[:n]...)
			w.Sent(n)
		}
		if !bytes.Equal(again, all[taken:]) {
			t.Fatalf("after %d bytes %d come again", taken, len(again))
		}
		m, _ := w.Bytes()
		if !w.Post(Back, m, 0) || r.Skip() != Command || r.Look() != Nothing {
			t.Fatalf("BACK after %d bytes is not found", taken)
		}
		r.Give()
		if w.Unread() != 0 || w.Broken() {
			t.Fatalf("%d unread, broken %v", w.Unread(), w.Broken())
		}
	}
}

// Impossible credit breaks the lane.
func TestCredit(t *testing.T) {
	for name, spoil := range map[string]func(c *Control){
		"slots above":  func(c *Control) { c.slotsTaken.Store(3) },
		"window above": func(c *Control) { c.windowTaken.Store(1001) },
		"far above":    func(c *Control) { c.slotsTaken.Store(1 << 63) },
	} {
		w, _, _, b := ends(small)
		w.Write(make([]byte, 1000), 480)
		w.Write(make([]byte, 1), 480)
		spoil(b.Control(0))
		if w.refresh(); !w.Broken() {
			t.Errorf("%s: accepted", name)
		}
	}
	w, r, _, b := ends(small)
	w.Write(make([]byte, 1000), 480)
	r.Read(make([]byte, 1000))
	r.Give()
	w.refresh()
	b.Control(0).windowTaken.Store(999)
	if w.refresh(); !w.Broken() {
		t.Error("credit taken back: accepted")
	}
}

const vectors = "../../testdata/lane/"

func littleEndian(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the vectors are of little-endian machines")
	}
}

func TestSizes(t *testing.T) {
	for _, l := range vector.Lines(t, vectors+"layout.txt") {
		if l[0] != "file" {
			continue
		}
		g := Geometry{uint32(vector.Number(t, l[1])), uint32(vector.Number(t, l[2])), uint32(vector.Number(t, l[3])), uint32(vector.Number(t, l[4]))}
		if !g.Valid() || g.Size() != vector.Number(t, l[5]) {
			t.Errorf("%+v: %d bytes, valid %v; the vectors have %s", g, g.Size(), g.Valid(), l[5])
		}
	}
}

// This package judges slots as the C library does.
func TestSlots(t *testing.T) {
	littleEndian(t)
	all := vector.Lines(t, vectors+"slots.txt")
	for i := 0; i+1 < len(all); i += 2 {
		answer, name, _ := strings.Cut(strings.Join(all[i+1], " "), " # ")
		if strings.HasPrefix(name, "a date") {
			answer = "is hostile" // for a reader that has not asked for dates, as this package
		}
		_, r, a, _ := ends(small)
		r.slot = vector.Number(t, all[i][1])
		copy(a.ring(0)[r.slot%16*slotSize:], vector.Unfold(t, all[i][2:]))
		got := "is hostile"
		switch look := r.Look(); look {
		case Nothing:
			got = "is nothing"
		case Command:
			tag, x, y := r.Take()
			got = fmt.Sprintf("is control %d %d %d", tag, x, y)
		case Data:
			s, _ := r.next()
			size := uint64(s.len())
			if s.tag() == RMAInfo || s.tag().advert() {
				_, size = getWords(payload(r.ring, r.slot))
			}
			n, hostile := r.Read(make([]byte, max(1, min(size, 1<<17)))) // and no further slot
			if _, window := r.Bytes(); hostile {
			} else if r.AtAdvert() {
				got = fmt.Sprintf("is data %d advert", r.Advert())
			} else if window > 0 {
				got = fmt.Sprintf("is data %d window", n)
			} else {
				got = fmt.Sprintf("is data %d slot", n)
			}
		}
		if got != answer {
			t.Errorf("%s: %q, the C library says %q", name, got, answer)
		}
	}
}

// Both ends of the scenes: our writer puts the same into its memory for a send, and our reader
// returns what the C library has put there, and the same credit.
func TestScenes(t *testing.T) {
	littleEndian(t)
	for _, name := range []string{"forward", "close", "abort", "leave", "withdraw"} {
		t.Run(name, func(t *testing.T) { scene(t, vector.Lines(t, vectors+name+".txt")) })
	}
}

func scene(t *testing.T, all [][]string) {
	files := map[string]*Memory{"a": memory(small), "b": memory(small)}   // from the vectors
	written := map[string]*Memory{"a": memory(small), "b": memory(small)} // by our writers
	other := map[string]string{"a": "b", "b": "a"}
	writers, readers := map[string]*Writer{}, map[string]*Reader{}
	for _, end := range []string{"a", "b"} {
		w := NewWriter(pool(written[end], files[other[end]]), 0)
		r := NewReader(memory(small), files[other[end]], 0)
		writers[end], readers[end] = &w, &r
	}
	sent, compared := 0, 0
	back := map[string]bool{} // this end's reader has set go_back and waits for BACK
	for i, l := range all {
		end := l[1]
		switch {
		case l[0] == "memory":
			at := vector.Number(t, l[2])
			copy(files[end].b[at:], vector.Unfold(t, l[3:]))
			const slots, window = headSize + 2*ctlSize, headSize + 2*ctlSize + 2*16*slotSize
			if at < slots || at >= window || (at-slots)%slotSize != 0 {
				continue // credit and windows are compared with their slots
			}
			// A slot: our writer posts the same one.
			k := writers[end].slot
			s := status(statusWord(files[end].ring(0), k).Load())
			if s.look() == Command {
				x, y := getWords(payload(files[end].ring(0), k))
				if s.tag() == Back {
					writers[end].bytes = x // where the reader stopped
				}
				writers[end].Post(s.tag(), x, y)
			}
		case l[0] == "call" && l[2] == "send":
			// Bytes that went by TCP come before it.
			b := vector.Unfold(t, l[6:])
			w := writers[end]
			if w.switched == 0 && w.slot == 0 {
				continue // not on the lane yet
			}
			tcp := false
			for k := i - 1; k >= 0 && all[k][0] != "call"; k-- {
				tcp = tcp || all[k][0] == "tcp" && all[k][1] == end
			}
			if tcp {
				continue
			}
			for len(b) > 0 {
				n := w.Write(b, 480)
				if n == 0 {
					t.Fatalf("line %d: no room", i+1)
				}
				b = b[n:]
				sent += n
			}
		case l[0] == "call" && l[2] == "recv":
			r := readers[end]
			if back[end] {
				back[end] = r.Skip() != Command // the rest comes by TCP
				continue
			}
			for r.Look() == Command {
				if tag, _, _ := r.Take(); tag == Back {
					break
				}
			}
			want := vector.Unfold(t, l[min(6, len(l)):])
			got := make([]byte, vector.Number(t, l[3]))
			n, hostile := r.Read(got)
			if hostile {
				t.Fatalf("line %d: hostile", i+1)
			}
			if n > 0 && !bytes.HasPrefix(want, got[:n]) {
				t.Errorf("line %d: %x, want %x", i+1, got[:n], want)
			}
			compared += n
		case l[0] == "call" && strings.HasPrefix(l[2], "withdraws"):
			back[end] = true
		}
		for _, end := range []string{"a", "b"} {
			for k := range uint64(16) {
				ours, theirs := statusWord(written[end].ring(0), k).Load(), statusWord(files[end].ring(0), k).Load()
				if l[0] == "call" && ours != theirs {
					t.Fatalf("line %d: slot %d of %s is %#x, of the C library %#x", i+1, k, end, ours, theirs)
				}
				if l[0] == "call" && !bytes.Equal(payload(written[end].ring(0), k)[:16], payload(files[end].ring(0), k)[:16]) {
					t.Fatalf("line %d: slot %d of %s has another payload", i+1, k, end)
				}
			}
		}
	}
	if back["a"] || back["b"] {
		t.Error("BACK was not found")
	}
	if sent == 0 || compared == 0 {
		t.Errorf("%d bytes sent, %d read: this says nothing", sent, compared)
	}
}

// MapPeer accepts no file that its owner, or anyone, could change under us.
func TestMapPeer(t *testing.T) {
	own, fd, err := New(small, false)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Unmap()
	defer unix.Close(fd)
	peer, err := MapPeer(fd, small, small.Size(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Unmap()
	own.Control(1).Consent.Store(7)
	if peer.Control(1).Consent.Load() != 7 || peer.Head().magic != Magic {
		t.Error("the peer sees something else")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Error("the file can be written")
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the file can be mapped for writing")
	}
	bare, err := unix.MemfdCreate("bare", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bare)
	if err := unix.Ftruncate(bare, int64(small.Size())); err != nil {
		t.Fatal(err)
	}
	bad := small
	bad.Slots = 17
	for name, f := range map[string]func() (*Memory, error){
		"no seals":                  func() (*Memory, error) { return MapPeer(bare, small, small.Size(), false) },
		"size":                      func() (*Memory, error) { return MapPeer(fd, small, small.Size()+4096, false) },
		"geometry":                  func() (*Memory, error) { return MapPeer(fd, bad, bad.Size(), false) },
		"too small":                 func() (*Memory, error) { g := small; g.Lanes = 4; return MapPeer(fd, g, g.Size(), false) },
		"of a stranger, with holes": func() (*Memory, error) { return MapPeer(fd, small, small.Size(), true) },
		"of a stranger, too large": func() (*Memory, error) {
			large := Geometry{64, 64, 32, 256 << 10}
			m, fd, err := New(large, true)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Unmap()
			defer unix.Close(fd)
			return MapPeer(fd, large, large.Size(), true)
		},
		"of huge pages": func() (*Memory, error) {
			g := Geometry{247, 64, 8, 256 << 10} // 4 MiB
			fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
			if err != nil {
				t.Skipf("no huge pages: %v", err)
			}
			defer unix.Close(fd)
			if err := errors.Join(unix.Ftruncate(fd, int64(g.Size())), seal(fd)); err != nil {
				t.Fatal(err)
			}
			return MapPeer(fd, g, g.Size(), false)
		},
		"no memory": func() (*Memory, error) { return MapPeer(int(os.Stdin.Fd()), small, small.Size(), false) },
	} {
		if m, err := f(); err == nil {
			m.Unmap()
			t.Errorf("%s: mapped", name)
		}
	}
}

func seal(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// What is made for a stranger is what is taken of one.
func TestMapStranger(t *testing.T) {
	g := Geometry{4096, 1024, 1024, 16 << 20}.Lessen()
	own, fd, err := New(g, true)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Unmap()
	defer unix.Close(fd)
	peer, err := MapPeer(fd, g, g.Size(), true)
	if err != nil {
		t.Fatal(err)
	}
	peer.Unmap()
}

// Whatever the writer's memory contains, there is no panic, no endless loop and no access outside
// of it, and credit only grows.
func FuzzReader(f *testing.F) {
	valid := makeStatus(1, 16, RMAInfo)
	f.Add(binary.NativeEndian.AppendUint64(nil, uint64(valid)), uint16(0), uint64(3), uint64(0))
	for _, tag := range []Tag{VELO, VELOLast, Shutdown, Switch, Back, Abort, ZCopy, Buffer} {
		f.Add(binary.NativeEndian.AppendUint64(nil, uint64(makeStatus(1, 16, tag))), uint16(100), uint64(1), uint64(16<<10))
	}
	f.Fuzz(func(t *testing.T, ring []byte, size uint16, a, b uint64) {
		_, r, writer, own := ends(small)
		copy(writer.ring(0), ring)
		putWords(payload(writer.ring(0), 0), a, b)
		credit := uint64(0)
		for range 64 {
			if r.Look() == Command {
				r.Take()
			}
			walk := r
			walk.Skip()
			n, hostile := r.Read(make([]byte, 1+int(size)))
			if n > 1+int(size) {
				t.Fatalf("%d bytes", n)
			}
			r.Give()
			if now := own.Control(0).slotsTaken.Load(); now < credit {
				t.Fatalf("credit falls from %d to %d", credit, now)
			} else {
				credit = now
			}
			if hostile {
				return
			}
			for r.AtAdvert() && n == 0 {
				if n, hostile = r.Pull(make([]byte, 1+int(size)), func(_ uint64, b []byte) int { return min(len(b), int(1+a%7)) }); hostile {
					return
				}
				r.Meet()
			}
			if n == 0 && r.Look() == Data {
				t.Fatal("data that cannot be read is not hostile")
			}
			copy(writer.ring(0)[int(a%16)*slotSize:], ring) // it changes meanwhile
		}
	})
}

// The writer changes a slot that was partly taken.
func TestSlotChangesWhileRead(t *testing.T) {
	for name, now := range map[string]status{
		"taken back": makeStatus(0, 100, VELO), "a control message": makeStatus(1, 16, Back),
		"shorter": makeStatus(1, 9, VELO), "a piece": makeStatus(1, 16, RMAInfo), "no tag": makeStatus(1, 100, 0),
	} {
		w, r, writer, _ := ends(small)
		w.Write(make([]byte, 100), 480)
		if n, hostile := r.Read(make([]byte, 10)); n != 10 || hostile {
			t.Fatalf("%d bytes, hostile %v", n, hostile)
		}
		statusWord(writer.ring(0), 0).Store(uint64(now))
		if n, hostile := r.Read(make([]byte, 100)); n != 0 || !hostile {
			t.Errorf("%s: %d bytes, hostile %v", name, n, hostile)
		}
	}
}

// Whatever credit a reader claims, our slots and window stay within bounds.
func FuzzWriter(f *testing.F) {
	f.Add(uint64(1), uint64(100), uint64(1), []byte{10, 200, 30})
	f.Add(uint64(1<<63), uint64(5), uint64(0), []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, slots, window, back uint64, sizes []byte) {
		w, _, _, reader := ends(small)
		c := reader.Control(0)
		for i, n := range sizes[:min(len(sizes), 100)] {
			w.Write(make([]byte, 1+int(n)*100), 480)
			c.slotsTaken.Store(slots + uint64(i))
			c.windowTaken.Store(window)
			w.Writable()
			if w.slot-w.slotsTaken > w.slots || w.window >= 0 && w.next-w.windowTaken > w.extent {
				t.Fatalf("%d slots, %d bytes of the window in use", w.slot-w.slotsTaken, w.next-w.windowTaken)
			}
		}
		total, _ := w.Bytes()
		if w.Withdraw(back) && back > total {
			t.Fatalf("%d bytes of %d withdrawn", back, total)
		}
		for w.HasAgain() {
			w.Sent(len(w.Again()))
		}
	})
}

func TestNoAllocation(t *testing.T) {
	w, r, _, _ := ends(Geometry{2, 64, 2, 256 << 10})
	b, to := make([]byte, 100<<10), make([]byte, 100<<10)
	for _, n := range []int{1, 480, len(b)} {
		if got := testing.AllocsPerRun(100, func() {
			for part := b[:n]; len(part) > 0; {
				part = part[w.Write(part, 480):]
				r.Read(to)
				r.Give()
			}
		}); got != 0 {
			t.Errorf("%d bytes: %v allocations", n, got)
		}
	}
}

// A reader that takes small parts rings once there is the room that the writer waits for, and not
// before. A reader that takes everything rings whatever the writer did meanwhile.
func TestAsk(t *testing.T) {
	for _, g := range []Geometry{small, {Lanes: 2, Slots: 64, Windows: 128, Window: 256 << 10}} {
		w, r, _, _ := ends(g)
		fill := func(i int) (all int) {
			size := 200_000
			for n := 1; n > 0; all += n {
				if i%4 > 0 {
					size = []int{1, 100, 700, 5000, 200_000}[(i+all)%5]
				}
				n = w.Write(make([]byte, size), 480)
			}
			return all
		}
		read := func(n int) {
			if _, hostile := r.Read(make([]byte, n)); hostile {
				t.Fatal("hostile")
			}
			r.Give()
		}
		waits, rounds := 0, 1000
		if testing.Short() {
			rounds = 150
		}
		for i := range rounds {
			if fill(i); w.Writable() {
				continue // the last bytes went by slots, and the rest needs a window
			}
			w.Ask()
			waits++
			for n := 1 + i*7919%[]int{10, 1000, 100_000}[i%3]; !r.Due(); {
				if w.Writable() || !r.Posted() {
					t.Fatalf("%+v, round %d: writable, or all is taken, and not due", g, i)
				}
				read(n)
			}
			if !w.Writable() {
				t.Fatalf("%+v, round %d: due, and not writable", g, i)
			}
			if i%3 == 0 {
				for r.Posted() {
					read(1 << 20)
				}
			} else if i%3 == 1 { // other threads write, too, while one sleeps
				fill(i + 1)
				for r.Posted() {
					read(1 << 20)
				}
				if !r.Due() {
					t.Fatalf("%+v, round %d: all is taken, and not due", g, i)
				}
			}
		}
		if waits < rounds*3/10 {
			t.Errorf("%+v: %d waits", g, waits)
		}
	}
	w, r, _, _ := ends(small)
	w.Ask()
	if !r.Due() {
		t.Error("nothing was posted, and something is due")
	}
	w.Advertise(1, 1)
	w.Ask()
	if !r.Due() {
		t.Error("an advert is out, of which whatever is taken is due")
	}
}
