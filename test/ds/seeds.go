package ds

import (
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Long says whether runs of many minutes are wanted, which are for looking for
// faults by hand: EXN_LONG=1.
func Long() bool { return os.Getenv("EXN_LONG") == "1" }

// How many times more seeds are tried without -short, and in a long run; and how
// many if a seed takes milliseconds.
const more, most, moreCheap, mostCheap = 5, 20, 25, 250

// Seeds gives the seeds to try: n with -short, several times as many without and
// in a long run, or those that EXN_SEEDS names ("7" or "100-200"). They begin at
// EXN_FIRST_SEED, or else 1.
func Seeds(t testing.TB, n uint64) iter.Seq[uint64] { return seeds(t, n, more, most) }

// CheapSeeds are many more.
func CheapSeeds(t testing.TB, n uint64) iter.Seq[uint64] { return seeds(t, n, moreCheap, mostCheap) }

// SeedsNamed says whether EXN_SEEDS names the seeds, so that there are to be no others.
func SeedsNamed() bool { return os.Getenv("EXN_SEEDS") != "" }

func seeds(t testing.TB, n, more, most uint64) iter.Seq[uint64] {
	switch {
	case Long():
		n *= most
	case !testing.Short():
		n *= more
	}
	first := uint64(1)
	if text := os.Getenv("EXN_FIRST_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 32); err != nil {
			t.Fatalf("EXN_FIRST_SEED: %v", err)
		}
	}
	last := first + n - 1
	if text := os.Getenv("EXN_SEEDS"); SeedsNamed() {
		from, to, ranged := strings.Cut(text, "-")
		if !ranged {
			to = from
		}
		var errs [2]error
		first, errs[0] = strconv.ParseUint(from, 10, 64)
		last, errs[1] = strconv.ParseUint(to, 10, 64)
		if errs[0] != nil || errs[1] != nil {
			t.Fatalf("EXN_SEEDS=%q: want a number or FIRST-LAST", text)
		}
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed <= last && yield(seed); seed++ {
		}
	}
}
