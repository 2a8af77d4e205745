package tier

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// A Tier is one of the three commands.
type Tier string

// The values of EXN_TIER.
const (
	Quick Tier = "test"
	CI    Tier = "ci"
	All   Tier = "all"
)

// The names of what test/suite sets in the environment of tests.
const (
	Variable       = "EXN_TIER"
	SampleVariable = "EXN_SAMPLE"
)

// fixed is the sample of make test.
const fixed = "fixed"

// Now is the tier in which this test runs.
func Now() Tier {
	switch tier := Tier(os.Getenv(Variable)); {
	case tier != "":
		return tier
	case testing.Short():
		return Quick
	default:
		return All
	}
}

// Sample names the sample of this run. Only make test-ci asks the environment, or go test would
// keep no result of the others.
func Sample() string {
	if Now() != CI {
		return fixed
	}
	if name := os.Getenv(SampleVariable); name != "" {
		return name
	}
	return fixed
}

// Keep says whether a case of a test is played in this run. The test must be in the list.
func Keep(t testing.TB, name string) bool {
	t.Helper()
	return keep(t, name, false)
}

// Always is for a case that make test plays whatever its share is.
func Always(t testing.TB, name string) bool {
	t.Helper()
	return keep(t, name, true)
}

func keep(t testing.TB, name string, always bool) bool {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	row, listed := Rows[test]
	if !listed {
		t.Fatalf("test/tier/tiers.txt has no row for %s, which samples its cases", test)
	}
	kept := row.keeps(Now(), Sample(), test+" "+name, always)
	count(t, row.Cases, kept)
	return kept
}

// keeps is the rule: make test-ci plays of what make test leaves out.
func (r Row) keeps(tier Tier, sample, name string, always bool) bool {
	quick := always || r.Quick.has(fixed, name)
	switch tier {
	case Quick:
		return quick
	case CI:
		return !quick && r.CI.has(sample, name)
	default:
		return true
	}
}

// Whole says whether a listed test that make test leaves out as a whole is in the sample of
// make test-ci.
func (r Row) Whole(sample string) bool { return r.CI.has(sample, r.Test) }

// counted is how many cases of each kind a test has played, and of how many.
type counted struct{ kept, all int }

var (
	mu     sync.Mutex
	counts = make(map[testing.TB]map[string]*counted)
)

// count notes a case, for the line that the test logs when it ends.
func count(t testing.TB, cases string, kept bool) {
	mu.Lock()
	defer mu.Unlock()
	kinds := counts[t]
	if kinds == nil {
		kinds = make(map[string]*counted)
		counts[t] = kinds
		t.Cleanup(func() { tell(t) })
	}
	c := kinds[cases]
	if c == nil {
		c = new(counted)
		kinds[cases] = c
	}
	c.all++
	if kept {
		c.kept++
	}
}

// Said is how the line begins by which a test tells how many of its cases it played.
const Said = "tier: "

func tell(t testing.TB) {
	mu.Lock()
	defer mu.Unlock()
	for cases, c := range counts[t] {
		t.Logf("%s%s %d of %d", Said, cases, c.kept, c.all)
	}
	delete(counts, t)
}
