package main

import (
	"strings"

	"exnet/cmd/dsbench/workload"
	"exnet/directsockets/launch"
)

// dsCommand is `dsbench ds`.
type dsCommand struct {
	Preload bool `xor:"what" required:"" help:"Measure the preloaded library (libextds.so), with unmodified programs."`
	Go      bool `xor:"what" required:"" help:"Measure the Go package directsockets, with a Go program."`
	measuring
	pinning
}

// Help is the long text of --help.
func (*dsCommand) Help() string {
	return workloadHelp(workload.Library) + "\n\nWith --go the program is gopump, which stands beside dsbench. It uses package net and package directsockets in turn.\n\n" +
		"Tests: " + strings.Join(workload.Tests(workload.Go), ", ") + "."
}

// Run measures and prints.
func (c *dsCommand) Run(in *invocation) error {
	if c.Go {
		return measureWorkload(in, workload.Plan{Group: workload.Go}, c.measuring, c.pinning)
	}
	return measureWorkload(in, workload.Plan{Group: workload.Library}, c.measuring, c.pinning)
}

// appsCommand is `dsbench apps`.
type appsCommand struct {
	measuring
	pinning
	Path   []string `placeholder:"NAME" help:"Measure only these paths, separated by commas, and plain TCP over loopback: preload, exn0, exn0-preload, bridge, bridge-preload (default: preload and exn0)."`
	Daemon string   `placeholder:"FILE" help:"The program exn-tun (default: beside dsbench, else in PATH)."`
}

// Help is the long text of --help.
func (*appsCommand) Help() string { return workloadHelp(workload.Programs) }

// Run measures and prints.
func (c *appsCommand) Run(in *invocation) error {
	daemon, err := findProgram("exn-tun", c.Daemon)
	if err != nil && c.Daemon != "" {
		return usageError{err} // else what needs it is left out
	}
	return measureWorkload(in, workload.Plan{Group: workload.Programs, Ways: c.Path, Daemon: daemon}, c.measuring, c.pinning)
}

func workloadHelp(g workload.Group) string {
	return "Unmodified programs talk TCP over loopback, in turn without the library and with it. They are Debian packages, fetched and unpacked but not installed. Some tests of apps also run between two network namespaces: over exn0, and with --path over a bridge, as containers do, each without the library and with it. " +
		"The library is libextds.so beside dsbench or in ../lib, or the file that EXN_LIBRARY names. Each run has a new server. The table shows medians, their spread, the ratio to the kernel's TCP, " +
		"and whether the project's target is met. Run it on a machine that has nothing else to do.\n\n" +
		"Tests: " + strings.Join(workload.Tests(g), ", ") + ".\n\n" + exitHelp
}

func measureWorkload(in *invocation, plan workload.Plan, m measuring, pin pinning) error {
	first, second, err := twoCPUs(pin.CPUs)
	if err != nil {
		return usageError{err}
	}
	plan.Tests, plan.Runs, plan.Quick, plan.CPUs = m.Test, m.Runs, m.Quick, [2]int{first, second}
	if err := plan.Check(); err != nil {
		return usageError{err}
	}
	if plan.Group == workload.Go {
		plan.GoPump, err = findProgram("gopump", "")
	} else {
		plan.Library, err = launch.Library()
	}
	if err != nil {
		return usageError{err}
	}
	if plan.Pump, err = findProgram("pump", ""); err != nil {
		return usageError{err}
	}
	return m.run(in, plan, nil)
}
