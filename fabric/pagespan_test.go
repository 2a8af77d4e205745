package fabric

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPageSpansAgainstBitmap compares the allocator with the obvious one: a
// map of free entries.
func TestPageSpansAgainstBitmap(t *testing.T) { // ATU-1
	const total = 64
	rapid.Check(t, func(t *rapid.T) {
		free := pageSpans{{0, total}}
		var used [total]bool
		var taken []pageSpan
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(1, 20).Draw(t, "n")
				s, ok := free.take(n)
				if want, any := firstRun(used[:], n); ok != any || ok && (s.start != want || s.n != n) {
					t.Fatalf("take %d: %v, %t; the first run is at %d, %t", n, s, ok, want, any)
				}
				if ok {
					taken = append(taken, s)
					mark(used[:], s, true)
				}
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing taken")
				}
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "i")
				free.give(taken[i])
				mark(used[:], taken[i], false)
				taken = append(taken[:i], taken[i+1:]...)
			},
			"give nothing": func(*rapid.T) { free.give(pageSpan{}) },
			"": func(t *rapid.T) {
				end := -1
				left := used
				for _, s := range free {
					if s.n < 1 || s.start <= end {
						t.Fatalf("runs touch, overlap or are out of order: %v", free)
					}
					end = s.start + s.n
					for i := s.start; i < end; i++ {
						if left[i] {
							t.Fatalf("entry %d is free twice or free and taken", i)
						}
						left[i] = true
					}
				}
				for i := range left {
					if !left[i] {
						t.Fatalf("entry %d is neither free nor taken", i)
					}
				}
			},
		})
	})
}

func mark(used []bool, s pageSpan, v bool) {
	for i := range s.n {
		used[s.start+i] = v
	}
}

func firstRun(used []bool, n int) (int, bool) {
	run := 0
	for i, u := range used {
		if run++; u {
			run = 0
		}
		if run == n {
			return i - n + 1, true
		}
	}
	return 0, false
}
