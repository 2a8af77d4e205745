package report

import (
	"bytes"
	"strings"
	"testing"
)

// What the runs of a row do not agree on is no result, and what contradicts the values is no ratio.
func TestNoise(t *testing.T) {
	for _, c := range []struct {
		name             string
		unit             Unit
		runs, reference  []float64
		noResult, ratio  bool // wanted: no result; a ratio
		saysOfTheMissing string
	}{
		{"steady", Nanoseconds, []float64{30, 31, 32}, []float64{60, 61, 62}, false, true, ""},
		{"two sorts of runs", Nanoseconds, []float64{30e3, 296e3, 31e3, 296e3, 300e3}, []float64{60e3, 60e3, 60e3, 60e3, 60e3}, true, false, "between 31.0 µs and 296 µs"},
		{"one run out of five astray", Nanoseconds, []float64{30, 31, 300, 31, 30}, []float64{60, 60, 60, 60, 60}, false, true, ""},
		{"the reference is astray", Nanoseconds, []float64{30, 30, 30, 30, 30}, []float64{10, 10, 60, 60, 300}, false, false, "the reference's runs"},
		{"pair by pair faster, by the medians slower", MessagesPerSec, []float64{10, 10, 16, 16, 19}, []float64{15, 8, 12, 12, 14}, false, true, ""},
		{"contradiction", MessagesPerSec, []float64{10, 10, 10, 18, 18}, []float64{8, 8, 15, 15, 15}, false, false, "run by run it is"},
		{"next to nothing", PercentOfCPU, []float64{0.001, 0.02, 0.09}, nil, false, false, ""},
		{"a single run", Nanoseconds, []float64{30}, nil, false, false, ""},
	} {
		row := Row{Test: "t", Path: "p", Unit: c.unit, Runs: c.runs, ReferenceRuns: c.reference}.Finish()
		if got := row.NoResult != ""; got != c.noResult {
			t.Errorf("%s: no result is %v (%q)", c.name, got, row.NoResult)
		}
		if _, got := row.Gain(); got != c.ratio {
			t.Errorf("%s: a ratio is %v (%q)", c.name, got, row.NoRatio)
		}
		if !strings.Contains(row.NoResult+row.NoRatio, c.saysOfTheMissing) {
			t.Errorf("%s: no %q in %q, %q", c.name, c.saysOfTheMissing, row.NoResult, row.NoRatio)
		}
	}
}

// Tables show no number where there is no result, and decide on no target.
func TestNoResultIsShownAsNone(t *testing.T) {
	scattered := Row{Test: "rr", Path: "exn0", Unit: Nanoseconds, Runs: []float64{3e3, 296e3, 3e3, 296e3}, ReferenceRuns: []float64{6e3, 6e3, 6e3, 6e3}, Target: AtMost(Ratio, 1)}.Finish()
	if scattered.Met != nil {
		t.Error("a target was decided on without a result")
	}
	r := &Report{Rows: []Row{scattered}}
	for _, path := range []string{"tcp", "unix"} {
		r.Rows = append(r.Rows, Row{Test: "rr", Path: path, Unit: Nanoseconds, Runs: []float64{1, 1}}.Finish())
	}
	var table, matrix bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMatrix(&matrix); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table.String(), matrix.String()} {
		if !strings.Contains(text, "no result: machine busy") || strings.Contains(text, "±9") || !strings.Contains(text, "between 3.00 µs and 296 µs") {
			t.Errorf("what is no result looks like one, or without the reason:\n%s", text)
		}
	}
}

func TestWords(t *testing.T) {
	for x, want := range map[float64]string{0.5: "half", 0.34: "a third", 0.21: "a fifth", 0.4: "40 %", 0.75: "75 %", 0.1: "a tenth", 0.05: "1/20", 0.0799: "1/13", 0: "0 %"} {
		if got := Share(x); got != want {
			t.Errorf("a share of %v is %q instead of %q", x, got, want)
		}
	}
	for ratio, want := range map[float64]string{4.02: "4 × as many", 1.3: "1.3 × as many", 17.6: "18 × as many", 1.02: "about as many", 0.5: "only half as many", 0.8: "only 80 % as many", 1.06: "1.1 × as many"} {
		if got := AsMany(ratio); got != want {
			t.Errorf("%v is %q instead of %q", ratio, got, want)
		}
	}
	for ratio, want := range map[float64]string{0.2: "a fifth of the", 1.0: "about the same", 1.5: "1.5 × the", 0.04: "1/25 of the"} {
		if got := OfThe(ratio); got != want {
			t.Errorf("%v is %q instead of %q", ratio, got, want)
		}
	}
}
