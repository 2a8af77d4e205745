package comparison

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A Plan is what to measure and how.
type Plan struct {
	Sweep   bool     // over sizes and numbers of streams
	Tests   []string // which; none: all
	Paths   []string // over which; none: all of them that this machine has, fewer without Sweep
	Runs    int      // rounds
	Quick   bool     // shorter runs
	Verify  bool     // every byte is compared
	Pump    string   // path of the program pump
	Daemon  string   // of exn-tun; "": there is none
	Backend string   // the name of the fabric's contenders
	CPUs    [2]int   // of client and server where each has its own
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	for _, name := range p.Paths {
		if wayOf(name).name == "" {
			return fmt.Errorf("no such path: %q; there are %s", name, strings.Join(Paths(false), ", "))
		}
	}
	return measure.CheckChoice(p.Tests, Tests(p.Sweep), p.Runs)
}

// length is how long a run counts.
func (p Plan) length() time.Duration {
	switch {
	case p.Quick:
		return 100 * time.Millisecond
	case p.Sweep:
		return 200 * time.Millisecond
	}
	return 400 * time.Millisecond
}

// What a run takes beside its length: a tenth of that as a warm-up, and the programs.
const starting = 60 * time.Millisecond

func (p Plan) runTakes() time.Duration { return p.length()*11/10 + starting }

// opening is about how long it takes to make a path.
const opening = 500 * time.Millisecond

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	d = time.Duration(len(p.ways())) * opening
	for _, l := range p.wanted() {
		for _, size := range l.sizes {
			for _, w := range p.ways() {
				if w.carries(l, size) {
					d += time.Duration(p.Runs) * p.runTakes()
				}
			}
		}
	}
	return d
}

// ways are those that the plan wants, the reference always and first.
func (p Plan) ways() (wanted []way) {
	for _, w := range ways {
		if w.name == reference || slices.Contains(p.Paths, w.name) || len(p.Paths) == 0 && (p.Sweep || w.standard) {
			wanted = append(wanted, w)
		}
	}
	return wanted
}

