package main

import (
	"strings"

	"exnet/cmd/dsbench/workload"
	"exnet/directsockets/launch"
)

// dsCommand is `dsbench ds`.
type dsCommand struct {
	Preload bool `xor:"what" required:"" help:"Measure the preloaded library, with programs that know nothing of it."`
	Go      bool `xor:"what" required:"" help:"Measure package directsockets, with a Go program."`
	measuring
	pinning
}

// Help is the long text of --help.
func (*dsCommand) Help() string {
	return workloadHelp(workload.Library) + "\n\nWith --go the program is gopump, beside dsbench, in turn with package net and with package directsockets.\n\n" +
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
	Path   []string `placeholder:"NAME" help:"Only these paths, separated by commas, beside plain TCP over loopback: preload, exn0, exn0-preload, bridge, bridge-preload (default: the first two)."`
	Daemon string   `placeholder:"FILE" help:"The program exn-tun (beside dsbench, or in PATH)."`
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
	return "Unmodified Debian programs, fetched and unpacked but not installed, talk TCP over loopback, in turn without the library and with it, and of apps some also between two namespaces over exn0, and if asked with it there, too, or over a bridge, as containers, without and with it " +
		"(libextds.so beside dsbench or in ../lib, or EXN_LIBRARY). Each run has a new server. Shown are medians, their spread, the ratio to the kernel's TCP, " +
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
