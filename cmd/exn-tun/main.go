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
//	3	the node ID, the name of the interface or an address is in use elsewhere
//	4	not possible here: no root, no /dev/net/tun, no such network namespace
//	5	the fabric is of another version of exnet
//	6	of check: no
//
// run ends with the exit code of the program it runs.
//
// Standard error says why, and what helps. A service manager should try again after
// exit code 1 only.
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
	Up      upCommand      `cmd:"" help:"Make the network interface exn0 and keep it up (as ip link add and ip link set up)."`
	Run     runCommand     `cmd:"" help:"Run a program and move its busy TCP connections to shared memory."`
	Bridge  bridgeCommand  `cmd:"" help:"Let programs in containers use shared memory, too: on a bridge such as Docker's, or behind a route."`
	Check   checkCommand   `cmd:"" help:"Say whether a connection to HOST:PORT would move to shared memory, and if not, why."`
	Policy  policyCommand  `cmd:"" help:"Check a policy file of exn-tun run, or print an example with every key."`
	Show    showCommand    `cmd:"" help:"Show the interface, its tables and counters, or the sockets of programs (as ip, ethtool and ss)."`
	Metrics metricsCommand `cmd:"" help:"Print or serve Prometheus metrics of the connections of programs under exn-tun run."`
	Capture captureCommand `cmd:"" help:"Print the frames of an interface, or write them to a file (as tcpdump)."`
	Demo    demoCommand    `cmd:"" help:"Measure in a minute what exnet gains on this machine (runs dsbench demo)."`
	Version versionCommand `cmd:"" help:"Print the version of exn-tun and of the Go that built it."`
	Help    helpCommand    `cmd:"" help:"Explain exn-tun, or one of its commands (as --help)."`
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

const description = `Moves TCP connections between programs of this host to shared memory, makes the network interface exn0, and shows both.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 a node ID, name or address is in use elsewhere, 4 not possible here, 5 the fabric is of another version, 6 the answer of check is no. run ends with the exit code of its program.`

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

// Write adds to errors what helps.
func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	return n, unwritten(err)
}

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
