package ds

import (
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"

	"exnet/test/tier"
)

// Long says whether runs of many minutes are wanted, which are for looking for
// faults by hand: EXN_LONG=1.
func Long() bool { return os.Getenv("EXN_LONG") == "1" }

// How many times more seeds there are than make test plays, in make test-all and in a long run;
// and how many if a seed takes milliseconds.
const more, most, moreCheap, mostCheap = 5, 20, 25, 250

// Seeds gives the seeds to try: n in make test, several times as many in make test-all and in a
// long run, a sample of these in make test-ci; or those that EXN_SEEDS names ("7" or "100-200").
// They begin at EXN_FIRST_SEED, or else 1.
func Seeds(t testing.TB, n uint64) iter.Seq[uint64] { return seeds(t, n, more, most) }

// CheapSeeds are many more.
func CheapSeeds(t testing.TB, n uint64) iter.Seq[uint64] { return seeds(t, n, moreCheap, mostCheap) }

// SeedsNamed says whether EXN_SEEDS names the seeds, so that there are to be no others.
func SeedsNamed() bool { return os.Getenv("EXN_SEEDS") != "" }

// Sampled says whether only a sample of the seeds is played, or seeds by name. Sums over all of
// them say little then.
func Sampled() bool { return SeedsNamed() || tier.Now() == tier.CI }

func seeds(t testing.TB, n, more, most uint64) iter.Seq[uint64] {
	t.Helper()
	all := n * more
	if Long() {
		all = n * most
	}
	first := uint64(1)
	if text := os.Getenv("EXN_FIRST_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 32); err != nil {
			t.Fatalf("EXN_FIRST_SEED: %v", err)
		}
	}
	if SeedsNamed() {
		return named(t)
	}
	return func(yield func(uint64) bool) {
		for i := range all {
			seed := first + i
			kept := tier.Keep
			if i < n {
				kept = tier.Always
			}
			if kept(t, t.Name()+" seed "+strconv.FormatUint(seed, 10)) && !yield(seed) {
				return
			}
		}
	}
}

// named gives the seeds that EXN_SEEDS names.
func named(t testing.TB) iter.Seq[uint64] {
	t.Helper()
	text := os.Getenv("EXN_SEEDS")
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 64)
	last, err2 := strconv.ParseUint(to, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("EXN_SEEDS=%q: want a number or FIRST-LAST", text)
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed <= last && yield(seed); seed++ {
		}
	}
}
