package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

const testVPID VPID = 9

func newTestATU() *ATU { return NewATU(make([]uint64, ATUWords), 1) }

// A piece is what Translation.Next returns.
type piece struct{ offset, n uint64 }

func pieces(tr Translation) (ps []piece) {
	for {
		offset, n, ok := tr.Next()
		if !ok {
			return ps
		}
		ps = append(ps, piece{offset, n})
	}
}

func register(t *testing.T, u *ATU, mem uint32, size int, w WindowSpec) NLA {
	t.Helper()
	a, err := u.Register(mem, size, testVPID, w)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func lookup(t *testing.T, u *ATU, a NLA, n int) Translation {
	t.Helper()
	tr, fault := u.Table().Lookup(a, n, testVPID, 0)
	if fault != FaultNone {
		t.Fatalf("lookup of %d bytes at %v: %v", n, a, fault)
	}
	return tr
}

func TestATUContiguous(t *testing.T) { // ATU-1, ATU-3
	u := newTestATU()
	register(t, u, 1, 4096, WindowSpec{Length: 1})
	a := register(t, u, 77, 10000, WindowSpec{Offset: 123, Length: 5000})
	for _, c := range []struct{ at, n, place int }{{0, 5000, 123}, {0, 1, 123}, {4999, 1, 5122}, {17, 100, 140}} {
		tr := lookup(t, u, a+NLA(c.at), c.n)
		if got := pieces(tr); tr.Memory != 77 || len(got) != 1 || got[0] != (piece{uint64(c.place), uint64(c.n)}) {
			t.Errorf("[%d, +%d): memory %d, %v", c.at, c.n, tr.Memory, got)
		}
	}
}

// TestATUPageLists compares, for each page size, the translation with the
// byte-by-byte definition at the places where it can go wrong.
func TestATUPageLists(t *testing.T) { // ATU-1, ATU-3
	for _, ps := range []PageSize{Page4K, Page8K, Page64K, Page2M, Page1G} {
		page := ps.Bytes()
		if want := 4096 << ps; page != want {
			t.Fatalf("page size %d has %d bytes", ps, page)
		}
		list := []int{7, 0, 3, 4, 1}
		u := newTestATU()
		// entries 0, 1
		register(t, u, 1, 1<<40, WindowSpec{PageSize: ps, Length: 2 * page, Pages: []int{0, 1}})
		// first byte within the first page; bytes used of the last page
		first, last := 1000, 77
		length := 4*page - first + last
		a := register(t, u, 5, 8*page, WindowSpec{PageSize: ps, Offset: first, Length: length, Pages: list})
		place := func(i int) uint64 { return uint64(list[(first+i)/page]*page + (first+i)%page) }

		edges := []int{0, 1, page - first - 1, page - first, page - first + 1, 2*page - first, length - last - 1, length - last, length - 1}
		for _, i := range edges {
			for _, j := range append(edges, length) {
				if j <= i {
					continue
				}
				at := i
				for _, p := range pieces(lookup(t, u, a+NLA(i), j-i)) {
					if p.n == 0 || p.offset != place(at) || p.offset+p.n-1 != place(at+int(p.n)-1) {
						t.Fatalf("page %d: [%d, %d): piece %v at byte %d, want %d", page, i, j, p, at, place(at))
					}
					at += int(p.n)
				}
				if at != j {
					t.Fatalf("page %d: [%d, %d): pieces end at %d", page, i, j, at)
				}
			}
		}
	}
}

func TestATUFaults(t *testing.T) { // ATU-2
	u := newTestATU()
	a := register(t, u, 1, 1<<20, WindowSpec{Rights: RemoteRead, Offset: 4096, Length: 10000})
	w := register(t, u, 1, 1<<20, WindowSpec{Rights: RemoteWrite, Length: 10000, Offset: 5, Pages: []int{9, 8, 7}})
	for _, c := range []struct {
		name string
		a    NLA
		n    int
		vpid VPID
		need Rights
		want Fault
	}{
		{"read", a, 10000, testVPID, RemoteRead, FaultNone},
		{"write", w, 10000, testVPID, RemoteWrite, FaultNone},
		{"the owner", a, 10000, testVPID, 0, FaultNone},
		{"last byte", a + 9999, 1, testVPID, 0, FaultNone},
		{"write to a readable window", a, 1, testVPID, RemoteWrite, FaultRights},
		{"read of a writable window", w, 1, testVPID, RemoteRead, FaultRights},
		{"both of one", a, 1, testVPID, RemoteRead | RemoteWrite, FaultRights},
		{"foreign VPID", a, 1, testVPID + 1, RemoteRead, FaultVPID},
		{"no bytes", a, 0, testVPID, RemoteRead, FaultStale},
		{"a byte too long", a, 10001, testVPID, RemoteRead, FaultRange},
		{"over the end", a + 9000, 1001, testVPID, RemoteRead, FaultRange},
		{"at the end", a + 10000, 1, testVPID, RemoteRead, FaultRange},
		{"behind the end", a + 10007, 1, testVPID, RemoteRead, FaultRange},
		{"page list, at the end", w + 10000, 1, testVPID, RemoteWrite, FaultRange},
		// another window's address
		{"before the start", a - 1, 1, testVPID, RemoteRead, FaultStale},
		{"generation before", MakeNLA(a.Window(), a.Generation()-1, 0), 1, testVPID, RemoteRead, FaultStale},
		{"generation after", MakeNLA(a.Window(), a.Generation()+1, 0), 1, testVPID, RemoteRead, FaultStale},
		{"never registered", MakeNLA(500, 0, 0), 1, testVPID, 0, FaultStale},
		{"a register", a | 1<<63, 1, testVPID, 0, FaultStale},
	} {
		if _, fault := u.Table().Lookup(c.a, c.n, c.vpid, c.need); fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		}
	}
}

