package comparison

import (
	"context"
	"fmt"
	"os"

	"exnet/cmd/dsbench/measure"
)

// A raw is the fabric itself, between the two processes of a Duo.
type raw struct {
	plan  *Plan
	dir   string
	duo   *measure.Duo
	ready map[rawKey]rawEntry
}

type rawKey struct {
	load string
	size int
}

type rawEntry struct {
	entry *measure.Entry
	count int // operations of a run
}

func openFabric(ctx context.Context, p *Plan) (carrier, error) {
	dir, err := os.MkdirTemp("", "dsbench-fabric-")
	if err != nil {
		return nil, fmt.Errorf("make a private fabric directory: %w", err)
	}
	duo, err := measure.Start(p.CPUs[0], p.CPUs[1])
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	context.AfterFunc(ctx, duo.Close)
	return &raw{p, dir, duo, map[rawKey]rawEntry{}}, nil
}

func (f *raw) Close() error {
	f.duo.Close()
	return os.RemoveAll(f.dir)
}

// What fits one VELO message, and what a PUT of a numbered buffer may have.
const (
	smallestVELO, largestVELO = 8, 120
	smallestPut, largestPut   = 16, 8 << 20
)

// messagesAndPuts is what the fabric itself carries.
func messagesAndPuts(l load, size int) bool {
	switch l.name {
	case "stream":
		return size >= smallestPut && size <= largestPut && size%8 == 0
	case "rr":
		return size >= smallestVELO && size <= largestVELO
	}
	return false
}

func (f *raw) daemons() []int { return f.duo.Processes() }

// run makes one run; the first of a load finds out how many operations that takes.
func (f *raw) run(ctx context.Context, l load, size int) (o outcome, spent spending, err error) {
	contender, buffers := f.plan.Backend+"/velo-ping", 0
	if l.name == "stream" {
		contender, buffers = f.plan.Backend+"/put", 4
	}
	key := rawKey{l.name, size}
	e, found := f.ready[key]
	if !found {
		if e.entry, err = f.duo.Prepare(ctx, contender, measure.Params{Size: size, Buffers: buffers, Dir: f.dir}); err != nil {
			return o, spent, err
		}
		if e.count, err = measure.Calibrate(ctx, e.entry, f.plan.length(), 10, measure.Result.Undisturbed); err != nil {
			return o, spent, err
		}
		f.ready[key] = e
	}
	r, err := e.entry.Run(ctx, e.count)
	if err != nil {
		return o, spent, err
	}
	o.Rate = float64(size) * 1e9 / r.Lead.PerOp
	o.roundTrip = r.Lead.PerOp
	return o, spent, nil
}
