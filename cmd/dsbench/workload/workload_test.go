package workload

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/test/built"
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
	if got := p.tests(); len(got) != 3 || got[1].name != "redis-get-one" {
		t.Errorf("redis-get selects %d tests", len(got))
	}
}

// Every row has a meaning, a target, and a way to be measured.
func TestTestsAreComplete(t *testing.T) {
	for _, g := range []Group{Library, Go, Programs} {
		p := Plan{Group: g, Runs: 5}
		for _, test := range p.tests() {
			if test.name == "" || test.what == "" || test.target == nil && !strings.HasPrefix(test.name, "mpi-") && !test.announces || g == Programs && len(test.packages) == 0 || (test.run == nil) == (test.alone == nil) {
				t.Errorf("%s: incomplete: %+v", g, test)
			}
			if test.target != nil && test.target.Of == report.RatioSurely && p.pairs(test) < 30 {
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

func TestCounted(t *testing.T) {
	const table = "% time     seconds  usecs/call     calls    errors syscall\n 60.00    0.000100           1       100        30 read\n100.00    0.000200           1       150        30 total\n"
	const none = "100.00    0.000200           1       150           total\n"
	for _, c := range []struct {
		table     string
		succeeded bool
		want      float64
	}{{table, false, 150}, {table, true, 120}, {none, false, 150}, {none, true, 150}} {
		if got, err := counted([]byte(c.table), c.succeeded); err != nil || got != c.want {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	if n, err := counted([]byte("strace: killed\n"), false); err == nil {
		t.Errorf("nothing counts %v", n)
	}
}

// machine is a plan on this machine, without any package: for programs that
// every one has, under a name that stands for the library.
func machine(t *testing.T) *bench {
	t.Helper()
	p := Plan{Group: Library, Library: "/no/such/library.so", Runs: 2, Quick: true, CPUs: [2]int{0, 0}}
	return &bench{Plan: p, report: &report.Report{}, dir: t.TempDir()}
}

// Runs of Go programs need no packages, and those with the library go by lanes.
func TestGoRuns(t *testing.T) {
	p := Plan{Group: Go, GoPump: built.Path(t, "gopump"), Runs: 1, Quick: true}
	p.Tests = []string{"stream", "ping-polling", "requests-cpu"}
	var r report.Report
	if err := p.Run(t.Context(), &r, nil); err != nil || len(r.Failures) > 0 || len(r.Rows) != 4 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, row := range r.Rows {
		if row.Path != "go" || len(row.Runs) != 1 || row.Runs[0] <= 0 || len(row.ReferenceRuns) != 1 || row.ReferenceRuns[0] <= 0 {
			t.Errorf("%+v", row)
		}
	}
}

// What is copied once is compared with lanes that do without, in either language. (Whether a look at the
// sockets comes while bytes are copied, in so short a run, is up to the machine.)
func TestZCopyRuns(t *testing.T) {
	for _, p := range []Plan{
		{Group: Go, GoPump: built.Path(t, "gopump")},
		{Group: Library, Library: built.Path(t, "libextds.so"), Pump: built.Path(t, "pump")},
	} {
		p.Tests, p.Runs, p.Quick = []string{"zcopy-hot-cpu", "buffer-hot-cpu"}, 1, true
		var r report.Report
		if err := p.Run(t.Context(), &r, nil); err != nil || len(r.Failures) > 0 || len(r.Rows) != 4 {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, row := range r.Rows {
			if row.Runs[0] <= 0 || row.ReferenceRuns[0] <= 0 || !strings.Contains(row.Against, "BCopy") {
				t.Errorf("%+v", row)
			}
		}
	}
}

// both are the ways of the library's own tests.
var both = []way{{}, {name: preload, library: true}}

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
	rows, err := b.compare(t.Context(), test, both)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	row := rows[0]
	order = slices.Compact(order) // a noisy run is made again
	if !slices.Equal(order, []bool{false, true, false, true}) || len(row.ReferenceRuns) != 2 || len(row.Runs) != 2 || !slices.IsSorted([]float64{
		row.ReferenceRuns[0], row.Runs[0], row.ReferenceRuns[1], row.Runs[1]}) {
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
	test := &test{name: "x", counted: true, upgrades: true, longer: 2, run: func(_ context.Context, _ *arena, n int) (outcome, error) {
		counts = append(counts, n)
		return outcome{value: 1, rate: 100_000}, nil
	}}
	rows, err := b.compare(t.Context(), test, both)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	row := rows[0]
	want := int(100_000 * 2 * b.seconds())
	if got := counts[len(counts)-1]; got != want {
		t.Errorf("a run has %d operations, want %d (%v)", got, want, counts)
	}
	if !strings.Contains(row.Note, "2 of 2 runs") {
		t.Errorf("note %q", row.Note)
	}
}

// Where a server keeps more with each operation, the fast side has as many to do as the reference.
func TestCompareStores(t *testing.T) {
	b := machine(t)
	for stores, factor := range map[bool]int{false: 5, true: 1} {
		rates := []float64{100_000, 500_000}
		var counts [2]int
		run := func(ctx context.Context, a *arena, n int) (outcome, error) {
			way := 0
			if a.client {
				way = 1
			}
			counts[way] = n
			return outcome{value: 1, rate: rates[way]}, nil
		}
		if _, err := b.compare(t.Context(), &test{name: "x", counted: true, stores: stores, run: run}, both); err != nil {
			t.Fatal(err)
		}
		if counts[1] != factor*counts[0] {
			t.Errorf("stores %v: the last runs had %d operations, want a factor of %d", stores, counts, factor)
		}
	}
}

// Other users' programs may enter the directories of a run, which go with it.
func TestDirectoryIsTheProgramsOwn(t *testing.T) {
	a, err := (&bench{}).newArena(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range a.made {
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if owner := st.Sys().(*syscall.Stat_t).Uid; os.Geteuid() == 0 && owner != nobody || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v of user %d", dir, st.Mode(), owner)
		}
	}
	if a.close(); !slices.ContainsFunc(a.made, func(dir string) bool { _, err := os.Stat(dir); return err == nil }) {
		return
	}
	t.Errorf("one of %v is left", a.made)
}

// A program in a limited cgroup gets no more than its quota, here a fiftieth of a CPU, and the cgroup is gone afterwards.
func TestCgroupLimits(t *testing.T) {
	c, err := newCgroup(period / 50)
	if err != nil {
		t.Skip(err)
	}
	var gone bool
	defer func() {
		if !gone {
			c.close()
		}
	}()
	// Two busy processes, for as long as it takes to see that they may not be.
	busy := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && (while :; do :; done & while :; do :; done)`, c.dir)
	busy.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	for times := 0.0; times == 0 && err == nil; times, _, err = c.throttled() {
		time.Sleep(10 * time.Millisecond)
	}
	syscall.Kill(-busy.Process.Pid, syscall.SIGKILL)
	busy.Wait() // it was killed
	if err != nil {
		t.Fatal(err)
	}
	for err = c.close(); errors.Is(err, syscall.EBUSY); err = c.close() { // until the kernel has let go of the processes
		time.Sleep(time.Millisecond)
	}
	gone = true
	if _, still := os.Stat(c.dir); err != nil || still == nil {
		t.Errorf("%s is left behind: %v", c.dir, err)
	}
}

func TestThrottledIsRead(t *testing.T) {
	times, periods, err := parseThrottled([]byte("usage_usec 12\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5\n"))
	if err != nil || times != 3 || periods != 10 {
		t.Errorf("%v of %v, %v", times, periods, err)
	}
	if _, _, err := parseThrottled([]byte("usage_usec 12\n")); err == nil {
		t.Error("a cgroup without a quota counts nothing")
	}
}

// A way abroad that fails is left out and said; the others go on.
func TestCompareWithoutAbroad(t *testing.T) {
	b := machine(t)
	test := &test{name: "x", abroad: true, run: func(_ context.Context, a *arena, _ int) (outcome, error) {
		if a.abroad != nil {
			if a.host != "10.87.4.2" {
				t.Errorf("the server listens on %s", a.host)
			}
			return outcome{}, errors.New("no way")
		}
		return outcome{value: 1}, nil
	}}
	far := &path.Path{}
	far.Ends[1].Addr = netip.MustParseAddr("10.87.4.2")
	rows, err := b.compare(t.Context(), test, append(both, way{name: exn0, path: far}))
	if err != nil || len(rows) != 2 || len(rows[0].Runs) != 2 || len(rows[1].Runs) != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
	if f := b.report.Failures; len(f) != 1 || f[0].Test != "x exn0" || f[0].Error != "no way" {
		t.Errorf("%+v", f)
	}
	if names := (Plan{}).over(*test); !slices.Equal(names, []string{"", preload, exn0}) {
		t.Errorf("over %q", names)
	}
	if names := (Plan{Ways: []string{preload}}).over(*test); !slices.Equal(names, []string{"", preload}) {
		t.Errorf("over %q", names)
	}
	if names := (Plan{Ways: []string{bridgePreload}}).over(*test); !slices.Equal(names, []string{"", bridgePreload}) {
		t.Errorf("over %q", names)
	}
}

// A run of a millisecond has a rate, too.
func TestRedisRate(t *testing.T) {
	const head = `"test","rps","avg_latency_ms"` + "\n"
	for text, want := range map[string]float64{head + `"GET","28409.09","1.070"`: 28409.09, head + `"GET","inf","0.347"`: 1e6, head: 0} {
		if rate, err := redisRate([]byte(text), 1000); rate != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, rate, err)
		}
	}
}

// Who needs a port for each operation does no more of them than there are ports.
func TestMost(t *testing.T) {
	b := machine(t)
	fast := func(context.Context, *arena, int) (outcome, error) { return outcome{rate: 1e9}, nil }
	if n, err := b.count(t.Context(), &test{name: "x", most: 2000, run: fast}, way{}); n != 2000 || err != nil {
		t.Errorf("%d operations, %v", n, err)
	}
}
