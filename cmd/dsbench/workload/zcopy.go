package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"exnet/cmd/dsbench/report"
)

// zcopyTests compare large writes that their reader copies (ZCopy) with the same
// writes through windows (BCopy): both sides have lanes. A message is read into a place
// as large as itself. Hot is always the same memory; cold is as much as no cache
// holds, in turn.
func (p Plan) zcopyTests(run func(size, memory int, value func(pumped) float64) func(context.Context, *arena, int) (outcome, error)) (tests []test) {
	const much = 256 << 20
	rate := func(r pumped) float64 { return r.Rate }
	cost := func(r pumped) float64 { return r.CPU / (float64(r.Bytes) / 1e9) }
	for _, size := range []int{16 << 20, 64 << 20} {
		for _, of := range []struct {
			name, what string
			memory     int
		}{{"hot", "out of and into memory as large as a write", size}, {"cold", "out of and into 256 MiB in turn", much}} {
			stream := test{name: "zcopy-" + of.name, size: size, unit: report.BytesPerSecond, what: "one stream by ZCopy, " + of.what,
				against: "the same stream by the window of its lane (BCopy)", announces: true, run: run(size, of.memory, rate)}
			each := stream
			each.name, each.unit, each.run = stream.name+"-cpu", report.Nanoseconds, run(size, of.memory, cost)
			each.what = "CPU time of both sides for a GB of " + stream.what
			each.target = report.AtMost(report.Ratio, 0.7)
			tests = append(tests, stream, each)
		}
	}
	return tests
}

// large has both sides take lanes, and announce writes or not.
func (a *arena) large(announces bool) {
	const least = 1 << 20 // below all that is measured
	a.server, a.client, a.env = true, true, []string{"EXN_DS_ZCOPY="}
	if announces {
		a.env[0] += strconv.Itoa(least)
	}
}

func goZCopy(size, memory int, value func(pumped) float64) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (outcome, error) {
		a.large(a.client)
		g := goPump{mode: "stream", env: a.env, args: []string{"size=" + strconv.Itoa(size), "memory=" + strconv.Itoa(memory)}, value: value}
		return g.run(ctx, a, n)
	}
}

func (p Plan) libraryZCopy(size, memory int, value func(pumped) float64) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		a.large(a.client)
		port := freePort()
		if _, err := a.serve(ctx, port, a.Pump, "serve", a.host, strconv.Itoa(port)); err != nil {
			return o, err
		}
		text, err := a.run(ctx, a.Pump, "stream", a.host, strconv.Itoa(port), strconv.FormatFloat(p.seconds(), 'f', -1, 64),
			"size="+strconv.Itoa(size), "memory="+strconv.Itoa(memory), "json")
		if err != nil {
			return o, err
		}
		var r pumped
		if err := json.Unmarshal(text, &r); err != nil {
			return o, fmt.Errorf("pump printed what is no result: %w: %s", err, last(text))
		}
		o.value = value(r)
		return o, nil
	}
}
