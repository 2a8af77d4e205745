package exn0

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A Plan is what to measure and how.
type Plan struct {
	Tests  []string // which; none: all
	Runs   int      // of each load over each path
	Quick  bool     // shorter runs
	Daemon string   // path of the program exn-tun
	Relay  string   // path of another relay, to compare ours with; "": none
	CPUs   [2]int   // of sender and receiver where each is to have its own
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	if p.Relay == "" && slices.Contains(p.Tests, "relay") {
		return errors.New("the test relay compares with another relay: give its path with --relay")
	}
	return measure.CheckChoice(p.Tests, Tests(), p.Runs)
}

// watching is how long idle daemons are looked at.
func (p Plan) watching() time.Duration {
	if p.Quick {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	for _, l := range p.needed() {
		d += time.Duration(p.Runs*len(l.over)) * l.takes
	}
	for _, pt := range p.points() {
		if pt.extra != nil {
			d += p.watching()
		}
	}
	return d
}

// Run measures the plan and adds its rows to r, also those before an error. A
// load that fails is recorded and does not stop the others; the error is that
// of ctx, or says why no path could be built.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	b := &bench{Plan: p, progress: progress, runs: map[key][]outcome{}, disturbed: map[string]int{}, failed: map[string]error{}}
	defer b.close()
	err := b.rounds(ctx)
	if ctx.Err() != nil {
		r.Partial = true
		err = context.Cause(ctx)
	}
	for _, name := range b.order {
		r.Fail(name, b.failed[name])
	}
	for _, pt := range p.points() {
		row, ok := report.Row{}, false
		if pt.extra == nil {
			row, ok = b.row(pt)
		} else if err == nil {
			row, ok, err = b.extraRow(ctx, r, pt)
		}
		if ok {
			r.Rows = append(r.Rows, row.Finish())
		}
	}
	return err
}

// row is what the runs say about a point. There may be none.
func (b *bench) row(pt point) (row report.Row, ok bool) {
	row = report.Row{Test: pt.test, Path: pt.subject, Size: pt.size, Unit: pt.unit, What: pt.what,
		Against: against[pt.reference], Target: pt.target, Disturbed: min(b.disturbed[pt.load], b.Runs)}
	for _, o := range b.runs[key{pt.load, pt.subject}] {
		row.Runs = append(row.Runs, pt.value(o))
	}
	for _, o := range b.runs[key{pt.load, pt.reference}] { // as many, or none
		row.ReferenceRuns = append(row.ReferenceRuns, pt.value(o))
	}
	if b.invalid > 0 && pt.test == "tcp-1" {
		row.Note = fmt.Sprintf("%d runs were invalid, since the relay reached less than %.1f of veth in them; %d of those count nevertheless",
			b.invalid, leastRelay, max(0, b.invalid-b.Runs))
	}
	return row, len(row.Runs) > 0
}

// extraRow measures a point without a load.
func (b *bench) extraRow(ctx context.Context, r *report.Report, pt point) (row report.Row, ok bool, err error) {
	b.progress.Doing(pt.test)
	value, err := pt.extra(b, ctx, pt)
	if ctx.Err() != nil {
		r.Partial = true
		return row, false, context.Cause(ctx)
	}
	if err != nil {
		r.Fail(pt.test, err)
		return row, false, nil
	}
	b.progress.Done(b.watching())
	return report.Row{Test: pt.test, Path: pt.subject, Unit: pt.unit, What: pt.what, Target: pt.target, Runs: []float64{value}}, true, nil
}

// errNoPaths is for a machine on which nothing can be built.
var errNoPaths = errors.New("cannot build the networks to measure")
