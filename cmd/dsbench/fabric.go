package main

import (
	"strings"

	"exnet/cmd/dsbench/rawfabric"
)

// shmPath is the name of the measured backend, fabric/shm.
const shmPath = "shm"

// fabricCommand is `dsbench fabric`.
type fabricCommand struct {
	measuring
	pinning
	Fabric string `placeholder:"DIR" help:"Measure in this fabric directory (default: a new one for each test)."`
}

// Help is the long text of --help.
func (*fabricCommand) Help() string {
	return "Two processes, each pinned to a core, exchange VELO messages and RMA operations, and in turn do the same through bare shared memory " +
		"or an eventfd. They verify all data. The table shows medians, their spread, the ratio to the reference, and whether the project's target is met.\n\n" +
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
	return c.run(in, plan, []int{lead, follow})
}
