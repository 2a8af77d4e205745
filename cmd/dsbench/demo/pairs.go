package demo

import (
	"context"
	"fmt"
	"time"

	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
)

// A series is the runs of a trial over two ways.
type series struct {
	plain, lanes []workload.Figure
	disturbed    int // pairs that count nevertheless
}

// What makes a run disturbed: other programs took so much of all CPUs, or the processor was so much
// slower. It is less strict than benchmarks are: a notebook changes its clock.
const (
	mostForeign = 0.1
	mostSlower  = 0.3

	// mostlyDisturbed is the share of disturbed pairs beyond which there is no result.
	mostlyDisturbed = 0.5
)

// whyBusy is the reason why such a figure is not shown.
const whyBusy = report.MachineBusy + ": other programs took CPU time during most of the runs"

func (s *show) disturbed(f workload.Figure) bool {
	return f.Foreign > mostForeign*float64(max(1, s.report.Machine.CPUs)) || f.Slower > mostSlower
}

// pairs makes runs in turn, plain and with EXT-DS. A disturbed pair is made again until a time,
// after which no more are begun, but for one.
func (s *show) pairs(ctx context.Context, what string, t *workload.Trial, plain, lanes workload.Way, until time.Time) (all series, err error) {
	again := ""
	for len(all.lanes) < s.Pairs && (all.lanes == nil || time.Now().Before(until)) {
		var pair [2]workload.Figure
		for i, way := range []workload.Way{plain, lanes} {
			s.progress.Doing(fmt.Sprintf("%s, %s, run %d of %d%s", what, named[i], len(all.lanes)+1, s.Pairs, again))
			if pair[i], err = t.Run(ctx, way, s.Length); err != nil {
				return all, err
			}
		}
		noisy := s.disturbed(pair[0]) || s.disturbed(pair[1])
		if noisy && time.Now().Before(until) {
			again = tryAgain
			continue
		}
		again = ""
		s.progress.Done(2 * (s.Length + starting))
		all.add(pair[0], pair[1], noisy)
	}
	return all, nil
}

// tryAgain is said of a run that is made again.
const tryAgain = ", again: the machine was busy"

// named are the two columns of the tables.
var named = [2]string{"kernel TCP", "EXT-DS"}

func (all *series) add(plain, lanes workload.Figure, noisy bool) {
	all.plain, all.lanes = append(all.plain, plain), append(all.lanes, lanes)
	if noisy {
		all.disturbed++
	}
}

// row is what a value of the figures comes to.
func (s *show) row(all series, row report.Row, value func(workload.Figure) float64) report.Row {
	for i := range all.lanes {
		row.Runs = append(row.Runs, value(all.lanes[i]))
		row.ReferenceRuns = append(row.ReferenceRuns, value(all.plain[i]))
		row.Disturbed = all.disturbed
	}
	if float64(all.disturbed) > mostlyDisturbed*float64(len(all.lanes)) {
		row.NoResult = whyBusy
	}
	for _, f := range all.lanes {
		if !f.Lanes {
			row.Note = "In a run of EXT-DS no connection was seen in shared memory"
		}
	}
	return row.Finish()
}

// rows adds those of a trial: requests a second, and the CPU time of each.
func (s *show) rows(all series, prefix, path, against string) {
	base := report.Row{Path: path, Against: against}
	rate := base
	rate.Test, rate.Unit, rate.What = prefix+"requests", report.MessagesPerSec, "requests a second, 50 clients"
	cpu := base
	cpu.Test, cpu.Unit, cpu.What = prefix+"cpu", report.Nanoseconds, "CPU time of server and clients for a request"
	s.report.Rows = append(s.report.Rows, s.row(all, rate, func(f workload.Figure) float64 { return f.Rate }),
		s.row(all, cpu, func(f workload.Figure) float64 { return float64(f.CPU) }))
}
