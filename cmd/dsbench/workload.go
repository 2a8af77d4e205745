package main

import (
	"errors"
	"fmt"
	"strings"

	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
	"exnet/directsockets/launch"
)

// workloadFlags are those of the commands that measure real programs.
type workloadFlags struct {
	Quick bool     `help:"Shorter runs and no more pairs than asked for: a first impression."`
	JSON  bool     `name:"json" help:"Print one JSON object instead of a table."`
	Runs  int      `default:"5" placeholder:"N" help:"Pairs of runs, without the library and with it, of each row (5)."`
	CPUs  []int    `name:"cpus" placeholder:"A,B" help:"Two CPUs, for what is pinned (the first two this process may use)."`
	Test  []string `placeholder:"NAME" help:"Only these tests, separated by commas; redis means redis-get, redis-cpu and so on."`
	Check bool     `help:"Exit with 3 if a target is missed."`
}

// dsCommand is `dsbench ds`.
type dsCommand struct {
	Preload bool `help:"Measure the preloaded library, the only one so far."`
	workloadFlags
}

// Help is the long text of --help.
func (*dsCommand) Help() string { return workloadHelp(workload.Library) }

// Run measures and prints.
func (c *dsCommand) Run(in *invocation) error {
	if !c.Preload {
		return usageError{errors.New("say what to measure: --preload")}
	}
	return c.workloadFlags.measure(in, workload.Library)
}

// appsCommand is `dsbench apps`.
type appsCommand struct{ workloadFlags }

// Help is the long text of --help.
func (*appsCommand) Help() string { return workloadHelp(workload.Programs) }

// Run measures and prints.
func (c *appsCommand) Run(in *invocation) error { return c.measure(in, workload.Programs) }

func workloadHelp(g workload.Group) string {
	return "Unmodified Debian programs, fetched and unpacked but not installed, talk TCP over loopback, in turn without the library and with it " +
		"(libextds.so beside dsbench or in ../lib, or EXN_LIBRARY). Each run has a new server. Shown are medians, their spread, the ratio to the kernel's TCP, " +
		"and whether the project's target is met. Run it on a machine that has nothing else to do.\n\n" +
		"Tests: " + strings.Join(workload.Tests(g), ", ") + ".\n\n" + exitHelp
}

func (c *workloadFlags) measure(in *invocation, group workload.Group) error {
	first, second, err := twoCPUs(c.CPUs)
	if err != nil {
		return usageError{err}
	}
	plan := workload.Plan{Group: group, Tests: c.Test, Runs: c.Runs, Quick: c.Quick, CPUs: [2]int{first, second}}
	if err := plan.Check(); err != nil {
		return usageError{err}
	}
	if plan.Library, err = launch.Library(); err != nil {
		return usageError{err}
	}
	ctx, stop := interruptible()
	defer stop()

	r := &report.Report{Machine: report.ThisMachine(append([]string{"dsbench"}, in.args...), nil)}
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
