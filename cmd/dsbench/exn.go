package main

import (
	"strings"

	"exnet/cmd/dsbench/exn0"
	"exnet/cmd/dsbench/path"
)

// exnCommand is `dsbench exn`.
type exnCommand struct {
	measuring
	Daemon string `placeholder:"FILE" help:"The program exn-tun (default: beside dsbench, else in PATH)."`
	Relay  string `type:"existingfile" placeholder:"FILE" help:"Another relay to compare with, in the test relay. It is started as FILE 1 0 A B. It has to make the TUN devices tunA in the network namespace /run/netns/A and tunB in B, both with a virtio header and checksum offload, and copy packets between them."`
}

// Help is the long text of --help.
func (*exnCommand) Help() string {
	return "Two programs exchange TCP and UDP through exn0, and in turn through a relay (a process that copies between two TUN devices) and through a veth pair. " +
		"They are in network namespaces of their own, and the machine's own network does not change. It needs root. " +
		"The table shows medians, their spread, the ratio to the reference, and whether the project's target is met.\n\n" +
		"Tests: " + strings.Join(exn0.Tests(), ", ") + ".\n\n" + exitHelp
}

// Run measures and prints.
func (c *exnCommand) Run(in *invocation) error {
	daemon, err := findProgram("exn-tun", c.Daemon)
	if err != nil {
		return usageError{err}
	}
	lead, follow, err := twoCPUs(nil)
	if err != nil {
		return usageError{err}
	}
	plan := exn0.Plan{Tests: c.Test, Runs: c.Runs, Quick: c.Quick, Daemon: daemon, Relay: c.Relay, CPUs: [2]int{lead, follow}}
	if err := plan.Check(); err != nil {
		return usageError{err}
	}
	return c.run(in, plan, nil)
}

// relayCommand is the hidden command that path.Relay runs.
type relayCommand struct{}

// Run copies packets until it is killed.
func (*relayCommand) Run() error { return path.ServeRelay() }
