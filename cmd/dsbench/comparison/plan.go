package comparison

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	GoPump  string   // of gopump
	Daemon  string   // of exn-tun; "": there is none
	Backend string   // the name of the fabric's contenders
	CPUs    [2]int   // of client and server where each has its own
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	known := Paths(p.Sweep)
	for _, name := range p.Paths {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no such path: %q; there are %s", name, strings.Join(known, ", "))
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

func (p Plan) runTakes(l load) time.Duration {
	return l.takes(p.length())*11/10 + starting + l.opening()
}

// opening is about how long it takes to make a path.
const opening = 500 * time.Millisecond

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	d = time.Duration(len(p.ways())) * opening
	for _, l := range p.wanted() {
		d += time.Duration(len(p.brought(l))) * opening
		for _, size := range l.sizes {
			for _, w := range p.over(l) {
				if w.carries(l, size) {
					d += time.Duration(p.Runs) * p.runTakes(l)
				}
			}
		}
	}
	return d
}

// ways are those that the plan wants, the reference always and first.
func (p Plan) ways() []way { return p.among(ways) }

// over are those of them that a load wants.
func (p Plan) over(l load) []way {
	if l.ways == nil {
		return p.ways()
	}
	return p.among(append([]way{wayOf(reference)}, l.ways...))
}

// sort has the rows of a test stand together: loads that differ in a setting may have several.
func (b *bench) sort() {
	tests := Tests(b.Sweep)
	slices.SortStableFunc(b.report.Rows, func(r, s report.Row) int {
		return cmp.Compare(slices.Index(tests, r.Test), slices.Index(tests, s.Test))
	})
}

// brought are those that a load alone has.
func (p Plan) brought(l load) []way {
	return slices.DeleteFunc(p.over(l), func(w way) bool {
		return slices.ContainsFunc(p.ways(), func(other way) bool { return other.key() == w.key() })
	})
}

func (p Plan) among(ways []way) []way {
	return slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return w.name != reference && !slices.Contains(p.Paths, w.name) && !(len(p.Paths) == 0 && (p.Sweep || w.standard))
	})
}

// Run measures the plan and adds its rows to r, also those before an error. A path that
// cannot be made is recorded as skipped, unless it was asked for, and a load that fails
// over a path as failed; neither stops the others. The error is that of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	b := &bench{Plan: p, progress: progress, report: r, paths: map[string]carrier{}, failed: map[string]bool{}}
	defer b.close()
	defer b.sort()
	for _, l := range p.wanted() {
		b.open(ctx, p.over(l))
		for _, size := range l.sizes {
			b.measure(ctx, l, size)
			if ctx.Err() != nil {
				r.Partial = true
				return context.Cause(ctx)
			}
		}
		for _, w := range p.brought(l) {
			b.end(w.key())
		}
	}
	return nil
}

// A bench carries a plan out.
type bench struct {
	Plan
	progress *report.Progress
	report   *report.Report
	paths    map[string]carrier // by the keys of ways
	failed   map[string]bool    // paths, and loads over paths
	quiet    measure.Quiet
	optional bool // the paths were not asked for by name
}

// open makes those of the paths that are not there yet. One that cannot be made is not tried again.
func (b *bench) open(ctx context.Context, ways []way) {
	for _, w := range ways {
		if ctx.Err() != nil {
			return
		}
		if b.paths[w.key()] != nil || b.failed[w.key()] {
			continue
		}
		b.progress.Doing("making " + w.key())
		c, err := w.open(ctx, &b.Plan)
		b.failed[w.key()] = err != nil
		switch {
		case err == nil:
			b.paths[w.key()] = c
			b.report.Describe(w.name, w.what)
		case ctx.Err() == nil && !b.optional && slices.Contains(b.Paths, w.name):
			b.report.Fail(w.key(), err)
		case ctx.Err() == nil:
			b.report.Skip(w.key(), err)
		}
		b.progress.Done(opening)
	}
}

func (b *bench) close() {
	for key := range b.paths {
		b.end(key)
	}
}

