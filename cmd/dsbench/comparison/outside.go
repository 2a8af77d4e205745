package comparison

import (
	"context"

	"exnet/cmd/dsbench/workload"
)

// A tool is a path of programs of others that measure themselves.
type tool struct {
	plan  workload.Plan
	tests map[string]string // of workload, by load
	check bool              // they measure what is measured here, too, and have to agree
}

// outside makes a way of tests of package workload, without the library.
func outside(group workload.Group, tests map[string]string) func(context.Context, *Plan) (carrier, error) {
	return func(ctx context.Context, p *Plan) (carrier, error) {
		t := &tool{workload.Plan{Group: group, Runs: 1, Quick: true, CPUs: p.CPUs}, tests, group == workload.Library}
		for _, test := range tests {
			if err := t.plan.Fetch(ctx, test); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
}

func (t *tool) daemons() []int { return nil }

func (t *tool) Close() error { return nil }

func (t *tool) run(ctx context.Context, l load, _ int) (o outcome, spent spending, err error) {
	value, used, err := t.plan.Once(ctx, t.tests[l.name])
	o.Rate, o.roundTrip = value, 2*value // bytes a second, or half of a round trip in ns
	return o, spending(used), err
}