func TestATUStaleAfterInvalidate(t *testing.T) { // ATU-4
	u := newTestATU()
	spec := WindowSpec{Length: 100}
	a := register(t, u, 1, 100, spec)
	if !u.Invalidate(a) || u.Invalidate(a) {
		t.Error("Invalidate reports another validity than the window's")
	}
	if _, fault := u.Table().Lookup(a, 1, testVPID, 0); fault != FaultStale {
		t.Errorf("invalidated: %v", fault)
	}
	b := register(t, u, 1, 100, spec)
	if b.Window() == a.Window() {
		t.Error("a draining entry was given away")
	}
	u.Release(a)
	c := register(t, u, 1, 100, spec)
	if c.Window() != a.Window() || c == a {
		t.Errorf("%v is followed by %v", a, c)
	}
	if _, fault := u.Table().Lookup(a, 1, testVPID, 0); fault != FaultStale {
		t.Errorf("the predecessor's address: %v", fault)
	}
	if u.Release(c); u.Invalidate(a) {
		t.Error("a stale address invalidated its successor")
	}
	lookup(t, u, c, 100) // Release of a valid window does nothing
	u.Invalidate(c)
	u.Release(a) // stale: the entry drains for c
	if d := register(t, u, 1, 100, spec); d.Window() == c.Window() {
		t.Error("a stale address released its successor's entry")
	}
}

func TestATUGenerationWraps(t *testing.T) {
	u := newTestATU()
	seen := make(map[NLA]bool)
	for range 1 << 15 {
		a := register(t, u, 1, 1, WindowSpec{Length: 1})
		if seen[a] {
			t.Fatalf("%v comes twice within 32768 registrations", a)
		}
		seen[a] = true
		lookup(t, u, a, 1)
		u.Invalidate(a)
		u.Release(a)
	}
}

func TestATURegisterRefuses(t *testing.T) { // ATU-3
	const size = 10 * 4096
	for _, c := range []struct {
		name string
		w    WindowSpec
	}{
		{"empty", WindowSpec{}},
		{"negative length", WindowSpec{Length: -1}},
		{"negative offset", WindowSpec{Offset: -1, Length: 1}},
		{"too long", WindowSpec{Length: size + 1}},
		{"over the end", WindowSpec{Offset: size - 1, Length: 2}},
		{"offset behind the end", WindowSpec{Offset: size + 1, Length: 1}},
		{"longer than the offset field", WindowSpec{Length: MaxWindow + 1}},
		{"page size 2", WindowSpec{PageSize: 2, Length: 1}},
		{"page size 255", WindowSpec{PageSize: 255, Length: 1}},
		{"rights 4", WindowSpec{Rights: 4, Length: 1}},
		{"no pages", WindowSpec{Length: 1, Pages: []int{}}},
		{"too few pages", WindowSpec{Length: 4097, Pages: []int{1}}},
		{"too many pages", WindowSpec{Length: 4096, Pages: []int{1, 2}}},
		{"offset needs another page", WindowSpec{Offset: 1, Length: 4096, Pages: []int{1}}},
		{"offset not in the first page", WindowSpec{Offset: 4096, Length: 1, Pages: []int{1, 2}}},
		{"page before the memory", WindowSpec{Length: 1, Pages: []int{-1}}},
		{"page behind the memory", WindowSpec{Length: 1, Pages: []int{10}}},
		{"page larger than the memory", WindowSpec{PageSize: Page64K, Length: 1, Pages: []int{0}}},
	} {
		u := newTestATU()
		if a, err := u.Register(1, size, testVPID, c.w); !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v, %v", c.name, a, err)
		}
	}
}

