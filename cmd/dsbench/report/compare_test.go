package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// scaled is a row whose runs are those of base times a factor.
func scaled(test string, unit Unit, factor float64, reference bool) Row {
	r := Row{Test: test, Path: "p", Unit: unit}
	for _, v := range []float64{100, 101, 99, 102, 98, 100.5} {
		r.Runs = append(r.Runs, v*factor)
		if reference {
			r.ReferenceRuns = append(r.ReferenceRuns, v*2)
		}
	}
	return r.Finish()
}

func TestCompare(t *testing.T) {
	before := &Report{Machine: Machine{CPU: "old", Kernel: "k"}, Rows: []Row{
		scaled("time-up", Nanoseconds, 1, false), scaled("rate-up", BitsPerSecond, 1, false), scaled("still", BitsPerSecond, 1, false),
		scaled("machine", Nanoseconds, 1, true), {Test: "few", Path: "p", Unit: Bytes, Runs: []float64{1}}, scaled("gone", Bytes, 1, false)}}
	machine := scaled("machine", Nanoseconds, 1, true)
	for i := range machine.Runs { // all of the machine became slower
		machine.Runs[i] *= 3
		machine.ReferenceRuns[i] *= 3
	}
	after := &Report{Machine: Machine{CPU: "new", Kernel: "k"}, Rows: []Row{
		scaled("time-up", Nanoseconds, 1.1, false), scaled("rate-up", BitsPerSecond, 1.1, false), scaled("still", BitsPerSecond, 1.001, false),
		machine.Finish(), {Test: "few", Path: "p", Unit: Bytes, Runs: []float64{2}}, scaled("fresh", Bytes, 1, false)}}
	after.Rows[1].Disturbed = 1
	c := Compare(before, after)
	want := map[string]Verdict{"time-up": Worse, "rate-up": Better, "still": Same, "machine": Same, "few": Unknown}
	for _, ch := range c.Changes {
		if ch.Verdict != want[ch.Test] {
			t.Errorf("%s is %s instead of %s: %+v", ch.Test, ch.Verdict, want[ch.Test], ch)
		}
		if ch.Noisy != (ch.Test == "rate-up") {
			t.Errorf("%s: noisy is %v", ch.Test, ch.Noisy)
		}
	}
	if c.Surely(Better) != 0 || c.Surely(Worse) != 1 {
		t.Errorf("%d surely better, %d surely worse", c.Surely(Better), c.Surely(Worse))
	}
	if len(c.Changes) != len(want) || !slices.Equal(c.Gone, []string{"gone p"}) || !slices.Equal(c.New, []string{"fresh p"}) || !slices.Equal(c.Elsewhere, []string{"CPU: old, then new"}) {
		t.Errorf("%+v", c)
	}
	var short, long, object bytes.Buffer
	if err := c.WriteTable(&short, false); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteTable(&long, true); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteJSON(&object); err != nil || !strings.Contains(object.String(), `"verdict": "worse"`) {
		t.Errorf("%v: %s", err, object.String())
	}
	for _, want := range []string{"time-up", "better (noisy)", "1 better, 1 worse, 2 the same", "1 with too few runs", "CPU: old, then new", "1 of those that changed are noisy, and by less than 2 times", "Of 4 rows without a difference chance alone makes about 0.0"} {
		if !strings.Contains(short.String(), want) {
			t.Errorf("no %q in:\n%s", want, short.String())
		}
	}
	if strings.Contains(short.String(), "still") || !strings.Contains(long.String(), "still") {
		t.Errorf("what stayed the same:\n%s\n%s", short.String(), long.String())
	}
}

// A noisy row proves something only where it changed by more than what disturbs.
func TestNoisyChanges(t *testing.T) {
	for _, c := range []struct {
		factor float64
		proven int
	}{{1.5, 0}, {1.9, 0}, {3, 1}, {1 / 1.5, 0}, {1.0 / 3, 1}} {
		before, after := &Report{Rows: []Row{scaled("rr", Nanoseconds, 1, false)}}, &Report{Rows: []Row{scaled("rr", Nanoseconds, c.factor, false)}}
		after.Rows[0].Disturbed = 3
		compared := Compare(before, after)
		if n := compared.Surely(Worse) + compared.Surely(Better); n != c.proven || compared.Count(Worse)+compared.Count(Better) != 1 {
			t.Errorf("by %v: %d proven: %+v", c.factor, n, compared)
		}
	}
}

// Rows of a test that differ in a setting are points of their own.
func TestCompareKeepsSettingsApart(t *testing.T) {
	over := func(factor float64) *Report {
		r := &Report{}
		for _, mtu := range []float64{1500, 9000} {
			row := scaled("mtu", BitsPerSecond, 1, false)
			if mtu == 9000 {
				row = scaled("mtu", BitsPerSecond, factor, false)
			}
			row.Setting = &Setting{Of: "MTU", Value: mtu}
			r.Rows = append(r.Rows, row)
		}
		return r
	}
	c := Compare(over(1), over(2))
	if len(c.Changes) != 2 || c.Changes[0].Verdict != Same || c.Changes[1].Verdict != Better || c.Changes[1].Setting.Value != 9000 {
		t.Errorf("%+v", c.Changes)
	}
}

// A report is the same as itself.
func TestCompareWithItself(t *testing.T) {
	c := Compare(sample(), sample())
	if c.Count(Better)+c.Count(Worse) != 0 || len(c.Gone)+len(c.New)+len(c.Elsewhere) != 0 || len(c.Changes) != len(sample().Rows) {
		t.Errorf("%+v", c)
	}
}
