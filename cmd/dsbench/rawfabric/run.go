package rawfabric

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A Plan is what to measure and how.
type Plan struct {
	Path   string   // the backend, as given to Contenders
	Dir    string   // the fabric directory; empty: a private one for each point
	Tests  []string // which; none: all
	Runs   int      // pairs of runs of a point
	Quick  bool     // shorter runs
	Lead   int      // CPU of the process that starts operations
	Follow int      // CPU of the other
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	if err := measure.CheckChoice(p.Tests, Tests(), p.Runs); err != nil {
		return err
	}
	if p.Dir != "" {
		if st, err := os.Stat(p.Dir); err != nil {
			return fmt.Errorf("fabric directory: %w; leave --fabric out to measure on a private one", err)
		} else if !st.IsDir() {
			return fmt.Errorf("fabric directory: %s is not a directory; leave --fabric out to measure on a private one", p.Dir)
		}
	}
	return nil
}

// length is how long one run takes. A fifth of a second spans many scheduler
// ticks and preemptions of 10 ms.
func (p Plan) length() time.Duration {
	if p.Quick {
		return 20 * time.Millisecond
	}
	return 200 * time.Millisecond
}

// starting is about how long it takes to start a Duo and prepare it.
const starting = 50 * time.Millisecond

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	for _, pt := range p.points() {
		d += starting + pt.takes
	}
	return d
}

// Run measures the plan and adds its rows to r, also those before an error. A
// point that fails is recorded and does not stop the others; the error is that
// of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	for _, pt := range p.points() {
		name := strings.TrimSpace(pt.test + " " + report.FormatSize(pt.size))
		progress.Doing(name)
		row := report.Row{Test: pt.test, Path: p.Path, Size: pt.size, Unit: pt.unit,
			What: pt.what, Against: pt.against, Target: pt.target}
		b := &bench{Plan: p, progress: progress}
		err := b.measure(ctx, &pt, &row)
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

// A bench measures one point: in new processes and on a new fabric, so that no
// point finds what another left behind.
type bench struct {
	Plan
	duo      *measure.Duo
	progress *report.Progress
}

func (b *bench) measure(ctx context.Context, pt *point, row *report.Row) (err error) {
	if pt.params.Dir = b.Dir; b.Dir == "" {
		if pt.params.Dir, err = os.MkdirTemp("", "dsbench-fabric-"); err != nil {
			return fmt.Errorf("make a private fabric directory: %w", err)
		}
		defer os.RemoveAll(pt.params.Dir) // after the processes are gone
	}
	if b.duo, err = measure.Start(b.Lead, b.Follow); err != nil {
		return err
	}
	defer b.duo.Close()
	defer context.AfterFunc(ctx, b.duo.Close)()
	b.progress.Done(starting)
	return pt.run(ctx, b, pt, row)
}