func TestATUTableSpace(t *testing.T) { // ATU-1
	u := newTestATU()
	all := make([]NLA, Windows)
	for i := range all {
		all[i] = register(t, u, 1, 4096, WindowSpec{Length: 4096, Pages: []int{0}})
	}
	if _, err := u.Register(1, 4096, testVPID, WindowSpec{Length: 1}); !errors.Is(err, ErrMemory) {
		t.Errorf("window 1025: %v", err)
	}
	for _, a := range all {
		u.Invalidate(a)
		u.Release(a)
	}
	pages := make([]int, GATEntries)
	whole := WindowSpec{Length: GATEntries * 4096, Pages: pages}
	a := register(t, u, 1, 4096, whole) // so every entry came back
	if _, err := u.Register(1, 4096, testVPID, WindowSpec{Length: 1, Pages: []int{0}}); !errors.Is(err, ErrMemory) {
		t.Errorf("page entry 2^18+1: %v", err)
	}
	if got := pieces(lookup(t, u, a+NLA(whole.Length-1), 1)); got[0] != (piece{4095, 1}) {
		t.Errorf("last byte of the last page: %v", got)
	}
}

// TestATUHostileEntries: a table whose words a peer wrote can name any place,
// but arithmetic on it never wraps into one that passes a bounds check.
func TestATUHostileEntries(t *testing.T) { // ATU-2
	const valid = atuValid | 1 // generation 1, VPID 0, no rights, 4 KiB pages
	a := MakeNLA(0, 1, 4095)
	for _, c := range []struct {
		name  string
		entry [4]uint64 // words 0 to 3
		page  uint64    // what the last page entry says
		want  Fault
	}{
		{"offset that wraps", [4]uint64{valid | atuContiguous, 1 << 20, ^uint64(0) - 10}, 0, FaultRange},
		{"length that wraps", [4]uint64{valid | atuContiguous, ^uint64(0)}, 0, FaultRange},
		{"page size 2", [4]uint64{valid | 2<<18, 1 << 20}, 0, FaultRange},
		{"page size 31", [4]uint64{valid | 31<<18, 1 << 20}, 0, FaultRange},
		{"last page entry", [4]uint64{valid, 1 << 20, 0, GATEntries - 1}, 0, FaultNone},
		{"page entries over the end", [4]uint64{valid, 1 << 20, 4096, GATEntries - 1}, 0, FaultNone},
		{"page entries behind the end", [4]uint64{valid, 1 << 20, 0, GATEntries}, 0, FaultNone},
		{"page entries far behind the end", [4]uint64{valid, 1 << 20, 0, ^uint64(0)}, 0, FaultNone},
		{"page that wraps", [4]uint64{valid, 1 << 20, 0, GATEntries - 1}, 1 << 52, FaultNone},
		{"page that just fits", [4]uint64{valid, 1 << 20, 0, GATEntries - 1}, 1<<51 - 1, FaultNone},
		{"page that just does not", [4]uint64{valid, 1 << 20, 0, GATEntries - 1}, 1 << 51, FaultNone},
	} {
		table := make(ATUTable, ATUWords)
		copy(table, c.entry[:])
		table[len(table)-1] = c.page
		tr, fault := table.Lookup(a, 1, 0, 0)
		if fault != c.want {
			t.Errorf("%s: %v, want %v", c.name, fault, c.want)
		} else if fault == FaultNone {
			honest := c.entry[2] == 0 && c.entry[3] == GATEntries-1 && c.page < 1<<51
			for _, p := range pieces(tr) {
				if want := c.page<<12 + 4095; honest && p != (piece{want, 1}) || !honest && p != (piece{nowhere, 1}) {
					t.Errorf("%s: %#x", c.name, p)
				}
			}
		}
	}
}

