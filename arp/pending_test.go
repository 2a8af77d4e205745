package arp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestPendingBounds(t *testing.T) {
	var dropped []int
	var why []PendingDrop
	p := NewPending(func(x int, d PendingDrop) { dropped, why = append(dropped, x), append(why, d) })
	for i := range 70 {
		if first := p.Add(addr(1), i, 0); first != (i == 0) {
			t.Errorf("packet %d: first = %v", i, first)
		}
	}
	if !slices.Equal(dropped, []int{0, 1, 2, 3, 4, 5}) || why[0] != DropFull {
		t.Errorf("dropped %v for %v", dropped, why)
	}
	if got := p.Resolve(addr(1)); len(got) != 64 || got[0] != 6 || got[63] != 69 {
		t.Errorf("resolved %v", got)
	}
	for i := range PendingNeighbours + 1 {
		p.Add(addr(i), i, 0)
	}
	if p.Len() != PendingNeighbours || why[len(why)-1] != DropNeighbours {
		t.Errorf("%d neighbours, last drop %v", p.Len(), why[len(why)-1])
	}
	p.Expire(PendingWait - 1)
	if p.Len() != PendingNeighbours {
		t.Error("expired early")
	}
	p.Expire(PendingWait)
	if _, ok := p.Next(); p.Len() != 0 || ok || why[len(why)-1] != DropTimeout {
		t.Errorf("%d neighbours left", p.Len())
	}
	p.Add(addr(1), 7, 0)
	p.Fail(addr(1))
	if why[len(why)-1] != DropUnreachable || dropped[len(dropped)-1] != 7 {
		t.Errorf("failed: %v", why[len(why)-1])
	}
}

// Each packet leaves exactly once, in the order of its neighbour.
func TestPendingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left := map[int]bool{}
		last := map[netip.Addr]int{}
		leave := func(x int) {
			if left[x] {
				t.Fatalf("packet %d left twice", x)
			}
			left[x] = true
		}
		p := NewPending(func(x int, _ PendingDrop) { leave(x) })
		var now time.Duration
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				a := addr(rapid.IntRange(0, 3).Draw(t, "to"))
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					n++
					p.Add(a, n, now)
				}
			},
			"resolve": func(t *rapid.T) {
				a := addr(rapid.IntRange(0, 3).Draw(t, "which"))
				for _, x := range p.Resolve(a) {
					if x <= last[a] {
						t.Fatalf("%d after %d", x, last[a])
					}
					last[a] = x
					leave(x)
				}
			},
			"fail": func(t *rapid.T) { p.Fail(addr(rapid.IntRange(0, 3).Draw(t, "which"))) },
			"expire": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond
				p.Expire(now)
				if at, ok := p.Next(); ok && at <= now {
					t.Fatalf("due at %v, still there at %v", at, now)
				}
			},
		})
		for i := range 4 {
			p.Fail(addr(i))
		}
		if p.Len() != 0 || p.oldest != nil || p.newest != nil || len(left) != n {
			t.Fatalf("%d of %d packets left, %d queues", len(left), n, p.Len())
		}
	})
}