// Run measures the plan and adds its rows to r, also those before an error. A path that
// cannot be made is recorded as skipped, unless it was asked for, and a load that fails
// over a path as failed; neither stops the others. The error is that of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	b := &bench{Plan: p, progress: progress, report: r, paths: map[string]carrier{}, failed: map[string]bool{}}
	defer b.close()
	b.open(ctx)
	for _, l := range p.wanted() {
		for _, size := range l.sizes {
			b.measure(ctx, l, size)
			if ctx.Err() != nil {
				r.Partial = true
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// A bench carries a plan out.
type bench struct {
	Plan
	progress *report.Progress
	report   *report.Report
	paths    map[string]carrier
	failed   map[string]bool // loads over paths
	yard     measure.Yardstick
	optional bool // the paths were not asked for by name
}

// open makes the paths.
func (b *bench) open(ctx context.Context) {
	for _, w := range b.ways() {
		if ctx.Err() != nil {
			return
		}
		b.progress.Doing("making " + w.name)
		c, err := w.open(ctx, &b.Plan)
		switch {
		case err == nil:
			b.paths[w.name] = c
		case ctx.Err() == nil && !b.optional && slices.Contains(b.Paths, w.name):
			b.report.Fail(w.name, err)
		case ctx.Err() == nil:
			b.report.Skip(w.name, err)
		}
		b.progress.Done(opening)
	}
	for range 3 { // the processor at its fastest
		b.yard.Slower()
	}
}

func (b *bench) close() {
	for name, c := range b.paths {
		if err := c.Close(); err != nil {
			b.report.Fail("closing "+name, err)
		}
	}
}

// A series is the runs of a load over a path.
type series struct {
	outcomes  []outcome
	disturbed int
}

// measure makes all runs of a load at a size, and the rows of it.
func (b *bench) measure(ctx context.Context, l load, size int) {
	var over []way
	for _, w := range b.ways() {
		if b.paths[w.name] != nil && w.carries(l, size) {
			over = append(over, w)
		}
	}
	all := map[string]*series{}
	for round := range b.Runs {
		for _, w := range over {
			name := l.name + " " + w.name
			if b.failed[name] {
				continue
			}
			b.progress.Doing(strings.TrimSpace(l.name + " " + report.FormatSize(size) + " over " + w.name))
			o, noisy, err := b.quietly(ctx, b.paths[w.name], l, size)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				b.failed[name] = true
				delete(all, w.name) // what came before is not to be trusted, either
				b.report.Fail(strings.TrimSpace(l.name+" "+report.FormatSize(size)+" "+w.name), err)
				continue
			}
			s := all[w.name]
			if s == nil {
				s = new(series)
				all[w.name] = s
			}
			s.outcomes = append(s.outcomes, o)
			if noisy {
				s.disturbed++
			}
			b.progress.Done(b.runTakes())
		}
		if ctx.Err() != nil {
			break
		}
		if round < b.Runs-1 {
			slices.Reverse(over)
		}
	}
	for _, read := range l.read {
		for _, w := range b.ways() {
			if row, ok := b.row(w, read, size, all[w.name], all[reference]); ok {
				b.report.Rows = append(b.report.Rows, row)
			}
		}
	}
}

// What makes a run noisy: other programs took so much of a CPU, or the processor was
// so much slower beside it.
const (
	mostForeign = 0.1
	mostSlower  = 0.15

	// counted is how exact the time of other programs is: two ticks.
	counted = 20 * time.Millisecond
)

// quietly makes a run, and once more if it was noisy.
func (b *bench) quietly(ctx context.Context, c carrier, l load, size int) (o outcome, noisy bool, err error) {
	for range 2 {
		slower := b.yard.Slower()
		watch, err := measure.NewWatch(append([]int{os.Getpid()}, c.daemons()...))
		if err != nil {
			return o, false, err
		}
		var spent spending
		if o, spent, err = c.run(ctx, l, size); err != nil {
			return o, false, err
		}
		watch.Ended(time.Duration(spent))
		foreign, err := watch.Foreign()
		if err != nil {
			return o, false, err
		}
		slower = max(slower, b.yard.Slower())
		most := mostForeign + float64(counted)/float64(b.length())
		if noisy = foreign > most || slower > mostSlower; !noisy {
			break
		}
	}
	return o, noisy, nil
}

// agreement is how far the tools of others may be from ours.
const agreement = 0.1

// row is what the runs over a path say. There may be none.
func (b *bench) row(w way, read reading, size int, s, ref *series) (row report.Row, ok bool) {
	if s == nil {
		return row, false
	}
	row = report.Row{Test: read.test, Path: w.name, Size: size, Unit: read.unit, What: read.what, Disturbed: s.disturbed}
	var times measure.Histogram
	for i, o := range s.outcomes {
		if w.name != reference && ref != nil {
			if i >= len(ref.outcomes) {
				break // interrupted between the two
			}
			row.ReferenceRuns = append(row.ReferenceRuns, read.value(ref.outcomes[i]))
			row.Against = wayOf(reference).what
		}
		row.Runs = append(row.Runs, read.value(o))
		if o.Times != nil {
			times.Merge(o.Times)
		}
	}
	if len(row.Runs) == 0 || slices.Contains(row.Runs, 0) {
		return row, false // it has no such reading
	}
	if scale := read.times; scale > 0 {
		row.Percentiles = report.PercentilesOf(&times, scale)
	}
	row = row.Finish()
	if _, isTool := b.paths[w.name].(*tool); isTool && row.Ratio != nil {
		if apart := math.Abs(*row.Ratio - 1); apart > agreement {
			row.Note = fmt.Sprintf("does not agree: it is %.0f %% from what is measured here", 100*apart)
		} else {
			row.Note = fmt.Sprintf("agrees within %.0f %%", 100*agreement)
		}
	}
	return row, true
}
