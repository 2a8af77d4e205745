package main

import (
	"fmt"
	"slices"
	"strings"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/rawfabric"
	"exnet/cmd/dsbench/report"
)

// shmPath is the name of the measured backend, fabric/shm.
const shmPath = "shm"

// fabricCommand is `dsbench fabric`.
type fabricCommand struct {
	Quick  bool     `help:"Shorter runs and a shorter look at idle nodes: a first impression."`
	JSON   bool     `name:"json" help:"Print one JSON object instead of a table."`
	Runs   int      `default:"5" placeholder:"N" help:"Pairs of runs, reference and fabric, of each row (5)."`
	Fabric string   `placeholder:"DIR" help:"Measure in this fabric directory instead of private ones."`
	CPUs   []int    `name:"cpus" placeholder:"A,B" help:"Two CPUs, one for each process (the first two this process may use)."`
	Test   []string `placeholder:"NAME" help:"Only these tests, separated by commas; rma means rma-put, rma-get and so on."`
	Check  bool     `help:"Exit with 3 if a target is missed."`
}

// Help is the long text of --help.
func (*fabricCommand) Help() string {
	return "Two processes, each pinned to a core, exchange VELO messages and RMA operations, and in turn do the same through bare shared memory " +
		"or an eventfd. All data is verified. Shown are medians, their spread, the ratio to the reference, and whether the project's target is met.\n\n" +
		"Tests: " + strings.Join(rawfabric.Tests(), ", ") + ".\n\n" + exitHelp
}

// Run measures and prints.
func (c *fabricCommand) Run(in *invocation) error {
	lead, follow, err := twoCPUs(c.CPUs)
	if err != nil {
		return usageError{err}
	}
	plan := rawfabric.Plan{Path: shmPath, Dir: c.Fabric, Tests: c.Test, Runs: c.Runs, Quick: c.Quick, Lead: lead, Follow: follow}
	if err := plan.Check(); err != nil {
		return usageError{err}
	}
	ctx, stop := interruptible()
	defer stop()

	r := &report.Report{Machine: report.ThisMachine(append([]string{"dsbench"}, in.args...), []int{lead, follow})}
	progress := report.NewProgress(in.stderr, plan.Takes())
	err = plan.Run(ctx, r, progress)
	progress.End()

	print := r.WriteTable
	if c.JSON {
		print = r.WriteJSON
	}
	if err := print(in.stdout); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return verdict(r, err, c.Check)
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
