package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a report with one row of each sort.
func sample() *Report {
	r := &Report{
		Machine: Machine{
			Time: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Command: []string{"dsbench", "fabric"},
			Go: "go1.26.8", Arch: "amd64", Kernel: "Linux 6.18.44", CPU: "AMD EPYC", Virtual: true,
			CPUs: 2, Pinned: []int{0, 1}, Memory: 8 << 30, Caches: map[string]string{"L1": "48K", "L2": "1024K"}, Load: 0.25, Call: 104,
		},
		Rows: []Row{
			{Test: "velo-latency", Path: "shm", Size: 8, Unit: Nanoseconds, Runs: []float64{98, 101, 99, 250, 97},
				ReferenceRuns: []float64{62, 63, 62, 61, 62}, Target: AtMost(Ratio, 2),
				What: "half of a round trip, both sides polling", Against: "one word between two cache lines"},
			{Test: "velo-latency", Path: "shm", Size: 120, Unit: Nanoseconds, Runs: []float64{162, 165, 161},
				ReferenceRuns: []float64{62, 62, 62}, Target: AtMost(Ratio, 2.5), Disturbed: 2, CoreToCore: 58,
				What: "half of a round trip, both sides polling", Against: "one word between two cache lines"},
			{Test: "velo-rate", Path: "shm", Size: 8, Unit: MessagesPerSec, Runs: []float64{31.5e6},
				ReferenceRuns: []float64{60e6}, Target: AtLeast(Value, 30e6), What: "8-byte messages"},
			{Test: "rma-put", Path: "shm", Size: 8 << 20, Unit: BytesPerSecond, Runs: []float64{17e9, 18e9},
				ReferenceRuns: []float64{17.5e9, 17.5e9}, What: "PUT by one side", CoreToCore: 271.4},
			{Test: "idle", Path: "shm", Unit: PercentOfCPU, Runs: []float64{0.012}, Target: AtMost(Value, 0.1),
				Note: "something to know"},
			{Test: "rr", Path: "tcp", Size: 64, Unit: Nanoseconds, Runs: []float64{24e3, 25e3, 26e3},
				Percentiles: &Percentiles{25e3, 26e3, 30e3, 40e3, 1e6}, What: "half of a round trip", CoreToCore: 52, CoresToCores: []float64{52, 55, 261}},
			{Test: "memory-new", Path: "shm", Unit: Bytes, Runs: []float64{40960}, Target: AtMost(Value, 65536)},
			{Test: "alloc-put", Path: "shm", Size: 4096, Unit: ObjectsPerOp, Runs: []float64{0}, Target: AtMost(Value, 0)},
		},
	}
	r.Skip("exn0", errors.New("needs root: run it with sudo"))
	for i, row := range r.Rows {
		r.Rows[i] = row.Finish()
	}
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite it with -update if that is meant); got:\n%s", path, got)
	}
}

func TestTable(t *testing.T) {
	r := sample()
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())

	r.Rows = nil
	r.Fail("rma-put 4 KiB", errors.New("wrong data: seven is not eight"))
	b.Reset()
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table-failed.txt", b.Bytes())
}

