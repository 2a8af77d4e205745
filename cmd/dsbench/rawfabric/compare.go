package rawfabric

import (
	"context"
	"fmt"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// compare fills row with pairs of runs of reference and subject.
func compare(ctx context.Context, b *bench, pt *point, row *report.Row) error {
	reference, err := b.duo.Prepare(ctx, pt.reference, pt.params)
	if err != nil {
		return err
	}
	subject, err := b.duo.Prepare(ctx, b.Path+"/"+pt.subject, pt.params)
	if err != nil {
		return err
	}
	counts := [2]int{pt.count, pt.count}
	quiet := measure.Result.Undisturbed
	if !pt.sleeps {
		row.CoreToCore = measure.CoreToCore(b.Lead, b.Follow)
	} else {
		quiet = func(measure.Result) bool { return true } // a sleeper cannot tell
	}
	step := pt.takes / time.Duration(b.Runs)
	if pt.count == 0 {
		for i, e := range []*measure.Entry{reference, subject} {
			// Ten operations last a microsecond or a few hundred.
			if counts[i], err = measure.Calibrate(ctx, e, b.length(), 10, quiet); err != nil {
				return err
			}
		}
		step = 2 * b.length()
		b.progress.Done(step)
	}
	refs, subs, disturbed, err := measure.Alternate(ctx, b.Runs, reference, counts[0], subject, counts[1],
		quiet, func() { b.progress.Done(step) })
	if err != nil {
		return err
	}
	slept := 1.0
	for i := range subs {
		row.ReferenceRuns = append(row.ReferenceRuns, pt.value(refs[i], pt.size))
		row.Runs = append(row.Runs, pt.value(subs[i], pt.size))
		slept = min(slept, refs[i].Slept(), subs[i].Slept())
	}
	row.Disturbed = disturbed
	if pt.sleeps && slept < 0.9 {
		row.Note = fmt.Sprintf("in one run a side slept in only %.0f %% of the rounds: its message had come already", 100*slept)
	}
	return nil
}
