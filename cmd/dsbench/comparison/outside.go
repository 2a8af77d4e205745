package comparison

import (
	"context"

	"exnet/cmd/dsbench/workload"
)

// A tool is a path of programs of others, which measure what is measured here, too.
type tool struct {
	plan workload.Plan
	test string // of workload
}

// outside makes a way of a test of package workload, without the library.
func outside(test string) func(context.Context, *Plan) (carrier, error) {
	return func(ctx context.Context, p *Plan) (carrier, error) {
		t := &tool{workload.Plan{Group: workload.Library, Runs: 1, Quick: true, CPUs: p.CPUs}, test}
		return t, t.plan.Fetch(ctx, test)
	}
}

func (t *tool) daemons() []int { return nil }

func (t *tool) Close() error { return nil }

func (t *tool) run(ctx context.Context, _ load, _ int) (o outcome, spent spending, err error) {
	value, used, err := t.plan.Once(ctx, t.test)
	o.Rate, o.roundTrip = value, 2*value // bytes a second, or half of a round trip in ns
	return o, spending(used), err
}
