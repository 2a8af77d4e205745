package main

import (
	"fmt"
	"os/exec"
	"strings"

	"exnet/cmd/dsbench/comparison"
)

// comparing are the flags of the commands that compare all paths.
type comparing struct {
	pinning
	Path   []string `placeholder:"NAME" help:"Measure only these paths, separated by commas, and kernel TCP over loopback."`
	Verify bool     `help:"Verify every byte that arrives, as a program that uses its data would touch it, and not only the ends of each read."`
	Daemon string   `placeholder:"FILE" help:"The program exn-tun (default: beside dsbench, else in PATH)."`
}

// plan is what to compare.
func (c *comparing) plan(m *measuring, sweep bool) (p comparison.Plan, err error) {
	p = comparison.Plan{Sweep: sweep, Tests: m.Test, Paths: c.Path, Runs: m.Runs, Quick: m.Quick, Verify: c.Verify, Backend: shmPath}
	if err := p.Check(); err != nil {
		return p, err
	}
	if p.CPUs[0], p.CPUs[1], err = twoCPUs(c.CPUs); err != nil {
		return p, err
	}
	if p.Daemon, err = findProgram("exn-tun", c.Daemon); err != nil && c.Daemon != "" {
		return p, err // else the paths that need it are left out
	}
	if p.Pump, err = findProgram("pump", ""); err != nil {
		return p, err
	}
	p.GoPump, err = findProgram("gopump", "")
	return p, err
}

// standardCommand is `dsbench` alone.
type standardCommand struct {
	measuring
	comparing
}

// Help is the long text of --help.
func (*standardCommand) Help() string {
	return "One program sends the same traffic over every path that this machine has, in turn, for about two minutes. It leaves out what it cannot measure (without root: paths between network " +
		"namespaces), and says why. iperf3 and sockperf measure the same as a cross-check. They are fetched as Debian packages and not installed.\n\n" +
		"Tests: " + strings.Join(comparison.Tests(false), ", ") + ".\n\nPaths: " + strings.Join(comparison.Standard(), ", ") +
		"; only if --path names them: " + strings.Join(comparison.Paths(false), ", ") + ".\n\n" + exitHelp
}

// Run measures and prints.
func (c *standardCommand) Run(in *invocation) error {
	p, err := c.plan(&c.measuring, false)
	if err != nil {
		return usageError{err}
	}
	c.report()
	return c.run(in, p, nil)
}

// reportDir is where the commands that compare all paths write their report.
const reportDir = "dsbench-report"

// report has a report written also if no directory was named; who asks for JSON has it.
func (o *output) report() {
	if o.Out == "" && !o.JSON {
		o.Out = reportDir
	}
}

// figuresCommand is `dsbench figures`.
type figuresCommand struct {
	measuring
	comparing
}

// Help is the long text of --help.
func (*figuresCommand) Help() string {
	return "Compares all paths for messages from 1 byte to 4 MiB and for one, two and four streams. These are figures 5.26 to 5.29 of the thesis, whose numbers are drawn " +
		"beside the measured ones where its text gives them. (Figures 5.30 to 5.32 are of MPI: see mpi-… of dsbench apps, and message-rate here.) It also varies what the thesis does not: thresholds, windows, MTU, budgets, interrupt rates, pauses, the length of " +
		"connections and their number. All of it takes an hour or more: choose by --path and --test.\n\n" +
		"Tests: " + strings.Join(comparison.Tests(true), ", ") + ".\n\nPaths: " + strings.Join(comparison.Paths(true), ", ") + ".\n\n" + exitHelp
}

// Run measures and prints.
func (c *figuresCommand) Run(in *invocation) error {
	p, err := c.plan(&c.measuring, true)
	if err != nil {
		return usageError{err}
	}
	c.report()
	return c.run(in, p, nil)
}

// breakdownCommand is `dsbench breakdown`.
type breakdownCommand struct {
	measuring
	comparing
	Perf string `placeholder:"FILE" help:"The program perf (default: in PATH)."`
}

// Help is the long text of --help.
func (*breakdownCommand) Help() string {
	return "Shows where the time of a round trip of 64 bytes goes on a path, in four ways:\n\n" +
		"trace-… is elapsed time, from the kernel's tracepoints: system calls, packets given to devices and to IP, threads woken and put on a CPU. It needs root. " +
		"Tracing slows down what it traces; the difference of trace-round and time-round says how much.\n\n" +
		"wake, tcp, copy, … are the CPU time of each layer, sampled by perf (Debian: linux-perf), beside table 5.1 of the thesis. They need root. " +
		"When both sides work at the same time, both are counted.\n\n" +
		"time-… is the time by the client's own clock: of its write, and of waiting for the answer. It needs nothing.\n\n" +
		"lane-… is elapsed time inside EXT-DS, whose messages pass no tracepoint. One program holds both ends of a lane, makes the calls " +
		"that connections make, and takes the time between them: while both sides poll (path lane), and while both sleep (lane-asleep). lane-whole is a round trip without these stamps, and a note says how far the sum of the steps is from it. time-round of ds-preload " +
		"or ds-go is longer by what a connection adds.\n\n" +
		"It leaves out what it cannot see here, and says why. The tracepoints are in a tracefs instance of their own, which is removed in the end.\n\n" + exitHelp
}

// Run measures and prints.
func (c *breakdownCommand) Run(in *invocation) error {
	paths := c.Path
	c.Path = nil // some of them only a breakdown has, which checks them
	p, err := c.plan(&c.measuring, false)
	if err != nil {
		return usageError{err}
	}
	p.Paths = paths
	b := comparison.Breakdown{Plan: p, Perf: c.Perf}
	if err := b.Check(); err != nil {
		return usageError{err}
	}
	if b.Perf == "" {
		b.Perf, _ = exec.LookPath("perf") // without it the layers are left out
	} else if _, err := exec.LookPath(b.Perf); err != nil {
		return usageError{fmt.Errorf("--perf: %w", err)}
	}
	return c.run(in, b, nil)
}
