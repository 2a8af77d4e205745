package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"exnet/cmd/dsbench/report"
)

// pacedTests are where spinning does not pay: loads that leave time to sleep, and processes that may not
// have two CPUs.
func (p Plan) pacedTests() (tests []test) {
	whole := p
	whole.Quick = false // in less there are too few periods
	redis := []string{"redis-server", "redis-tools"}
	for _, gap := range []time.Duration{30 * time.Microsecond, 150 * time.Microsecond, time.Millisecond} {
		tests = append(tests, test{name: "paced-" + strconv.Itoa(int(gap.Microseconds())) + "us", size: pacedSize, unit: report.Nanoseconds,
			what:   "CPU time of both sides for a request and its answer, one each " + gap.String() + ", the sides on two CPUs",
			target: report.AtMost(report.Ratio, 1.5), packages: redis, upgrades: true, run: p.paced(gap)})
	}
	return append(tests,
		test{name: "quota-get", unit: report.MessagesPerSec, what: "redis-benchmark GET, 50 clients, server and client in a cgroup of one CPU", target: report.AtLeast(report.Ratio, 1),
			packages: redis, upgrades: true, counted: true, run: limited(redisBenchmark("", "-c", "50"))},
		test{name: "quota-get-one", unit: report.MessagesPerSec, what: "redis-benchmark GET, one client, server and client in a cgroup of one CPU", target: report.AtLeast(report.Ratio, 1),
			packages: redis, upgrades: true, counted: true, run: limited(redisBenchmark("", "-c", "1"))},
		test{name: "quota-throttled", unit: report.Percent, what: "of the periods of that cgroup in which it used up its quota, with a message each " + quotaGap.String() + " between two CPUs, those more than without the library",
			target: report.AtMost(report.Value, 0), packages: redis, alone: whole.throttled(whole.paced(quotaGap))},
	)
}

const (
	pacedSize = 64
	quotaGap  = 50 * time.Microsecond  // TCP does that with less than one CPU, and who spins in between needs more
	beginning = 400 * time.Millisecond // until both programs move messages
)

// paced is a request each gap, by the program pump, whose client sleeps in between.
func (p Plan) paced(gap time.Duration) func(context.Context, *arena, int) (outcome, error) {
	rate := float64(time.Second) / float64(gap)
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		a.clientCPUs, a.serverCPUs = p.firstCPU(), p.secondCPU()
		port := freePort()
		server, err := a.serve(ctx, port, a.Pump, "serve", a.host, strconv.Itoa(port))
		if err != nil {
			return o, err
		}
		pids := []int{server.cmd.Process.Pid}
		before, err := scheduled(pids)
		if err != nil {
			return o, err
		}
		text, err := a.run(ctx, a.Pump, "pingpong", a.host, strconv.Itoa(port), strconv.FormatFloat(p.seconds(), 'f', -1, 64),
			"size="+strconv.Itoa(pacedSize), "rate="+strconv.FormatFloat(rate, 'f', -1, 64), "json")
		if err != nil {
			return o, err
		}
		after, err := scheduled(pids)
		if err != nil {
			return o, err
		}
		var said struct{ Bytes, CPU float64 }
		if err := json.Unmarshal(text, &said); err != nil || said.Bytes == 0 || said.CPU == 0 {
			return o, fmt.Errorf("pump printed what is no result: %w: %s", err, last(text))
		}
		o.value = (said.CPU + float64(after-before)) / (said.Bytes / pacedSize)
		return o, nil
	}
}

// limited runs a load in a cgroup that has one CPU's time.
func limited(run func(context.Context, *arena, int) (outcome, error)) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		end, err := a.limit()
		if err != nil {
			return o, err
		}
		defer end()
		return run(ctx, a, n)
	}
}

// limit puts the programs to come into a cgroup that has one CPU's time. end ends them.
func (a *arena) limit() (end func(), err error) {
	c, err := newCgroup(oneCPU)
	if err != nil {
		return nil, err
	}
	a.group = c.dir
	return func() {
		a.close()
		if err := c.close(); err != nil {
			a.report.Fail("removing the cgroup "+c.dir, err)
		}
	}, nil
}

// throttled compares how often a load uses up the quota of a cgroup, with and without the library, once its
// programs have begun.
func (p Plan) throttled(run func(context.Context, *arena, int) (outcome, error)) func(context.Context, *bench, *test, *report.Row) error {
	return func(ctx context.Context, b *bench, t *test, row *report.Row) error {
		var sum [2]float64
		for range b.Runs {
			var share [2]float64
			for i := range share {
				inside := &test{run: func(ctx context.Context, a *arena, n int) (o outcome, err error) {
					end, err := a.limit()
					if err != nil {
						return o, err
					}
					defer end()
					group := &cgroup{dir: a.group}
					var timesThen, periodsThen float64
					begun := make(chan error, 1)
					time.AfterFunc(beginning, func() {
						var err error
						timesThen, periodsThen, err = group.throttled()
						begun <- err
					})
					o, err = run(ctx, a, n)
					if err := errors.Join(err, <-begun); err != nil {
						return o, err
					}
					times, periods, err := group.throttled()
					o.value = 100 * (times - timesThen) / max(1, periods-periodsThen)
					return o, err
				}}
				o, _, err := b.one(ctx, inside, way{library: i == 1}, 0)
				if err != nil {
					return err
				}
				share[i] = o.value
				sum[i] += o.value
			}
			row.Runs = append(row.Runs, max(0, share[1]-share[0]))
		}
		row.Note = fmt.Sprintf("%.1f %% with the library and %.1f %% without", sum[1]/float64(b.Runs), sum[0]/float64(b.Runs))
		return nil
	}
}
