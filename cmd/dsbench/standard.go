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
	Path   []string `placeholder:"NAME" help:"Only these paths, separated by commas, beside kernel TCP over loopback."`
	Verify bool     `help:"Compare every byte that arrives, not the ends of each read only: touched data."`
	Daemon string   `placeholder:"FILE" help:"The program exn-tun (beside dsbench, or in PATH)."`
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
	return "One program sends the same traffic over every path that this machine has, in turn, for about two minutes. What cannot be measured (without root: network " +
		"namespaces) is left out and said. iperf3 and sockperf, fetched as Debian packages and not installed, are shown beside it: they have to agree.\n\n" +
		"Tests: " + strings.Join(comparison.Tests(false), ", ") + ".\n\nPaths: " + strings.Join(comparison.Standard(), ", ") +
		"; if asked for also " + strings.Join(comparison.Paths(false), ", ") + ".\n\n" + exitHelp
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
	return "The same over sizes of messages from 1 byte to 4 MiB and over one, two and four streams, which is figures 5.26 to 5.29 of the thesis, whose numbers are drawn " +
		"beside ours where its text has some (5.30 to 5.32 are of MPI: see mpi-… of dsbench apps, and message-rate here); and over what it could not measure: thresholds, windows, MTU, budgets, rates of interrupts, pauses, the length of " +
		"connections and how many there are. It takes an hour or more: see which --path and --test you need.\n\n" +
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
	Perf string `placeholder:"FILE" help:"The program perf (in PATH)."`
}

// Help is the long text of --help.
func (*breakdownCommand) Help() string {
	return "Where the time of a message of 64 bytes goes that goes round over a path, seen four ways:\n\n" +
		"trace-… The time that passes, by tracepoints of the kernel: system calls, packets given to devices and to IP, who is woken and gets a CPU. It needs root, " +
		"and nothing else; it slows down what it sees, by how much says trace-round beside time-round.\n\n" +
		"wake, tcp, copy, … The work of the CPUs in each layer, by sampling with perf (Debian: linux-perf), beside table 5.1 of the thesis. It needs root. " +
		"Sides that work at the same time count both.\n\n" +
		"time-… The time by the client's own clock: of its write, and of waiting for the answer. It needs nothing.\n\n" +
		"lane-… The time that passes inside EXT-DS, whose messages pass no tracepoint, by stamps of a program that has both ends of a lane and makes the calls " +
		"that connections make: while both sides poll (path lane), and while both sleep (lane-asleep). lane-whole is a round trip without stamps, and a note says how far the sum of the steps is from it. What time-round of ds-preload " +
		"or ds-go is above that, is what a connection adds.\n\n" +
		"What cannot be seen here is left out and said. The tracepoints are an instance of tracefs that nobody else sees, and goes in the end.\n\n" + exitHelp
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