// The output is one JSON object of the documented schema.
func TestJSONFollowsTheSchema(t *testing.T) {
	failed := &Report{}
	failed.Fail("rma-put", errors.New("no"))
	for name, r := range map[string]*Report{"sample.json": sample(), "failed.json": failed} {
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		if err := Validate(b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden(t, name, b.Bytes())
	}
}

func TestJSONRefusesWhatJSONCannotSay(t *testing.T) {
	r := sample()
	r.Rows[0].Value = math.Inf(1)
	if err := r.WriteJSON(&bytes.Buffer{}); err == nil {
		t.Error("infinity was printed")
	}
}

func TestValidateRefuses(t *testing.T) {
	r := sample()
	good, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := Validate(good); err != nil {
		t.Fatal(err)
	}
	for _, field := range always {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		delete(m["rows"].([]any)[0].(map[string]any), field)
		bad, _ := json.Marshal(m) // was unmarshalled
		if Validate(bad) == nil {
			t.Errorf("a row without %q is valid", field)
		}
	}
	for name, spoil := range map[string]func(r *Report){
		"no test":                   func(r *Report) { r.Rows[0].Test = "" },
		"quartiles off its runs":    func(r *Report) { r.Rows[0].Quartiles[0]++ },
		"percentiles that go down":  func(r *Report) { r.Rows[5].Percentiles.P90 = 1 },
		"of a later schema":         func(r *Report) { r.Schema = Schema + 1 },
		"unknown unit":              func(r *Report) { r.Rows[0].Unit = "furlong" },
		"negative size":             func(r *Report) { r.Rows[0].Size = -1 },
		"a setting of nothing":      func(r *Report) { r.Rows[0].Setting = &Setting{Value: 3} },
		"a setting of furlongs":     func(r *Report) { r.Rows[0].Setting = &Setting{Of: "MTU", Unit: "furlong", Value: 3} },
		"no runs":                   func(r *Report) { r.Rows[0].Runs = nil },
		"value off its runs":        func(r *Report) { r.Rows[0].Value *= 1.01 },
		"ratio off its runs":        func(r *Report) { *r.Rows[0].Ratio *= 1.01 },
		"reference off its runs":    func(r *Report) { *r.Rows[0].Reference *= 1.01 },
		"ratio without reference":   func(r *Report) { r.Rows[0].Reference = nil },
		"runs that are not pairs":   func(r *Report) { r.Rows[0].ReferenceRuns = r.Rows[0].ReferenceRuns[1:] },
		"met against the target":    func(r *Report) { *r.Rows[0].Met = false },
		"met missing":               func(r *Report) { r.Rows[0].Met = nil },
		"target of nothing":         func(r *Report) { r.Rows[0].Target.Of = "mood" },
		"target without a bound":    func(r *Report) { r.Rows[0].Target.AtMost = nil },
		"failures, yet not partial": func(r *Report) { r.Failures = []Failure{{"a", "b"}} },
	} {
		r := sample()
		spoil(r)
		bad, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if Validate(bad) == nil {
			t.Errorf("%s is valid", name)
		}
	}
	for _, bad := range []string{"", "[]", "{}", `{"rows":[]}`, `{"rows":[],"machine":3}`, string(good) + "{}"} {
		if Validate([]byte(bad)) == nil {
			t.Errorf("%.20q… is valid", bad)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target *Target
		run    float64
		met    bool
	}{
		{AtMost(Value, 2), 2, true}, {AtMost(Value, 2), 2.1, false},
		{AtLeast(Value, 2), 2, true}, {AtLeast(Value, 2), 1.9, false},
		{AtMost(Ratio, 0.5), 2, true}, {AtLeast(Ratio, 0.6), 2, false}, // against 4
	} {
		r := Row{Runs: []float64{c.run}, ReferenceRuns: []float64{4}, Target: c.target}.Finish()
		if r.Met == nil || *r.Met != c.met {
			t.Errorf("%v with %v: met is %v", c.target.format("ns"), c.run, r.Met)
		}
	}
	if r := (Row{Runs: []float64{1}}).Finish(); r.Met != nil || r.Ratio != nil {
		t.Error("a row without target or reference has a verdict or ratio")
	}
}

// A target that has to be met surely is judged by the interval, not the median.
func TestSureTargets(t *testing.T) {
	row := func(target *Target, pairs int) Row {
		r := Row{Test: "a", Path: "b", Unit: Nanoseconds, Target: target}
		for i := range pairs {
			r.ReferenceRuns = append(r.ReferenceRuns, 100)
			r.Runs = append(r.Runs, 90+float64(i)) // the median is near 104, the interval 99 to 110
		}
		return r.Finish()
	}
	for _, c := range []struct {
		target *Target
		met    bool
	}{
		{AtMost(RatioSurely, 1.11), true}, {AtMost(RatioSurely, 1.05), false},
		{AtLeast(RatioSurely, 0.98), true}, {AtLeast(RatioSurely, 1.03), false},
	} {
		if r := row(c.target, 30); r.Met == nil || *r.Met != c.met {
			t.Errorf("%s: met is %v, interval %v", c.target.format(Nanoseconds), r.Met, r.Interval)
		} else if err := r.validate(); err != nil {
			t.Error(err)
		}
	}
	if r := row(AtMost(RatioSurely, 9), 5); r.Met != nil || r.Interval != nil {
		t.Errorf("five pairs give the interval %v", r.Interval)
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{Nanoseconds, 62.04, "62.0 ns"}, {Nanoseconds, 999.6, "1000 ns"}, {Nanoseconds, 18234, "18.2 µs"},
		{Nanoseconds, 2.5e9, "2.50 s"}, {BytesPerSecond, 45.25e9, "45.2 GB/s"}, {BitsPerSecond, 57.5e9, "57.5 Gbit/s"}, {MessagesPerSec, 31.5e6, "31.5 M msg/s"},
		{PercentOfCPU, 0.0123, "0.0123 %"}, {PercentOfCPU, 150, "150 %"}, {Bytes, 40960, "40.0 KiB"},
		{ObjectsPerOp, 0, "0"}, {ObjectsPerOp, 1.5, "1.50"}, {Nanoseconds, 9.996, "10.0 ns"},
	} {
		if got := c.u.Format(c.v); got != c.want {
			t.Errorf("%v %s: %q instead of %q", c.v, c.u, got, c.want)
		}
	}
	for n, want := range map[int]string{0: "", 8: "8 B", 120: "120 B", 4096: "4 KiB", 1536: "1.5 KiB", 8 << 20: "8 MiB", 256 << 10: "256 KiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d bytes: %q instead of %q", n, got, want)
		}
	}
}

