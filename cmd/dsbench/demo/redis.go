package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
)

// The paths of the rows, and what is at their sides.
const (
	overLoopback = "ext-ds"
	overBridge   = "ext-ds-bridge"
	overExn0     = "exn0"
	redisName    = "redis"
	pumpName     = "our program pump"
)

// trial prepares one of the tests: of redis, or of our pump where redis cannot be had.
func (s *show) trial(ctx context.Context, ofRedis, ofPump string) (*workload.Trial, error) {
	if s.Library == "" {
		return nil, missing{errors.New("no libextds.so beside this program or in ../lib: build it with make")}
	}
	for _, test := range []string{ofRedis, ofPump} {
		if t := s.trials[test]; t != nil {
			return t, nil
		}
	}
	plan := workload.Plan{Library: s.Library, Pump: s.Pump, CPUs: s.cpus, Quick: true}
	if s.program != pumpName {
		if s.program == "" {
			s.progress.Doing("fetching redis, if it is not there")
		}
		began := time.Now()
		fetching, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("it took more than %v", fetchTime))
		t, err := plan.Trial(fetching, ofRedis)
		cancel()
		s.until = s.until.Add(time.Since(began)) // no time of the scene's
		if err == nil {
			s.trials[ofRedis] = t
			if s.program == "" {
				s.program = redisName
				s.report.Describe(overLoopback, "redis "+t.Version(ctx)+" over loopback, started by exn-tun run")
			}
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.report.Skip("redis", fmt.Errorf("not in PATH, and its package cannot be had; install redis-server and redis-tools, or run it again with a network. Our own program is shown instead (%w)", err))
		s.program = pumpName
		s.report.Describe(overLoopback, "our program pump over loopback, started by exn-tun run")
	}
	if s.Pump == "" {
		return nil, missing{errors.New("no program pump beside this one: build it with make")}
	}
	return plan.Trial(ctx, ofPump)
}

// redis plays the first scene.
func (s *show) redis(ctx context.Context) error {
	many, err := s.trial(ctx, workload.RedisRequests, workload.PumpRequests)
	if err != nil {
		return err
	}
	plain, lanes := workload.Way{}, workload.Way{Library: true}
	all, err := s.pairs(ctx, "50 clients", many, plain, lanes, time.Now().Add(time.Until(s.until)/2))
	if err != nil {
		return err
	}
	const against = "kernel TCP over loopback, the same programs"
	s.rows(all, "", overLoopback, against)
	lone, err := s.trial(ctx, workload.RedisLone, workload.PumpLone)
	if err != nil {
		return err
	}
	if all, err = s.pairs(ctx, "one client", lone, plain, lanes, s.until); err != nil {
		return err
	}
	row := report.Row{Test: "half-round-trip", Path: overLoopback, Unit: report.Nanoseconds, Against: against,
		What: "half of the time from a request of one client to its answer, mean"}
	s.report.Rows = append(s.report.Rows, s.row(all, row, func(f workload.Figure) float64 { return 1e9 / f.Rate / 2 }))
	return nil
}

// bridge plays the second scene.
func (s *show) bridge(ctx context.Context) error {
	if s.Daemon == "" {
		return missing{errors.New("no program exn-tun beside this one or in PATH: build it with make")}
	}
	made, err := path.PlainBridge(path.OwnUser)
	if err != nil {
		if left := needsRoot(err); left != nil {
			return left
		}
		return err
	}
	defer made.Close()
	t, err := s.trial(ctx, workload.RedisRequests, workload.PumpRequests)
	if err != nil {
		return err
	}
	s.report.Describe(overBridge, s.program+" between two network namespaces on a bridge, as containers are, started by exn-tun run")
	var all series
	var before []workload.Figure
	way := workload.Way{Library: true, Path: made}
	const stages = 2
	for stage := range stages {
		what := "before exn-tun bridge"
		if stage == 1 {
			what = "with exn-tun bridge"
			s.progress.Doing("exn-tun bridge is started")
			if err := made.Announce(s.Daemon); err != nil {
				return err
			}
			t.Recount()
		}
		until := time.Now().Add(time.Until(s.until) / time.Duration(stages-stage))
		again, most := "", s.Pairs
		if stage == 1 {
			most = len(before)
		}
		for done := 0; done < most && (done == 0 || time.Now().Before(until)); {
			s.progress.Doing(fmt.Sprintf("%s, run %d of %d%s", what, done+1, s.Pairs, again))
			f, err := t.Run(ctx, way, s.Length)
			if err != nil {
				return err
			}
			if s.disturbed(f) && time.Now().Before(until) {
				again = tryAgain
				continue
			}
			again = ""
			s.progress.Done(s.Length + starting)
			if stage == 0 {
				before = append(before, f)
			} else {
				all.add(before[done], f, s.disturbed(f) || s.disturbed(before[done]))
			}
			done++
		}
	}
	s.rows(all, "bridge-", overBridge, "kernel TCP over the bridge: the same programs before exn-tun bridge was started")
	return nil
}
