package demo

import (
	"context"
	"errors"
	"time"

	"exnet/cmd/dsbench/exn0"
	"exnet/cmd/dsbench/report"
)

// exnPlan is what is shown of the interface: one stream, and half round trips.
func (p Plan) exnPlan(cpus [2]int) exn0.Plan {
	return exn0.Plan{Tests: []string{"tcp-1-veth", "rtt-p50"}, Runs: p.Pairs, Quick: true, Daemon: p.Daemon, CPUs: cpus}
}

// errLate ends the scene on a machine that is too slow, or too busy, for all of its runs.
var errLate = errors.New("the time for it was over before there was a figure: run it again when the machine is quiet")

func exn0Takes(p Plan) time.Duration {
	const building = 3 * time.Second
	return p.exnPlan([2]int{}).Takes() + building
}

// exn0 plays the third scene.
func (s *show) exn0(ctx context.Context) error {
	if s.Daemon == "" {
		return missing{errors.New("no program exn-tun beside this one or in PATH: build it with make")}
	}
	var r report.Report
	timed, cancel := context.WithDeadlineCause(ctx, s.until, errLate)
	defer cancel()
	err := s.exnPlan(s.cpus).Run(timed, &r, s.progress)
	if errors.Is(err, errLate) && len(r.Rows) > 0 {
		err = nil // those are enough
	}
	if err != nil {
		if left := needsRoot(err); left != nil {
			return left
		}
		return err
	}
	s.report.Describe(overExn0, "kernel TCP between two network namespaces over the interface exn0")
	s.report.Describe("relay", "the same over two TUNs with a process that copies between them: the least such a program can do")
	s.report.Describe("veth", "the same over a veth pair of the kernel")
	for _, row := range r.Rows {
		if float64(row.Disturbed) > mostlyDisturbed*float64(len(row.Runs)) {
			row.NoResult = whyBusy
			row = row.Finish()
		}
		row.Target, row.Met = nil, nil // a demonstration misses none
		s.report.Rows = append(s.report.Rows, row)
	}
	for _, f := range r.Failures {
		s.report.Fail(f.Test, errors.New(f.Error))
	}
	return nil
}