// TestATUConcurrentLookup: a lookup sees one registration or a fault, never a
// mixture of two, and does so without locks.
func TestATUConcurrentLookup(t *testing.T) { // ATU-2, ATU-4
	u := newTestATU()
	// Window k of the sequence has generation k, lies in memory k at offset k
	// and has k+1 bytes.
	var current atomic.Uint64
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := NLA(current.Load())
				tr, fault := u.Table().Lookup(a, 1, testVPID, 0)
				if fault != FaultNone {
					continue
				}
				if offset, _, _ := tr.Next(); offset != uint64(tr.Memory) || tr.Memory != uint32(a.Generation()) {
					t.Errorf("window %d is in memory %d at the offset of %d", a.Generation(), tr.Memory, offset)
					return
				}
			}
		})
	}
	for k := 1; k <= 30000; k++ {
		a := register(t, u, uint32(k), 1<<20, WindowSpec{Offset: k, Length: k + 1})
		current.Store(uint64(a))
		u.Invalidate(a)
		u.Release(a)
	}
	close(stop)
	readers.Wait()
}

// FuzzATUHostileTable: words that a peer wrote give a fault or pieces that end
// and can be checked, never a panic.
func FuzzATUHostileTable(f *testing.F) { // ATU-2
	u := newTestATU()
	a, err := u.Register(3, 1<<30, testVPID, WindowSpec{Length: 9000, Offset: 5, Pages: []int{4, 5, 6}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(entryBytes(u.table, a), uint64(1<<51), uint64(a), 9000)
	f.Add(make([]byte, 40), uint64(0), uint64(0), 1)
	f.Add(binary.LittleEndian.AppendUint64(nil, atuValid|atuContiguous|1), uint64(0), uint64(MakeNLA(0, 1, 0)), 1)
	f.Fuzz(func(t *testing.T, entry []byte, page, at uint64, n int) {
		table := make(ATUTable, ATUWords)
		e := table[NLA(at).Window()*atuEntryWords:]
		for i := range min(len(entry)/8, atuEntryWords) {
			e[i] = binary.LittleEndian.Uint64(entry[8*i:])
		}
		if gat := e[3]; gat < GATEntries {
			table[atuBaseWords+gat] = page
		}
		table[len(table)-1] = page
		n = min(n, RMAMaxLength)
		tr, fault := table.Lookup(NLA(at), n, VPID(e[0]>>24&0x3ff), 0)
		if fault != FaultNone {
			return
		}
		left := uint64(n)
		for {
			offset, k, ok := tr.Next()
			if !ok {
				return
			}
			if k == 0 || k > left {
				t.Fatalf("a piece of %d of %d bytes", k, left)
			}
			if offset+k < offset {
				t.Fatalf("the piece [%#x, +%d) wraps around and would pass a bounds check", offset, k)
			}
			left -= k
		}
	})
}

func entryBytes(t ATUTable, a NLA) []byte {
	var b []byte
	for _, w := range t[a.Window()*atuEntryWords:][:atuEntryWords] {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// TestATURandomTables feeds Lookup and Next words without any sense, more of
// them than a fuzz smoke can.
func TestATURandomTables(t *testing.T) { // ATU-2
	rng := rand.New(rand.NewPCG(1, 2))
	table := make(ATUTable, ATUWords)
	for i := range table {
		table[i] = rng.Uint64() >> rng.IntN(64)
	}
	passed := 0
	for i := range 200_000 {
		w := i % Windows
		e := table[w*atuEntryWords:]
		for k := range 5 {
			e[k] = rng.Uint64() >> rng.IntN(64)
		}
		a := MakeNLA(w, uint16(e[0]), uint64(rng.Int64N(MaxWindow))>>rng.IntN(38))
		tr, fault := table.Lookup(a, 1+rng.IntN(1<<20), VPID(e[0]>>24&0x3ff), 0)
		if fault != FaultNone {
			continue
		}
		passed++
		for {
			if _, _, ok := tr.Next(); !ok {
				break
			}
		}
	}
	if passed == 0 {
		t.Error("no random entry was ever translated: the test is void")
	}
}

func ExampleATUTable_Lookup() {
	u := NewATU(make([]uint64, ATUWords), 1)
	a, _ := u.Register(1, 1<<20, 5, WindowSpec{Rights: RemoteRead, Offset: 100, Length: 6000, Pages: []int{12, 40}})
	tr, _ := u.Table().Lookup(a, 6000, 5, RemoteRead)
	for {
		offset, n, ok := tr.Next()
		if !ok {
			break
		}
		fmt.Println(offset, n)
	}
	// Output:
	// 49252 3996
	// 163840 2004
}
