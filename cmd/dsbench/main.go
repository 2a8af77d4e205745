// Command dsbench measures what exnet gains, on the machine it runs on, beside
// what it replaces.
//
//	dsbench               every path between two programs, for about two minutes
//	dsbench demo          what exnet does for programs, in a minute
//	dsbench fabric        VELO and RMA in shared memory against bare shared memory
//	dsbench exn           the interface exn0 against a relay between TUNs and veth
//	dsbench ds --preload  the preloaded library against the kernel's TCP
//	dsbench ds --go       package directsockets against package net
//	dsbench apps          servers and their clients with it and without
//	dsbench figures       all paths over sizes, settings and numbers of connections
//	dsbench breakdown     where the time of a message goes, layer by layer
//	dsbench server        the other side of dsbench client
//	dsbench client HOST   TCP, UDP or EXT-DS between two hosts
//	dsbench compare A B   which rows of two reports differ beyond their noise
//	dsbench help COMMAND  what a command does, and its flags
//
// Every command prints a table, or with --json one object whose schema is in
// package report, on standard output; what goes wrong, and on a terminal the
// progress, on standard error. With --out, and dsbench alone and figures without
// it, a directory gets the object, a table for spreadsheets, and a page with figures.
//
// # Exit codes
//
//	0    measured
//	1    something failed: a process died, data was wrong, connections stayed on TCP and
//	     --require was given; the report is partial
//	2    a bad or impossible option; nothing was measured
//	3    measured, a target was missed, and --check was given
//	4    compared, and something became worse by more than noise and disturbances explain
//	130  interrupted; the report is partial (other signals: 128 + their number)
//
// # Packages
//
//	demo                what make run shows
//	comparison          every path between two programs: dsbench, figures, breakdown
//	rawfabric, bare     dsbench fabric and its reference
//	exn0, path          dsbench exn and the networks it makes
//	workload            dsbench ds and apps, with programs from internal/debroot
//	gopump              the program of Go that is sent over their paths
//	traffic             what is sent: exn, server and client
//	tracing             when the kernel passes its tracepoints
//	measure             two halves side by side, statistics, and the noise beside them
//	report, page        what comes out: rows, tables, comparison; figures
//
// # Adding a command
//
// A command is a struct of flags with a Run method in a file of its own, and a
// field of the type commands. What it measures goes into a package below this
// one; halves that run in processes of their own are added to contenders.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"exnet/cmd/dsbench/bare"
	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/rawfabric"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/traffic"
)

// The exit codes; the package comment says when.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitMissed = 3
	exitWorse  = 4
	exitSignal = 128 // plus its number
)

const exitHelp = `Exit codes: 0 measured, 1 failed (partial report), 2 bad or impossible option, 3 a target was missed (with --check), 4 something became worse (compare), 130 interrupted (partial report).`

// commands is the command line.
type commands struct {
	Standard  standardCommand  `cmd:"" default:"withargs" help:"Compare all paths between two programs, for about two minutes (the default)."`
	Demo      demoCommand      `cmd:"" help:"Measure in a minute what exnet gains on this machine."`
	Fabric    fabricCommand    `cmd:"" help:"Compare VELO and RMA in shared memory with bare shared memory."`
	Exn       exnCommand       `cmd:"" help:"Compare the interface exn0 with a relay between two TUN devices and with a veth pair."`
	DS        dsCommand        `cmd:"" name:"ds" help:"Measure the library that moves TCP connections to shared memory, against kernel TCP."`
	Apps      appsCommand      `cmd:"" help:"Measure real servers and clients with that library and without it."`
	Figures   figuresCommand   `cmd:"" set:"runs=10" help:"Compare all paths over many sizes, settings and numbers of connections. It takes an hour or more."`
	Breakdown breakdownCommand `cmd:"" help:"Show where the time of a message goes, layer by layer."`
	Server    serverCommand    `cmd:"" help:"Answer dsbench client (as iperf3 -s)."`
	Client    clientCommand    `cmd:"" help:"Measure TCP, UDP or EXT-DS to a host on which dsbench server runs (as iperf3 -c)."`
	Compare   compareCommand   `cmd:"" help:"Show which results of two reports differ by more than their noise."`
	Help      helpCommand      `cmd:"" help:"Explain dsbench, or one of its commands (as --help)."`
	Peer      peerCommand      `cmd:"" hidden:"" help:"One of the two processes that are measured; started by dsbench itself."`
	Relay     relayCommand     `cmd:"" hidden:"" help:"The relay of the reference; started by dsbench itself."`
}

// contenders are all that can be measured in a peer process.
func contenders() map[string]measure.Contender {
	all := bare.Contenders()
	maps.Copy(all, rawfabric.Contenders(shmPath, attachSHM))
	maps.Copy(all, traffic.Contenders())
	return all
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// invocation is what the Run methods of the commands get.
type invocation struct {
	args           []string
	stdout, stderr io.Writer
}

// exited carries the code with which kong wants to leave, after --help.
type exited int

func newParser(stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("dsbench"),
		kong.Description("Measure what exnet gains on this machine.\n\n"+exitHelp),
		kong.Writers(stdout, stderr),
		kong.Vars{"runs": "5"},
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
}

// run parses and runs one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	parser, err := newParser(stdout, stderr)
	if err != nil {
		return complain(stderr, err)
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return complain(stderr, usageError{err})
	}
	return complain(stderr, ctx.Run(parser, &invocation{args, stdout, stderr}))
}

// A usageError is the user's; the others are ours or the machine's.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errMissed says that a target was missed; the table has said which.
var errMissed = errors.New("a target was missed")

// errWorse says that a row of a comparison became worse; the table has said which.
var errWorse = errors.New("something became worse")

// verdict is what a command ends with: interrupted is why it was cut short.
func verdict(r *report.Report, interrupted error, check bool) error {
	switch {
	case interrupted != nil:
		return interrupted
	case len(r.Failures) == 1:
		return fmt.Errorf("%s failed: %s", r.Failures[0].Test, r.Failures[0].Error)
	case len(r.Failures) > 0:
		return fmt.Errorf("%d tests failed; the first, %s: %s", len(r.Failures), r.Failures[0].Test, r.Failures[0].Error)
	case check && len(r.Missed()) > 0:
		return errMissed
	}
	return nil
}

// An interruption is the cause of a context that a signal ended.
type interruption struct{ syscall.Signal }

func (i interruption) Error() string { return "interrupted by signal: " + i.String() }

// complain reports err and returns its exit code.
func complain(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "dsbench: %v\n", err)
	var usage usageError
	var by interruption
	switch {
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "dsbench: dsbench help explains the commands and their flags.")
		return exitUsage
	case errors.Is(err, errMissed):
		return exitMissed
	case errors.Is(err, errWorse):
		return exitWorse
	case errors.As(err, &by):
		return exitSignal + int(by.Signal)
	}
	return exitFailed
}

// interruptible is a context that ends at Ctrl-C, SIGTERM or SIGHUP with an
// interruption as its cause. A second signal, a second later, ends the program at once; the
// peers die with it.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(interruption{s.(syscall.Signal)})
			select { // timeout(1) signals us, and then us again as one of its group
			case <-time.After(time.Second):
			case <-done:
			}
			signal.Stop(signals)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
