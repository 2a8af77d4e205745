package main

import (
	"errors"
	"strings"

	"exnet/cmd/dsbench/workload"
	"exnet/directsockets/launch"
)

// dsCommand is `dsbench ds`.
type dsCommand struct {
	Preload bool `help:"Measure the preloaded library, the only one so far."`
	measuring
	pinning
}

// Help is the long text of --help.
func (*dsCommand) Help() string { return workloadHelp(workload.Library) }

// Run measures and prints.
func (c *dsCommand) Run(in *invocation) error {
	if !c.Preload {
		return usageError{errors.New("say what to measure: --preload")}
	}
	return measureWorkload(in, workload.Library, c.measuring, c.pinning)
}

// appsCommand is `dsbench apps`.
type appsCommand struct {
	measuring
	pinning
}

// Help is the long text of --help.
func (*appsCommand) Help() string { return workloadHelp(workload.Programs) }

// Run measures and prints.
func (c *appsCommand) Run(in *invocation) error {
	return measureWorkload(in, workload.Programs, c.measuring, c.pinning)
}

func workloadHelp(g workload.Group) string {
	return "Unmodified Debian programs, fetched and unpacked but not installed, talk TCP over loopback, in turn without the library and with it " +
		"(libextds.so beside dsbench or in ../lib, or EXN_LIBRARY). Each run has a new server. Shown are medians, their spread, the ratio to the kernel's TCP, " +
		"and whether the project's target is met. Run it on a machine that has nothing else to do.\n\n" +
		"Tests: " + strings.Join(workload.Tests(g), ", ") + ".\n\n" + exitHelp
}

func measureWorkload(in *invocation, group workload.Group, m measuring, pin pinning) error {
	first, second, err := twoCPUs(pin.CPUs)
	if err != nil {
		return usageError{err}
	}
	plan := workload.Plan{Group: group, Tests: m.Test, Runs: m.Runs, Quick: m.Quick, CPUs: [2]int{first, second}}
	if err := plan.Check(); err != nil {
		return usageError{err}
	}
	if plan.Library, err = launch.Library(); err != nil {
		return usageError{err}
	}
	return m.run(in, plan, nil)
}
