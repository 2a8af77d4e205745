package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// EVA-1: medians and their spread.
func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		xs             []float64
		median, spread float64
	}{
		{nil, 0, 0},
		{[]float64{7}, 7, 0},
		{[]float64{3, 1}, 2, 0.5},
		{[]float64{5, 1, 3}, 3, 2.0 / 3},
		{[]float64{1, 2, 3, 4, 1000}, 3, 2.0 / 3}, // an outlier moves neither
		{[]float64{0, 0, 0}, 0, 0},
	} {
		if m, s := Median(c.xs), Spread(c.xs); m != c.median || math.Abs(s-c.spread) > 1e-12 {
			t.Errorf("%v: median %v, spread %v instead of %v, %v", c.xs, m, s, c.median, c.spread)
		}
	}
}

func TestMedianInterval(t *testing.T) {
	var xs []float64
	for i := range 30 {
		xs = append(xs, float64((i*7)%30)) // 0 to 29 in some order
	}
	// Of 30, the 10th and the 21st: tables of the sign test.
	if low, high, ok := MedianInterval(xs); !ok || low != 9 || high != 20 {
		t.Errorf("got %v to %v, %v", low, high, ok)
	}
	if _, _, ok := MedianInterval(xs[:9]); ok {
		t.Error("nine are enough for an interval")
	}
}

func TestMedianLeavesItsArgument(t *testing.T) {
	xs := []float64{3, 1, 2}
	Median(xs)
	if !slices.Equal(xs, []float64{3, 1, 2}) {
		t.Errorf("sorted the caller's %v", xs)
	}
}

// The machine became half as fast after the second pair: the ratios are steady.
func TestRatiosArePairwise(t *testing.T) {
	got := Ratios([]float64{10, 10, 20, 20}, []float64{20, 20, 40, 40})
	if !slices.Equal(got, []float64{2, 2, 2, 2}) {
		t.Errorf("got %v", got)
	}
	if got := Ratios([]float64{0, 4}, []float64{1, 2, 3}); !slices.Equal(got, []float64{0.5}) {
		t.Errorf("a zero and a missing reference: got %v", got)
	}
}

// A script is a Runner that takes each µs per operation and logs its name;
// loud lists the runs in which others had its CPU.
type script struct {
	name string
	log  *[]string
	loud []int
	n    []int
	err  error
}

func (s *script) Run(_ context.Context, n int) (Result, error) {
	*s.log = append(*s.log, s.name)
	share := time.Duration(100)
	if slices.Contains(s.loud, len(s.n)) {
		share = 50
	}
	s.n = append(s.n, n)
	e := time.Duration(n) * time.Microsecond
	half := Sample{PerOp: 1000, Elapsed: e, OnCPU: e * share / 100}
	return Result{N: n, Lead: half, Follow: half}, s.err
}

func TestAlternateTakesTurns(t *testing.T) {
	var log []string
	a, b := &script{name: "A", log: &log}, &script{name: "B", log: &log}
	steps := 0
	as, bs, disturbed, err := Alternate(t.Context(), 3, a, 10, b, 20, Result.Undisturbed, func() { steps++ })
	if err != nil || len(as) != 3 || len(bs) != 3 || disturbed != 0 || steps != 3 {
		t.Fatalf("%d and %d runs, %d disturbed, %d steps, %v", len(as), len(bs), disturbed, steps, err)
	}
	if got := strings.Join(log, ""); got != "ABABAB" {
		t.Errorf("order %s", got)
	}
	if as[0].N != 10 || bs[0].N != 20 {
		t.Errorf("counts %d and %d", as[0].N, bs[0].N)
	}
}

