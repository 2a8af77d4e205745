package rawfabric

import (
	"context"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// idleCPU fills row with the CPU use of two waiting processes.
func idleCPU(ctx context.Context, b *bench, pt *point, row *report.Row) error {
	e, err := b.duo.Prepare(ctx, b.Path+"/"+pt.subject, pt.params)
	if err != nil {
		return err
	}
	if _, err := e.Run(ctx, 0); err != nil {
		return err
	}
	r, err := e.Run(ctx, pt.count)
	if err != nil {
		return err
	}
	b.progress.Done(pt.takes)
	row.Runs = []float64{100 * (r.Lead.CPU + r.Follow.CPU)}
	return nil
}

// residentGrowth fills row with the shared memory that became resident.
func residentGrowth(ctx context.Context, b *bench, pt *point, row *report.Row) error {
	e, err := b.duo.Prepare(ctx, b.Path+"/"+pt.subject, pt.params)
	if err != nil {
		return err
	}
	before, err := e.Run(ctx, 0)
	if err != nil {
		return err
	}
	after, err := e.Run(ctx, pt.count)
	if err != nil {
		return err
	}
	b.progress.Done(pt.takes)
	row.Runs = []float64{float64(residentOf(after) - residentOf(before))}
	return nil
}

// residentOf adds up what the two processes see, each piece of memory once.
func residentOf(r measure.Result) (sum int64) {
	for inode, n := range r.Lead.Resident {
		sum += max(n, r.Follow.Resident[inode])
	}
	for inode, n := range r.Follow.Resident {
		if _, both := r.Lead.Resident[inode]; !both {
			sum += n
		}
	}
	return sum
}

// allocations fills row with the heap objects of an operation.
func allocations(ctx context.Context, b *bench, pt *point, row *report.Row) error {
	e, err := b.duo.Prepare(ctx, b.Path+"/"+pt.subject, pt.params)
	if err != nil {
		return err
	}
	if _, err := e.Run(ctx, pt.count); err != nil { // what is made on first use
		return err
	}
	r, err := e.Run(ctx, pt.count)
	if err != nil {
		return err
	}
	row.Runs = []float64{r.MallocsPerOp()}
	return nil
}
