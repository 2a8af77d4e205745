package rawfabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exnet/cmd/dsbench/bare"
	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
	"exnet/fabric"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measure.PeerCommand {
		all := bare.Contenders()
		for path, attach := range map[string]Attach{
			"shm":    attachSHM,
			"slowed": twist(slowed),
			"wrong":  twist(wrongMessages),
			"dying":  twist(dying),
			"none":   func(string) (fabric.Node, error) { return nil, errors.New("no such backend") },
		} {
			maps.Copy(all, Contenders(path, attach))
		}
		cpu, _ := strconv.Atoi(os.Args[3]) // we wrote it ourselves
		if err := measure.Serve(measure.Role(os.Args[2]), cpu, all); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the peers need not linger under -race
	goleak.VerifyTestMain(m)
}

// measured runs a plan in an empty temporary directory and checks that it is
// empty afterwards.
func measured(t *testing.T, ctx context.Context, path string, tests ...string) (*report.Report, error) {
	t.Helper()
	cpus, err := measure.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p := Plan{Path: path, Tests: tests, Runs: 1, Quick: true, Lead: cpus[0], Follow: cpus[len(cpus)-1]}
	r := &report.Report{}
	err = p.Run(ctx, r, nil)
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Error(err)
	}
	if err := report.Validate(b.Bytes()); err != nil {
		t.Error(err)
	}
	return r, err
}

// The tests chosen here sleep while they wait, which passes quickly also on a
// busy machine; polling halves need two idle CPUs for that.
func TestPlanMeasures(t *testing.T) {
	r, err := measured(t, t.Context(), "shm", "wake-paced", "memory", "alloc-wake")
	if err != nil || r.Partial {
		t.Fatalf("%v, failures %+v", err, r.Failures)
	}
	var got []string
	for _, row := range r.Rows {
		got = append(got, row.Test)
		if row.Path != "shm" || row.What == "" || row.Target == nil && row.Test != "wake-paced" {
			t.Errorf("incomplete row %+v", row)
		}
		if strings.HasPrefix(row.Test, "memory") && row.Value < 4096 {
			t.Errorf("%s: %v bytes for something that was used", row.Test, row.Value)
		}
	}
	want := []string{"wake-paced", "memory-new", "memory-worn", "memory-window", "alloc-wake"}
	if !slices.Equal(got, want) {
		t.Errorf("rows %v instead of %v", got, want)
	}
}

// A window of 64 MiB costs what was touched, and all of that.
func TestWindowIsCountedExactly(t *testing.T) {
	r, err := measured(t, t.Context(), "shm", "memory-window")
	if err != nil || len(r.Rows) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if v := r.Rows[0].Value; v < 1<<20 || v > 2<<20 {
		t.Errorf("%v bytes after a PUT of 1 MiB", v)
	}
}

// A slowed path must be reported slower: by a factor of thousands, so that no
// load on the machine hides it.
func TestSlowedPathIsReportedSlower(t *testing.T) {
	r, err := measured(t, t.Context(), "slowed", "velo-latency")
	if err != nil || len(r.Rows) != 2 {
		t.Fatalf("%v, %+v", err, r)
	}
	for _, row := range r.Rows {
		if row.CoreToCore <= 0 {
			t.Errorf("%s: the CPUs are %v ns apart", row.Test, row.CoreToCore)
		}
		if row.Value < 1e6 || *row.Ratio <= 2 || *row.Met {
			t.Errorf("slowed by 1 ms each way: half round trip %v ns, ratio %v, met %v", row.Value, *row.Ratio, *row.Met)
		}
	}
}

func TestFailuresAreReportedAndDoNotStopTheRest(t *testing.T) {
	for path, want := range map[string]string{
		"wrong": "wrong data: message 1",
		"dying": "process died",
		"none":  "no such backend",
	} {
		r, err := measured(t, t.Context(), path, "velo-latency")
		if err != nil || !r.Partial || len(r.Rows) != 0 || len(r.Failures) != 2 {
			t.Errorf("%s: %v, %+v", path, err, r)
			continue
		}
		if f := r.Failures[1]; f.Test != "velo-latency 120 B" || !strings.Contains(f.Error, want) {
			t.Errorf("%s: got %+v", path, f)
		}
	}
}

func TestInterruptedPlanIsPartial(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, why)
	defer cancel()
	r, err := measured(t, ctx, "shm", "idle")
	if !errors.Is(err, why) || !r.Partial || len(r.Rows) != 0 || len(r.Failures) != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestGivenDirectoryIsUsedAndKept(t *testing.T) {
	dir := privateDir(t)
	n, err := attachSHM(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	joined := make(chan fabric.NodeID, 16)
	defer n.Watch(func(e fabric.Event) {
		if e.Joined {
			joined <- e.Node
		}
	})()
	r := &report.Report{}
	p := Plan{Path: "shm", Dir: dir, Tests: []string{"memory-new"}, Runs: 1, Quick: true}
	if err := p.Run(t.Context(), r, nil); err != nil || r.Partial {
		t.Fatalf("%v, %+v", err, r)
	}
	if a, b := <-joined, <-joined; a == b {
		t.Errorf("node %d joined twice", a)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestCheckFindsTheImpossible(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	ok := Plan{Runs: 5, Tests: []string{"rma", "idle", "velo-rate"}, Dir: dir}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Plan){
		`no such test: "rm"; there are velo-latency,`: func(p *Plan) { p.Tests = []string{"idle", "rm"} },
		"0 runs give no median":                       func(p *Plan) { p.Runs = 0 },
		"leave --fabric out":                          func(p *Plan) { p.Dir = dir + "/none" },
		"is not a directory":                          func(p *Plan) { p.Dir = file },
	} {
		p := ok
		spoil(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v instead of %q", err, want)
		}
	}
}

func TestPointsOfAPlan(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range (Plan{Runs: 5}).points() {
		key := fmt.Sprint(p.test, p.size)
		if seen[key] {
			t.Errorf("two points %s", key)
		}
		seen[key] = true
		if p.what == "" || p.run == nil || (p.reference == "") != (p.against == "") {
			t.Errorf("incomplete point %+v", p)
		}
	}
	var tests []string
	for _, p := range (Plan{Runs: 5, Tests: []string{"velo-rate", "rma-get"}}).points() {
		tests = append(tests, p.test)
	}
	if got := slices.Compact(tests); !slices.Equal(got, []string{"velo-rate", "rma-get", "rma-get-in-place"}) {
		t.Errorf("chose %v", got)
	}
	full, quick := Plan{Runs: 5}.Takes(), Plan{Runs: 5, Quick: true}.Takes()
	if quick >= full || quick <= 0 {
		t.Errorf("quick takes %v, full %v", quick, full)
	}
}
