package workload

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/cmd/dsbench/report"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestPlanChecks(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{Group: Library, Runs: 1, Tests: []string{"ping"}}, ""},
		{Plan{Group: Programs, Runs: 1, Tests: []string{"redis-cpu", "nginx"}}, ""},
		{Plan{Group: Programs, Runs: 1, Tests: []string{"ping"}}, "no such test: \"ping\"; there are redis-get"},
		{Plan{Group: Library, Runs: 0}, "ask for 1 or more"},
	} {
		err := c.plan.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.plan, err, c.want)
		}
	}
	p := Plan{Group: Programs, Runs: 5, Tests: []string{"redis-get"}}
	if got := p.tests(); len(got) != 2 || got[1].name != "redis-get-one" {
		t.Errorf("redis-get selects %d tests", len(got))
	}
}

// Every row has a meaning, a target, and a way to be measured.
func TestTestsAreComplete(t *testing.T) {
	for _, g := range []Group{Library, Programs} {
		p := Plan{Group: g, Runs: 5}
		for _, test := range p.tests() {
			if test.name == "" || test.what == "" || test.target == nil || len(test.packages) == 0 || (test.run == nil) == (test.alone == nil) {
				t.Errorf("%s: incomplete: %+v", g, test)
			}
			if test.target.Of == report.RatioSurely && p.pairs(test) < 30 {
				t.Errorf("%s: %d pairs say little of the ratio", test.name, p.pairs(test))
			}
		}
	}
}

func TestNumber(t *testing.T) {
	if v, err := number([]byte("a\nRequests/sec:  12.5\n"), `Requests/sec:\s+([\d.]+)`); err != nil || v != 12.5 {
		t.Errorf("got %v, %v", v, err)
	}
	if _, err := number([]byte("nothing"), `Requests/sec:\s+([\d.]+)`); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("got %v", err)
	}
	if got := last([]byte(strings.Repeat("x", 1000) + "end\n")); len(got) != 299 || !strings.HasSuffix(got, "end") {
		t.Errorf("the end is %q", got)
	}
}

// machine is a plan on this machine, without any package: for programs that
// every one has, under a name that stands for the library.
func machine(t *testing.T) *bench {
	t.Helper()
	p := Plan{Group: Library, Library: "/no/such/library.so", Runs: 2, Quick: true, CPUs: [2]int{0, 0}}
	return &bench{Plan: p}
}

// Runs alternate, each in a directory of its own, and those with the library
// have it in their environment.
func TestCompareAlternates(t *testing.T) {
	b := machine(t)
	var order []bool
	var dirs []string
	test := &test{name: "x", run: func(ctx context.Context, a *arena, n int) (outcome, error) {
		order, dirs = append(order, a.client), append(dirs, a.dir)
		if a.client != a.server {
			t.Error("only one side has the library")
		}
		if err := os.WriteFile(filepath.Join(a.dir, "file"), []byte(strconv.Itoa(n)), 0o600); err != nil {
			return outcome{}, err
		}
		return outcome{value: float64(len(order)), rate: 5000}, nil
	}}
	row := report.Row{}
	if err := b.compare(t.Context(), test, &row); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []bool{false, true, false, true}) || !slices.Equal(row.ReferenceRuns, []float64{1, 3}) || !slices.Equal(row.Runs, []float64{2, 4}) {
		t.Errorf("order %v, runs %v and %v", order, row.ReferenceRuns, row.Runs)
	}
	for i, d := range dirs {
		if _, err := os.Stat(d); err == nil || slices.Contains(dirs[:i], d) {
			t.Errorf("directory %s is left behind or used twice", d)
		}
	}
	if row.Note != "" {
		t.Errorf("note %q", row.Note)
	}
}

// Counts are chosen such that runs take about the planned time, and a test that
// ought to upgrade says so when it does not.
func TestCompareCounts(t *testing.T) {
	b := machine(t)
	var counts []int
	test := &test{name: "x", counted: true, upgrades: true, run: func(_ context.Context, _ *arena, n int) (outcome, error) {
		counts = append(counts, n)
		return outcome{value: 1, rate: 100_000}, nil
	}}
	row := report.Row{}
	if err := b.compare(t.Context(), test, &row); err != nil {
		t.Fatal(err)
	}
	want := int(100_000 * b.seconds())
	if got := counts[len(counts)-1]; got != want {
		t.Errorf("a run has %d operations, want %d (%v)", got, want, counts)
	}
	if !strings.Contains(row.Note, "2 of 2 runs") {
		t.Errorf("note %q", row.Note)
	}
}