func TestAlternateRepeatsDisturbedPairs(t *testing.T) {
	var log []string
	a, b := &script{name: "A", log: &log, loud: []int{1}}, &script{name: "B", log: &log}
	as, _, disturbed, err := Alternate(t.Context(), 3, a, 1, b, 1, Result.Undisturbed, func() {})
	if err != nil || len(as) != 3 || disturbed != 0 || len(log) != 8 {
		t.Errorf("one loud run: %d pairs of %d runs, %d disturbed, %v", len(as), len(log), disturbed, err)
	}
	log = nil
	b = &script{name: "B", log: &log, loud: []int{0, 1, 2, 3, 4}}
	as, _, disturbed, err = Alternate(t.Context(), 3, a, 1, b, 1, Result.Undisturbed, func() {})
	if err != nil || len(as) != 3 || disturbed != 2 || len(log) != 12 {
		t.Errorf("five loud runs: %d pairs of %d runs, %d disturbed, %v", len(as), len(log), disturbed, err)
	}
}

func TestAlternateStopsAtAnError(t *testing.T) {
	var log []string
	a, b := &script{name: "A", log: &log}, &script{name: "B", log: &log, err: errors.New("no")}
	if _, _, _, err := Alternate(t.Context(), 3, a, 1, b, 1, Result.Undisturbed, func() {}); err != b.err || len(log) != 2 {
		t.Errorf("error %v after %d runs", err, len(log))
	}
}

func TestCalibrate(t *testing.T) {
	var log []string
	r := &script{name: "A", log: &log, loud: []int{0}}
	n, err := Calibrate(t.Context(), r, 100*time.Millisecond, 10, Result.Undisturbed)
	if err != nil || n != 100000 {
		t.Errorf("%d operations of 1 µs fill 100 ms, %v", n, err)
	}
	if !slices.Equal(r.n, []int{10, 10, 1000, 100000}) {
		t.Errorf("tried %v: a disturbed run is tried again, and growth is 100-fold at most", r.n)
	}
	r = &script{name: "A", log: &log, err: errors.New("no")}
	if _, err := Calibrate(t.Context(), r, time.Second, 1, Result.Undisturbed); err != r.err {
		t.Errorf("got %v", err)
	}
}

func TestResultOfBothHalves(t *testing.T) {
	r := Result{N: 1000, Lead: Sample{Mallocs: 3000, Switches: 900}, Follow: Sample{Mallocs: 1000, Switches: 2000}}
	if r.MallocsPerOp() != 4 || r.Slept() != 0.9 {
		t.Errorf("%v objects per operation, slept in %v", r.MallocsPerOp(), r.Slept())
	}
	r = Result{N: 100000, Lead: Sample{Mallocs: 50}, Follow: Sample{Mallocs: 49}}
	if r.MallocsPerOp() != 0 {
		t.Errorf("the runtime's own %v objects per operation were counted", r.MallocsPerOp())
	}
}

func TestUndisturbedMeansBothSides(t *testing.T) {
	all, half := Sample{Elapsed: 100, OnCPU: 99}, Sample{Elapsed: 100, OnCPU: 50}
	for _, c := range []struct {
		lead, follow Sample
		want         bool
	}{{all, all, true}, {half, all, false}, {all, half, false}} {
		if got := (Result{Lead: c.lead, Follow: c.follow}).Undisturbed(); got != c.want {
			t.Errorf("%v and %v: %v", c.lead.OnCPU, c.follow.OnCPU, got)
		}
	}
}

func TestRounds(t *testing.T) {
	n := 0
	round := func() error { n++; return nil }
	if s, err := Rounds(5, 0, round); err != nil || n != 5 || s.PerOp < 0 {
		t.Errorf("%d rounds, %v, %v", n, s.PerOp, err)
	}
	// One round of three is slow and pulls the mean up to 100 ms or more.
	n = 0
	s, err := Rounds(3, time.Millisecond, func() error {
		if n++; n == 2 {
			time.Sleep(300 * time.Millisecond)
		}
		return nil
	})
	if err != nil || n != 3 || s.PerOp >= 100e6 {
		t.Errorf("%d rounds, %v ns instead of the median, %v", n, s.PerOp, err)
	}
	no := errors.New("no")
	for _, pause := range []time.Duration{0, time.Nanosecond} {
		if _, err := Rounds(3, pause, func() error { return no }); err != no {
			t.Errorf("pause %v: got %v", pause, err)
		}
	}
}