// end gives a path back.
func (b *bench) end(key string) {
	if c := b.paths[key]; c != nil {
		if err := c.Close(); err != nil {
			b.report.Fail("closing "+key, err)
		}
		delete(b.paths, key)
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
	for _, w := range b.over(l) {
		if b.paths[w.key()] != nil && w.carries(l, size) {
			over = append(over, w)
		}
	}
	all := map[string]*series{}
	if over != nil && l.crowds() && !b.roomFor(l) {
		return
	}
	for round := range b.Runs {
		for _, w := range over {
			name := l.name + " " + w.key()
			if b.failed[name] {
				continue
			}
			b.progress.Doing(l.at(size) + " over " + w.key())
			o, noisy, err := b.quietly(ctx, b.paths[w.key()], l, size)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				b.failed[name] = true
				delete(all, w.key()) // what came before is not to be trusted, either
				b.report.Fail(l.at(size)+" "+w.key(), err)
				continue
			}
			s := all[w.key()]
			if s == nil {
				s = new(series)
				all[w.key()] = s
			}
			s.outcomes = append(s.outcomes, o)
			if noisy {
				s.disturbed++
			}
			b.progress.Done(b.runTakes(l))
		}
		if ctx.Err() != nil {
			break
		}
		if round < b.Runs-1 {
			slices.Reverse(over)
		}
	}
	for _, read := range l.read {
		for _, w := range b.over(l) {
			if row, ok := b.row(w, l, read, size, all[w.key()], all[reference]); ok {
				b.report.Rows = append(b.report.Rows, row)
			}
		}
	}
}

// roomFor says whether a process may have the descriptors of a crowd.
func (b *bench) roomFor(l load) bool {
	const others = 64
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Max >= uint64(l.streams+others) {
		return true
	}
	b.report.Skip(fmt.Sprintf("%s with %d connections", l.name, l.streams),
		fmt.Errorf("a process may open %d files: raise the hard limit, as root by ulimit -n %d", files.Max, 2*l.streams))
	return false
}

// quietly makes a run, and once more if it was noisy.
func (b *bench) quietly(ctx context.Context, c carrier, l load, size int) (o outcome, noisy bool, err error) {
	noisy, err = b.quiet.Run(c.daemons, func() (used time.Duration, err error) {
		var spent spending
		o, spent, err = c.run(ctx, l, size)
		o.size = size
		return time.Duration(spent), err
	})
	return o, noisy, err
}

// agreement is how far the tools of others may be from ours.
const agreement = 0.1

// row is what the runs over a path say. There may be none.
func (b *bench) row(w way, l load, read reading, size int, s, ref *series) (row report.Row, ok bool) {
	if s == nil {
		return row, false
	}
	row = report.Row{Test: read.test, Path: w.name, Size: size, Unit: read.unit, What: read.what, Disturbed: s.disturbed, Setting: cmp.Or(w.setting, l.setting)}
	var times measure.Histogram
	for i, o := range s.outcomes {
		if w.name != reference && ref != nil && !read.alone {
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
	if len(row.Runs) == 0 || !read.zero && slices.Contains(row.Runs, 0) {
		return row, false // it has no such reading
	}
	if scale := read.times; scale > 0 {
		row.Percentiles = report.PercentilesOf(&times, scale)
	}
	row = row.Finish()
	switch t, _ := b.paths[w.key()].(*tool); {
	case t != nil && !t.check:
		row.Note = "not measured by dsbench: " + w.what
	case t != nil && row.Ratio != nil:
		row.Note = crossCheck(row)
	}
	return row, true
}

// crossCheck says whether another tool found what dsbench found. Both the pairs of runs and
// the two values that are printed have to be close.
func crossCheck(row report.Row) string {
	ratio, ok := row.Gain()
	if !ok {
		return "no cross-check: the runs of one tool or of the other lie too far apart"
	}
	apart := max(math.Abs(ratio-1), math.Abs(row.Value / *row.Reference - 1))
	if apart > agreement {
		return fmt.Sprintf("does not agree: it is %.0f %% from what is measured here", 100*apart)
	}
	return fmt.Sprintf("agrees within %.0f %%", 100*agreement)
}
