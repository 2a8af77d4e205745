// Exn-tun runs and shows exnet on this host.
//
//	exn-tun COMMAND [ARGUMENTS]
//	exn-tun help [COMMAND]
//
// Each command is a file of its own: a struct with its flags and arguments,
// and a Run method that does it by the packages of exnet. It is listed in
// commands below.
//
// # Exit codes
//
//	0	done; of up: ended by a signal
//	1	failed; standard error says why
//	2	wrong usage or configuration; nothing was done
//	3	the node ID, the name of the interface or an address belongs to somebody else
//	4	not possible here: no root, no /dev/net/tun, no such network namespace
//	5	the fabric is of another version of exnet
//	6	of check: no
//
// run ends with the exit code of the program it runs.
//
// Standard error says why, and what helps. Except for 1 it does not help to try
// again, which is what a service manager should know.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"exnet/arp"
	"exnet/directsockets/policy/policyfile"
	"exnet/exn"
	"exnet/exn/capture"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/napi"
)

// commands are what exn-tun can do.
type commands struct {
	Up      upCommand      `cmd:"" help:"Bring an interface up on a fabric, and keep it up."`
	Run     runCommand     `cmd:"" help:"Run a program whose TCP connections take shared memory where they can."`
	Bridge  bridgeCommand  `cmd:"" help:"Let programs in containers on a bridge, as of Docker, or behind a route take shared memory, too."`
	Check   checkCommand   `cmd:"" help:"Connect to HOST:PORT, and say whether a busy connection would take shared memory, and if not why."`
	Policy  policyCommand  `cmd:"" help:"Check a policy file for run, or print one with every key."`
	Show    showCommand    `cmd:"" help:"Show what an interface and its fabric are doing."`
	Metrics metricsCommand `cmd:"" help:"Print or serve figures of the connections of programs under run, for Prometheus."`
	Capture captureCommand `cmd:"" help:"Show the frames of an interface (as tcpdump), or write them to a file."`
	Demo    demoCommand    `cmd:"" help:"Show in a minute what exnet does for programs of this machine (dsbench demo)."`
	Version versionCommand `cmd:"" help:"Print the version of exn-tun and of what it was built with."`
	Help    helpCommand    `cmd:"" help:"Explain exn-tun, or one of its commands."`
}

const (
	exitDone       = 0
	exitFailed     = 1
	exitUsage      = 2
	exitTaken      = 3
	exitImpossible = 4
	exitVersion    = 5
	exitNo         = 6
)

const description = `Runs and shows exnet on this host.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 taken by somebody else, 4 not possible here, 5 another version, 6 no (check); run has those of its program.`

// exitCodes says which errors have a code of their own.
var exitCodes = []struct {
	err  error
	code int
}{
	{errUsage, exitUsage}, {policyfile.ErrPolicy, exitUsage}, {device.ErrConfig, exitUsage}, {capture.ErrFilter, exitUsage}, {exn.ErrConfig, exitUsage}, {exteth.ErrConfig, exitUsage}, {unix.ENOTDIR, exitUsage},
	{mtu.ErrRange, exitUsage}, {fabric.ErrRange, exitUsage},
	{fabric.ErrInUse, exitTaken}, {device.ErrTaken, exitTaken}, {exn.ErrConflict, exitTaken},
	{device.ErrMissing, exitImpossible}, {device.ErrPermission, exitImpossible}, {fs.ErrPermission, exitImpossible},
	{fabric.ErrVersion, exitVersion},
}

// defaults are the numbers that the packages choose.
var defaults = kong.Vars{
	"name": device.DefaultName, "busyPoll": napi.DefaultBusyPoll.String(), "budget": strconv.Itoa(napi.DefaultBudget), "veloBudget": strconv.Itoa(exn.DefaultVELOBudget),
	"eager": strconv.Itoa(exteth.DefaultEager), "multicastEager": strconv.Itoa(exteth.DefaultMulticastEager),
	"buffers": strconv.Itoa(exteth.DefaultBuffers), "macPrefix": arp.DefaultPrefix.String(),
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// output is where a command prints what it was asked for, messages where it says
// what happens.
type (
	output   struct{ io.Writer }
	messages struct{ io.Writer }
)

// early carries an exit code from inside the parser, which ends the program
// after it has printed help.
type early int

func newParser(stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(new(commands),
		kong.Name("exn-tun"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(stdout, stderr),
		defaults,
		kong.Exit(func(code int) { panic(early(code)) }),
	)
}

// run does what the arguments say and returns the exit code.
func run(args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case early:
			code = int(e)
		default:
			panic(e)
		}
	}()
	parser, err := newParser(stdout, stderr)
	if err == nil {
		var chosen *kong.Context
		if chosen, err = parser.Parse(args); err == nil {
			err = chosen.Run(parser, output{stdout}, messages{stderr})
		}
	}
	if err == nil {
		return exitDone
	}
	if quiet := new(silent); errors.As(err, quiet) {
		return quiet.code
	}
	fmt.Fprintf(stderr, "exn-tun: %s\n", complain(err))
	if own := new(coded); errors.As(err, own) {
		return own.code
	}
	if usage := new(kong.ParseError); errors.As(err, &usage) {
		fmt.Fprintln(stderr, advice(usage))
		return exitUsage
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return exitFailed
}
