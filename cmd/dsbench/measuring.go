package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/page"
	"exnet/cmd/dsbench/report"
)

// measuring are the flags of every command that measures.
type measuring struct {
	Quick bool     `help:"Make shorter runs, for a first impression."`
	Runs  int      `default:"${runs}" placeholder:"N" help:"How many runs each row has, each right after a run of its reference (default: ${runs})."`
	Test  []string `placeholder:"NAME" help:"Make only these tests, separated by commas. The part of a name before a hyphen stands for all tests that begin with it: rma for rma-put, rma-get and so on."`
	Check bool     `help:"Exit with code 3 if a target is missed."`
	output
}

// output are the flags of every command that prints a report.
type output struct {
	JSON bool   `name:"json" short:"J" help:"Print one JSON object instead of a table."`
	Out  string `placeholder:"DIR" help:"Also write the report into this directory: index.html with figures, results.json and results.csv."`
}

// pinning is the flag of those that pin processes.
type pinning struct {
	CPUs []int `name:"cpus" placeholder:"A,B" help:"Pin the two measured processes to these CPUs (default: the first two that dsbench may use)."`
}

// A plan is what a command measures, known to be possible.
type plan interface {
	Takes() time.Duration
	Run(ctx context.Context, r *report.Report, progress *report.Progress) error
}

// run measures and prints; pinned is where, if that is the same for all rows.
func (m *measuring) run(in *invocation, p plan, pinned []int) error {
	return m.output.run(in, p, pinned, m.Check)
}

func (o *output) run(in *invocation, p plan, pinned []int, check bool) error {
	if o.Out != "" {
		if err := page.Make(o.Out); err != nil {
			return usageError{err}
		}
	}
	ctx, stop := interruptible()
	defer stop()
	r := &report.Report{Machine: report.ThisMachine(append([]string{"dsbench"}, in.args...), pinned)}
	progress := report.NewProgress(in.stderr, p.Takes())
	interrupted := p.Run(ctx, r, progress)
	progress.End()

	print := r.WriteMatrix
	if o.JSON {
		print = r.WriteJSON
	}
	unprinted := printed("the report", print(in.stdout))
	if o.Out != "" {
		if err := page.Write(o.Out, r); err != nil && unprinted == nil {
			return fmt.Errorf("%w; the results above are complete", err)
		} else if err != nil {
			return err
		}
		if !o.JSON {
			fmt.Fprintf(in.stdout, "\nThe report with figures is in %s.\n", filepath.Join(o.Out, page.Index))
		}
	}
	if unprinted != nil {
		return unprinted
	}
	return verdict(r, interrupted, check)
}

// printed says of an error of standard output what helps.
func printed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("print %s: %w; free some space where standard output goes", what, err)
	}
	return fmt.Errorf("print %s: %w", what, err)
}

// twoCPUs returns the CPUs for the two processes: the given ones, or the first
// two there are.
func twoCPUs(given []int) (lead, follow int, err error) {
	usable, err := measure.CPUs()
	if err != nil {
		return 0, 0, err
	}
	const twoNeeded = "two processes that poll need a CPU each"
	switch {
	case len(usable) < 2:
		return 0, 0, fmt.Errorf("%s, and this one may only use %s: widen its affinity (taskset -c) or its cpuset", twoNeeded, measure.FormatCPUs(usable))
	case len(given) == 0:
		return usable[0], usable[1], nil
	case len(given) != 2 || given[0] == given[1]:
		return 0, 0, fmt.Errorf("%s: name two different ones, as in --cpus %d,%d", twoNeeded, usable[0], usable[1])
	}
	for _, cpu := range given {
		if !slices.Contains(usable, cpu) {
			return 0, 0, fmt.Errorf("CPU %d is not there or not allowed: choose two of %s with --cpus", cpu, measure.FormatCPUs(usable))
		}
	}
	return given[0], given[1], nil
}
