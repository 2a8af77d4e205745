package main

import (
	"fmt"
	"time"

	"exnet/cmd/dsbench/demo"
	"exnet/cmd/dsbench/report"
	"exnet/directsockets/launch"
)

// demoCommand is `dsbench demo`.
type demoCommand struct {
	Duration time.Duration `help:"How long each run takes (default: 600ms)." default:"600ms" placeholder:"TIME"`
	Rounds   int           `help:"Of how many runs each figure is the median (default: 3)." default:"3" placeholder:"N"`
	Only     []string      `placeholder:"NAME" help:"Only these parts, separated by commas: redis, bridge, exn0."`
	JSON     bool          `name:"json" short:"J" help:"Print one JSON object instead of tables."`
}

// Help is the long text of --help.
func (*demoCommand) Help() string {
	return "Measures in less than a minute what exnet gains on this machine, in three parts:\n\n" +
		"redis: redis-server and redis-benchmark over loopback, on kernel TCP and under EXT-DS. The programs are those in PATH, else those of Debian packages, " +
		"which are unpacked into the cache (EXNET_CACHE) and not installed. Without a network a small program of exnet takes their place.\n\n" +
		"bridge: the same between two network namespaces on a bridge, before and after exn-tun bridge is started. It needs root.\n\n" +
		"exn0: the interface exn0 beside a relay between two TUN devices and a veth pair. It needs root.\n\n" +
		"It leaves out what it cannot measure here, and says why. It does not show a figure that other programs have disturbed too much. " +
		"When it ends, also after Ctrl-C, everything that it started and made is gone. It does not touch the machine's own network.\n\n" + exitHelp
}

// Run shows.
func (c *demoCommand) Run(in *invocation) error {
	p := demo.Plan{Length: c.Duration, Pairs: c.Rounds, Scenes: c.Only}
	if err := p.Check(); err != nil {
		return usageError{err}
	}
	p.Daemon, _ = findProgram("exn-tun", "") // the part that needs one of these says so
	p.Pump, _ = findProgram("pump", "")
	p.Library, _ = launch.Library()

	ctx, stop := interruptible()
	defer stop()
	r := &report.Report{Machine: report.ThisMachine(append([]string{"dsbench"}, in.args...), nil)}
	progress := report.NewLines(in.stderr, p.Takes())
	interrupted := p.Run(ctx, r, progress)
	progress.End()
	if interrupted != nil {
		return fmt.Errorf("%w; everything that was started is gone", interrupted)
	}
	if c.JSON {
		if err := r.WriteJSON(in.stdout); err != nil {
			return printed("the report", err)
		}
	} else if err := demo.Write(in.stdout, r); err != nil {
		return printed("the figures", err)
	}
	return verdict(r, nil, false)
}
