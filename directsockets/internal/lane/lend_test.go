package lane

import (
	"math/rand/v2"
	"testing"
)

// Whatever comes and goes, no window belongs to a lane and a buffer, or to two buffers. The budget
// grants each byte once.
func TestLend(t *testing.T) {
	g := Geometry{Lanes: 32, Slots: 16, Windows: 24, Window: 16 << 10}
	a, b := memory(g), memory(g)
	for lane := range g.Lanes {
		// their readers take nothing, so a window stays with its lane
		b.Control(lane).Generation.Store(1)
	}
	var lends, refused, lanes int
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		granted, most := uint64(0), uint64(r.IntN(30))*uint64(g.Window)
		p := NewPool(a, b, g.Window/2, func(n uint64, _ bool) bool {
			if granted+n > most {
				return false
			}
			granted += n
			return true
		})
		var out [][]byte
		check := func() {
			t.Helper()
			owner := map[int]int{}
			for i, buffer := range out {
				at, ok := p.Lent(buffer)
				if !ok || at%uint64(g.Window) != 0 {
					t.Fatalf("seed %d: a buffer lies at %d, %v", seed, at, ok)
				}
				for n := int(at); n < int(at)+len(buffer); n += int(g.Window) {
					if was, taken := owner[n/int(g.Window)]; taken {
						t.Fatalf("seed %d: window %d of buffers %d and %d", seed, n/int(g.Window), was, i)
					}
					owner[n/int(g.Window)] = i
				}
			}
			sum := uint64(0)
			for n := range p.used {
				if _, taken := owner[n]; taken {
					t.Fatalf("seed %d: window %d is lent, and a lane's", seed, n)
				}
				sum += uint64(p.used[n].extent)
			}
			for n := len(p.used); n < int(g.Windows); n++ {
				if p.paid(n) {
					sum += uint64(g.Window)
				}
			}
			if sum > granted {
				t.Fatalf("seed %d: %d bytes may be touched, %d are granted", seed, sum, granted)
			}
		}
		for range 100 {
			switch k := r.IntN(4); {
			case k == 0:
				if n, _, _ := p.pin(uint32(r.IntN(int(g.Lanes))), -1); n >= 0 {
					lanes++
					if r.IntN(2) == 0 {
						p.grow(n)
					}
				}
			case k < 3:
				if buffer := p.Lend(1 + r.IntN(6*int(g.Window))); buffer != nil {
					out = append(out, buffer)
					lends++
				} else {
					refused++
				}
			case len(out) > 0:
				i := r.IntN(len(out))
				p.Return(out[i])
				if _, ok := p.Lent(out[i]); ok {
					t.Fatalf("seed %d: returned, and lent", seed)
				}
				out = append(out[:i], out[i+1:]...)
			}
			check()
		}
	}
	if lends == 0 || refused == 0 || lanes == 0 {
		t.Errorf("%d buffers, %d refused, %d windows for lanes: this says little", lends, refused, lanes)
	}
	p := pool(a, b)
	for _, n := range []int{0, -1, int(g.Windows*g.Window) + 1, 1<<63 - 1} {
		if p.Lend(n) != nil {
			t.Errorf("a buffer of %d bytes", n)
		}
	}
	if whole := p.Lend(int(g.Windows * g.Window)); whole == nil {
		t.Error("the whole file is not lent")
	} else if _, ok := p.Lent(whole[:len(whole):len(whole)]); !ok {
		t.Error("the whole is not found")
	} else if _, _, same := p.pin(0, -1); same {
		t.Error("a lane has one of them")
	}
}
