package ds

import (
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Long says whether long runs are wanted: go test without -short and with
// EXN_TEST_DS=1, or EXN_LONG=1. EXN_LONG=0 says no. Without EXN_TEST_DS=1 only the tests
// themselves are tried, for which a short run is enough.
func Long() bool {
	if v := os.Getenv("EXN_LONG"); v != "" {
		return v != "0"
	}
	return experimenting() && !testing.Short()
}

// longer is how many times more seeds a long run takes.
const longer = 20

// Seeds gives the seeds to try: 1 to n, twenty times as many in a long run, or
// those that EXN_SEEDS names ("7" or "100-200").
func Seeds(t testing.TB, n uint64) iter.Seq[uint64] {
	first, last := uint64(1), n
	if Long() {
		last *= longer
	}
	if text := os.Getenv("EXN_SEEDS"); text != "" {
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
