package exn0

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/traffic"
	"exnet/test/leak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measure.PeerCommand {
		cpu := measure.AnyCPU
		if len(os.Args) > 3 {
			cpu, _ = strconv.Atoi(os.Args[3]) // we wrote it ourselves
		}
		if err := measure.Serve(measure.Role(os.Args[2]), cpu, traffic.Contenders()); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == path.RelayCommand {
		path.ServeRelay()
	}
	leak.Main(m)
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{Runs: 0}, "ask for 1 or more"},
		{Plan{Runs: 1, Tests: []string{"tcp-9"}}, "no such test: \"tcp-9\"; there are tcp-1"},
	} {
		if err := c.plan.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.plan, err)
		}
	}
	if err := (Plan{Runs: 1, Tests: []string{"tcp", "idle"}}).Check(); err != nil {
		t.Error(err)
	}
}

// Every point can be measured: its load is there and goes over its paths, and
// those can be built.
func TestPointsAreComplete(t *testing.T) {
	p := Plan{Runs: 1}
	keys := map[[3]string]bool{}
	for _, pt := range points() {
		k := [3]string{pt.test, pt.subject, strconv.Itoa(pt.size)}
		if keys[k] {
			t.Errorf("%s: two rows with the same test, path and size", pt.test)
		}
		keys[k] = true
		if pt.load == "" {
			continue
		}
		loads := p.loads()
		i := slices.IndexFunc(loads, func(l load) bool { return l.name == pt.load })
		if i < 0 || !slices.Contains(loads[i].over, pt.subject) || pt.reference != "" && !slices.Contains(loads[i].over, pt.reference) {
			t.Errorf("%s: no load %s over %s and %s", pt.test, pt.load, pt.subject, pt.reference)
		}
		if builds[pt.subject] == nil || pt.reference != "" && (builds[pt.reference] == nil || against[pt.reference] == "") {
			t.Errorf("%s: %s or %s cannot be built or explained", pt.test, pt.subject, pt.reference)
		}
	}
}

// What is asked for is measured over the paths it needs and no others, and the
// probe always is.
func TestNeeded(t *testing.T) {
	got := ""
	for _, l := range (Plan{Runs: 1, Tests: []string{"udp-gso"}}).needed() {
		got += l.name + ":" + strings.Join(l.over, ",") + " "
	}
	if want := "tcp-1:relay,veth udp-gso:veth,exn0-mtu1500 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// pretend measures other paths under the names of exn0 for the test.
func pretend(t *testing.T, make func() (*path.Path, error)) {
	p, err := make()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs root to make network namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	for _, name := range []string{whole, small} {
		was := builds[name]
		builds[name] = func(Plan) (*path.Path, error) { return make() }
		t.Cleanup(func() { builds[name] = was })
	}
}

// twoCPUs are those that round trips are measured on.
func twoCPUs(t *testing.T) [2]int {
	t.Helper()
	cpus, err := measure.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs, one for each end of a round trip")
	}
	return [2]int{cpus[0], cpus[1]}
}

// Each generator gives its rows.
func TestRun(t *testing.T) {
	pretend(t, func() (*path.Path, error) { return path.Veth(1500) })
	p := Plan{Runs: 1, Quick: true, CPUs: twoCPUs(t), Tests: []string{"tcp-bidir", "rtt-p50", "udp-gso", "first-packet"}}
	var r *report.Report
	for range 5 {
		r = &report.Report{}
		if err := p.Run(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		if !stoodStill(r) {
			break
		}
	}
	if len(r.Failures) > 0 || r.Partial {
		t.Fatalf("failures: %+v", r.Failures)
	}
	if len(r.Rows) != len(p.points()) {
		t.Fatalf("%d rows of %d", len(r.Rows), len(p.points()))
	}
	for _, row := range r.Rows {
		if len(row.Runs) != 1 || row.Value <= 0 || *row.Reference <= 0 {
			t.Errorf("%s: %v against %v", row.Test, row.Runs, row.ReferenceRuns)
		}
	}
}

// stoodStill says whether an end may have had no CPU for as long as a quick run counts.
func stoodStill(r *report.Report) bool {
	return slices.ContainsFunc(r.Failures, func(f report.Failure) bool { return strings.Contains(f.Error, "nothing arrived") }) ||
		slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Value <= 0 || *row.Reference <= 0 })
}

// A path whose daemon dies fails its load, says why, and stops no other.
func TestDeathOfADaemon(t *testing.T) {
	var pids []int
	pretend(t, func() (*path.Path, error) {
		p, err := path.Relay(65535)
		if err == nil {
			pids = p.Daemons
		}
		return p, err
	})
	p := Plan{Runs: 1, Quick: true, CPUs: twoCPUs(t), Tests: []string{"tcp-1-mtu1500", "rtt-p50-relay"}}
	b := &bench{Plan: p, runs: map[key][]outcome{}, disturbed: map[string]int{}, failed: map[string]error{}}
	defer b.close()
	if err := b.build(); err != nil {
		t.Fatal(err)
	}
	pids = b.paths[small].Daemons
	syscall.Kill(pids[0], syscall.SIGKILL)
	for b.paths[small].Broken() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := b.rounds(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.failed["tcp-1500"]; err == nil || !strings.Contains(err.Error(), "killed") || len(b.failed) != 1 {
		t.Errorf("failed: %v", b.failed)
	}
	if len(b.runs[key{"rtt", whole}]) != 1 {
		t.Error("the load after it gave nothing")
	}
}

// An interruption ends a run at once, with what there is.
func TestInterrupt(t *testing.T) {
	pretend(t, func() (*path.Path, error) { return path.Veth(1500) })
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	time.AfterFunc(500*time.Millisecond, func() { cancel(reason) })
	r := &report.Report{}
	p := Plan{Runs: 1000, Quick: true, Tests: []string{"tcp-1"}}
	if err := p.Run(ctx, r, nil); !errors.Is(err, reason) || !r.Partial {
		t.Errorf("%v, partial %v", err, r.Partial)
	}
}
