package workload

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/debroot"
	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A Group is the tests of one command.
type Group string

// The groups.
const (
	Library  Group = "ds"
	Programs Group = "apps"
)

// A Plan is what to measure and how.
type Plan struct {
	Group   Group
	Library string   // path of libextds.so
	Tests   []string // which; none: all
	Runs    int      // pairs of runs of a test, at least
	Quick   bool     // shorter runs
	CPUs    [2]int   // for what is pinned
}

// A test is one row to come.
type test struct {
	name     string
	size     int
	unit     report.Unit
	what     string // what the value is
	target   *report.Target
	packages []string
	pairs    int  // at least so many, whatever the plan says
	upgrades bool // connections have to be on lanes, or the row says so

	// run does about n operations of a workload, or what takes a second if n is
	// 0, and gives the value. Counted says that it wants an n.
	run     func(ctx context.Context, a *arena, n int) (outcome, error)
	counted bool

	// alone measures what has no reference run: the whole row.
	alone func(ctx context.Context, b *bench, t *test, row *report.Row) error
}

// An outcome is the value of a run, how many operations it did a second, and the CPU
// time of its programs.
type outcome struct {
	value, rate float64
	cpu         time.Duration
}

// path is the way that the rows are about.
const path = "preload"

const against = "kernel TCP over loopback, the same programs"

// Tests are the names of a group's tests in the order they are run.
func Tests(g Group) []string {
	var names []string
	for _, t := range (Plan{Group: g}).tests() {
		if !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	return measure.CheckChoice(p.Tests, Tests(p.Group), p.Runs)
}

func (p Plan) tests() []test {
	all := map[Group]func(Plan) []test{Library: Plan.libraryTests, Programs: Plan.programTests}[p.Group](p)
	return slices.DeleteFunc(all, func(t test) bool { return !measure.Chosen(p.Tests, t.name) })
}

// seconds is how long a run takes, beside starting the programs.
func (p Plan) seconds() float64 {
	if p.Quick {
		return 0.3
	}
	return 1
}

// pairs is how many pairs a test needs.
func (p Plan) pairs(t test) int {
	if p.Quick {
		return p.Runs
	}
	return max(p.Runs, t.pairs)
}

// starting is about how long it takes to start and end the programs of a run.
const starting = 700 * time.Millisecond

func (p Plan) takes(t test) time.Duration {
	if t.alone != nil {
		return 10 * time.Second
	}
	return time.Duration(2*p.pairs(t)+2) * (starting + time.Duration(p.seconds()*float64(time.Second)))
}

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	for _, t := range p.tests() {
		d += p.takes(t)
	}
	return d
}

// A bench measures one test.
type bench struct {
	Plan
	root     *debroot.Root
	progress *report.Progress
}

// Run measures the plan and adds its rows to r, also those before an error. A
// test that fails is recorded and does not stop the others; the error is that
// of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	for _, t := range p.tests() {
		name := strings.TrimSpace(t.name + " " + report.FormatSize(t.size))
		progress.Doing(name)
		row := report.Row{Test: t.name, Path: path, Size: t.size, Unit: t.unit, What: t.what, Target: t.target}
		err := p.measure(ctx, t, &row, progress)
		if ctx.Err() != nil {
			r.Partial = true
			return context.Cause(ctx)
		}
		if err != nil {
			r.Fail(name, err)
			continue
		}
		r.Rows = append(r.Rows, row.Finish())
	}
	return nil
}

func (p Plan) measure(ctx context.Context, t test, row *report.Row, progress *report.Progress) error {
	root, err := debroot.Open(ctx, t.packages...)
	if err != nil {
		return err
	}
	b := &bench{Plan: p, root: root, progress: progress}
	if t.alone != nil {
		defer progress.Done(p.takes(t))
		return t.alone(ctx, b, &t, row)
	}
	row.Against = against
	return b.compare(ctx, &t, row)
}

// compare makes the pairs of runs.
func (b *bench) compare(ctx context.Context, t *test, row *report.Row) error {
	var n [2]int // operations of a plain run and of one with the library
	step := b.takes(*t) / time.Duration(2*b.pairs(*t)+2)
	if t.counted {
		for i := range n {
			n[i] = 1000
			for range 5 { // each time nearer to the length of a run; a slow one does not make it shorter
				o, _, err := b.one(ctx, t, i == 1, n[i])
				if err != nil {
					return err
				}
				want := int(o.rate * b.seconds())
				done := want <= 2*n[i]
				n[i] = max(want, n[i])
				if done {
					break
				}
			}
			b.progress.Done(step)
		}
	}
	astray := 0
	for range b.pairs(*t) {
		for i := range n {
			o, lanes, err := b.one(ctx, t, i == 1, n[i])
			if err != nil {
				return err
			}
			if i == 0 {
				row.ReferenceRuns = append(row.ReferenceRuns, o.value)
			} else {
				row.Runs = append(row.Runs, o.value)
				if t.upgrades && !lanes {
					astray++
				}
			}
			b.progress.Done(step)
		}
	}
	if astray > 0 {
		row.Note = fmt.Sprintf("in %d of %d runs with the library no connection was seen on a lane", astray, len(row.Runs))
	}
	return nil
}

// one makes one run, in new processes and a new fabric directory. lanes says
// whether a connection was seen on a lane.
func (b *bench) one(ctx context.Context, t *test, preloaded bool, n int) (o outcome, lanes bool, err error) {
	dir, err := os.MkdirTemp("", "dsbench-")
	if err != nil {
		return o, false, fmt.Errorf("make a private directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := &arena{bench: b, dir: dir}
	if preloaded {
		a.server, a.client = true, true
	}
	defer a.close()
	seen := a.watch()
	o, err = t.run(ctx, a, n)
	lanes = seen()
	a.close()
	o.cpu = a.cpu
	return o, lanes, err
}

// The tests that others use to check their own results by.
const (
	Stream = "stream"       // bytes per second of one stream, by iperf3
	Ping   = "ping-polling" // half of a round trip in ns, the sides on two CPUs, by sockperf
)

// Fetch fetches the programs of a test.
func (p Plan) Fetch(ctx context.Context, name string) error {
	_, err := p.alone(ctx, name)
	return err
}

// Once makes one run of a test without the library, and returns also the CPU time
// of its programs.
func (p Plan) Once(ctx context.Context, name string) (value float64, used time.Duration, err error) {
	t, err := p.alone(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	root, err := debroot.Open(ctx, t.packages...) // is there
	if err != nil {
		return 0, 0, err
	}
	o, _, err := (&bench{Plan: p, root: root}).one(ctx, t, false, 0)
	return o.value, o.cpu, err
}

// alone is a test of the group by its name, with its programs at hand.
func (p Plan) alone(ctx context.Context, name string) (*test, error) {
	p.Tests = []string{name}
	t := p.tests()[0]
	_, err := debroot.Open(ctx, t.packages...)
	return &t, err
}

// patience is for one run, which takes a second or two.
const patience = time.Minute

// The CPUs, for taskset.
func (p Plan) firstCPU() string  { return measure.FormatCPUs(p.CPUs[:1]) }
func (p Plan) secondCPU() string { return measure.FormatCPUs(p.CPUs[1:]) }