func TestMachine(t *testing.T) {
	m := ThisMachine([]string{"dsbench"}, []int{0, 1})
	if m.CPUs < 1 || m.Memory <= 0 || m.Kernel == "" || m.Go == "" || m.Time.IsZero() || m.Call <= 0 {
		t.Errorf("this machine is %+v", m)
	}
	dir := t.TempDir()
	info := filepath.Join(dir, "cpuinfo")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(info, "processor\t: 0\nmodel name\t: Brand X\nflags\t\t: fpu vme hypervisor\n\nprocessor\t: 1\nmodel name\t: Brand Y\n")
	if model, virtual := cpuInfo(info); model != "Brand X" || !virtual {
		t.Errorf("CPU %q, virtual %v", model, virtual)
	}
	if model, virtual := cpuInfo(filepath.Join(dir, "none")); model != "" || virtual {
		t.Errorf("CPU %q, virtual %v from nothing", model, virtual)
	}
	for i, c := range [][3]string{{"1", "Data", "48K"}, {"1", "Instruction", "32K"}, {"2", "Unified", "1024K"}} {
		index := filepath.Join(dir, "cache", "index"+string(rune('0'+i)))
		write(filepath.Join(index, "level"), c[0]+"\n")
		write(filepath.Join(index, "type"), c[1]+"\n")
		write(filepath.Join(index, "size"), c[2]+"\n")
	}
	if c := caches(filepath.Join(dir, "cache")); len(c) != 2 || c["L1"] != "48K" || c["L2"] != "1024K" {
		t.Errorf("caches %v", c)
	}
	if r := revision([]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}}); r != "abc+dirty" {
		t.Errorf("revision %q", r)
	}
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, 10*time.Second)
	p.Doing("x")
	p.Done(time.Second)
	p.End()
	if b.Len() != 0 {
		t.Errorf("wrote %q to what is no terminal", b.String())
	}
	(*Progress)(nil).Doing("nothing")
	(*Progress)(nil).Done(time.Second)
	(*Progress)(nil).End()

	p.w = &b
	p.Doing("velo-rate 8 B")
	p.Done(4 * time.Second) // 5 of the planned 10 s are done
	if got, want := p.line(20*time.Second), " 50 %  velo-rate 8 B  about 20s left"; got != want {
		t.Errorf("%q instead of %q: the plan was half as long as it takes", got, want)
	}
	if !strings.HasPrefix(b.String(), "\r\x1b[K") {
		t.Errorf("the line is not rewritten: %q", b.String())
	}
	p.Done(time.Hour)
	if got := p.line(time.Minute); !strings.HasPrefix(got, "100 %") || !strings.HasSuffix(got, "about 0s left") {
		t.Errorf("beyond the plan: %q", got)
	}
}

// Tests of one size each become a table of paths by tests; others stay a list.
func TestMatrix(t *testing.T) {
	r := &Report{Machine: sample().Machine}
	for _, path := range []string{"tcp", "unix", "exn0"} {
		r.Rows = append(r.Rows, Row{Test: "rr", Path: path, Size: 64, Unit: Nanoseconds, Runs: []float64{2e3, 2.1e3}, ReferenceRuns: []float64{9e4, 9e4}, What: "half of a round trip"}.Finish())
	}
	r.Rows = append(r.Rows, Row{Test: "crr", Path: "unix", Size: 64, Unit: MessagesPerSec, Runs: []float64{3e4}, Disturbed: 1, Note: "to know"}.Finish())
	m, ok := r.Matrix()
	if !ok || len(m.Paths) != 3 || len(m.Tests) != 2 || m.Cells[1][1] == nil || m.Cells[0][1] != nil {
		t.Errorf("%+v, %v", m, ok)
	}
	var b bytes.Buffer
	if err := r.WriteMatrix(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "matrix.txt", b.Bytes())
	for _, test := range []string{"a", "b", "c"} {
		for _, path := range m.Paths {
			r.Rows = append(r.Rows, Row{Test: test, Path: path, Unit: Nanoseconds, Runs: []float64{1}, Note: "the same of all"}.Finish())
		}
	}
	b.Reset()
	if err := r.WriteMatrix(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "matrix-long.txt", b.Bytes())
	r.Rows[0].Size = 128
	if _, ok := r.Matrix(); ok {
		t.Error("two sizes fit one column")
	}
	for ratio, want := range map[float64]string{0.5: "0.50×", 0.01: "1/100×", 12.34: "12.3×", 0.095: "0.0950×"} {
		if got := FormatRatio(ratio); got != want {
			t.Errorf("%v is %q instead of %q", ratio, got, want)
		}
	}
}
