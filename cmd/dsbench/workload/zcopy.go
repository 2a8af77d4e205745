package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"exnet/cmd/dsbench/report"
)

// A large stream is of writes that their reader copies, beside the same through windows (BCopy):
// both sides have lanes. A message is read into a place as large as itself.
type large struct {
	size, memory int
	registered   bool // out of a buffer that the peer has mapped; else out of any memory
	value        func(pumped) float64
}

// zcopyTests are those in hot memory, always the same, and in cold, as much as no cache holds, in
// turn: of buffers as many as windows leave room for.
func zcopyTests(run func(l large) func(context.Context, *arena, int) (outcome, error)) (tests []test) {
	rate := func(r pumped) float64 { return r.Rate }
	cost := func(r pumped) float64 { return r.CPU / (float64(r.Bytes) / 1e9) }
	for _, way := range []struct {
		name, by   string
		registered bool
		much       int
	}{{"zcopy", "by ZCopy", false, 256 << 20}, {"buffer", "out of registered buffers", true, 192 << 20}} {
		for _, size := range []int{16 << 20, 64 << 20} {
			for _, of := range []struct {
				name, what string
				memory     int
			}{
				{"hot", "out of and into memory as large as a write", size},
				{"cold", fmt.Sprintf("out of and into %d MiB in turn", way.much>>20), way.much},
			} {
				l := large{size, of.memory, way.registered, rate}
				stream := test{name: way.name + "-" + of.name, size: size, unit: report.BytesPerSecond, what: "one stream " + way.by + ", " + of.what,
					against: "the same stream by the window of its lane (BCopy)", announces: true, run: run(l)}
				each := stream
				l.value = cost
				each.name, each.unit, each.run = stream.name+"-cpu", report.Nanoseconds, run(l)
				each.what = "CPU time of both sides for a GB of " + stream.what
				if of.memory > size {
					each.target = report.AtMost(report.Ratio, 0.7)
				}
				tests = append(tests, stream, each)
			}
		}
	}
	return tests
}

// args are those of pump and gopump, in an arena where both sides take lanes, and announce writes
// if it says so.
func (l large) args(a *arena) []string {
	const least = 1 << 20 // below all that is measured
	announces := a.client
	a.server, a.client, a.env = true, true, []string{"EXN_DS_ZCOPY="}
	args := []string{"size=" + strconv.Itoa(l.size), "memory=" + strconv.Itoa(l.memory)}
	switch {
	case announces && l.registered:
		args = append(args, "buffer")
	case announces:
		a.env[0] += strconv.Itoa(least)
	}
	return args
}

func goLarge(l large) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (outcome, error) {
		g := goPump{mode: "stream", args: l.args(a), value: l.value}
		g.env = a.env
		return g.run(ctx, a, n)
	}
}

func (p Plan) libraryLarge(l large) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		args := append([]string{a.Pump, "stream", a.host, "", strconv.FormatFloat(p.seconds(), 'f', -1, 64), "json"}, l.args(a)...)
		port := freePort()
		args[3] = strconv.Itoa(port)
		if _, err := a.serve(ctx, port, a.Pump, "serve", a.host, args[3]); err != nil {
			return o, err
		}
		text, err := a.run(ctx, args...)
		if err != nil {
			return o, err
		}
		var r pumped
		if err := json.Unmarshal(text, &r); err != nil {
			return o, fmt.Errorf("pump printed what is no result: %w: %s", err, last(text))
		}
		o.value = l.value(r)
		return o, nil
	}
}
