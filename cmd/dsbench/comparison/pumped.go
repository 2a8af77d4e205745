package comparison

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/directsockets/launch"
	"exnet/exn/netns"
)

const loopback = "127.0.0.1"

// A pumped is a path of two programs pump, with sockets.
type pumped struct {
	plan    *Plan
	address string       // of the server
	dial    string       // of the server for the client, if that is another; "": the same
	path    *path.Path   // nil: on the host itself
	ns      [2]*netns.NS // of client and server, if there is a path
	library string       // preloaded; "": none
	tuning  []string     // its environment
	inGo    bool         // the programs are gopump
	dir     string       // of sockets or of the fabric; "": none

	pids []int // of the server and the client of the last run

	between func(port string) (string, func(), error) // for tests: what stands before the server
}

func openUnix(_ context.Context, p *Plan) (carrier, error) {
	dir, err := os.MkdirTemp("", "dsbench-unix-")
	if err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	return &pumped{plan: p, address: filepath.Join(dir, "socket"), dir: dir}, nil
}

// preload makes a way with the library, tuned by its environment.
func preload(tuning ...string) func(context.Context, *Plan) (carrier, error) {
	return func(_ context.Context, p *Plan) (carrier, error) {
		library, err := launch.Library()
		if err != nil {
			return nil, err
		}
		dir, err := path.Runtime()
		if err != nil {
			return nil, err
		}
		return &pumped{plan: p, address: loopback, library: library, tuning: tuning, dir: dir}, nil
	}
}

func openGo(_ context.Context, p *Plan) (carrier, error) {
	dir, err := path.Runtime()
	if err != nil {
		return nil, err
	}
	return &pumped{plan: p, address: loopback, inGo: true, dir: dir}, nil
}

// enter opens the namespaces of the path.
func (w *pumped) enter() (err error) {
	for i := range w.ns {
		if w.path.Ends[i].NetNS == "" {
			continue // the host's
		}
		if w.ns[i], err = netns.Open(w.path.Ends[i].NetNS); err != nil {
			return err
		}
	}
	return nil
}

func (w *pumped) Close() error {
	var errs []error
	for _, ns := range w.ns {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	if w.path != nil {
		errs = append(errs, w.path.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

func (w *pumped) daemons() []int {
	if w.path == nil {
		return nil
	}
	return w.path.Daemons
}

// patience is how long a run may take beyond its length.
const patience = 20 * time.Second

// run makes one run, with a new server and a new client.
func (w *pumped) run(ctx context.Context, l load, size int) (o outcome, spent spending, err error) {
	length := l.takes(w.plan.length())
	most := length + patience + 10*l.opening()
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no end after %v: client and server wait for each other in vain", most))
	defer cancel()
	defer func() {
		if w.path != nil && err != nil {
			if broken := w.path.Broken(); broken != nil {
				err = broken // which is why
			}
		}
	}()
	cpus := l.cpus.on(w.plan.CPUs)
	if w.inGo { // which polls only where a CPU is left to its other goroutines
		cpus = anywhere.on(w.plan.CPUs)
	}
	before, err := cpuOf(w.daemons())
	if err != nil {
		return o, spent, err
	}

	server := w.command(ctx, l, "serve", "0")
	port, err := w.serve(server, cpus[1])
	if err != nil {
		return o, spent, err
	}
	defer func() {
		server.end()
		spent.add(server)
	}()
	if w.between != nil {
		var stop func()
		if port, stop, err = w.between(port); err != nil {
			return o, spent, err
		}
		defer stop()
	}

	args := []string{port, strconv.FormatFloat(length.Seconds(), 'f', -1, 64), "json",
		"size=" + strconv.Itoa(size), "streams=" + strconv.Itoa(l.streams), "rate=" + strconv.Itoa(l.rate)}
	if l.pause > 0 {
		args = append(args, "pause="+strconv.FormatFloat(float64(l.pause)/1e3, 'f', -1, 64))
	}
	if l.rounds > 0 {
		args = append(args, "rounds="+strconv.Itoa(l.rounds))
	}
	if w.plan.Verify {
		args = append(args, "check")
	}
	if l.split {
		args = append(args, "split")
	}
	client := w.command(ctx, l, l.mode, args...)
	var out, complaints bytes.Buffer
	client.cmd.Stdout, client.cmd.Stderr = &out, &complaints
	var crowd *crowd
	if l.crowds() {
		if crowd, err = newCrowd(client.cmd); err != nil {
			return o, spent, err
		}
		defer crowd.close()
	}
	if err := client.start(w.ns[0], cpus[0]); err != nil {
		return o, spent, err
	}
	w.pids = []int{server.cmd.Process.Pid, client.cmd.Process.Pid}
	if crowd != nil {
		if o.crowd, err = crowd.look(w.pids, w.daemons(), &out); err != nil {
			crowd.close() // which ends the client
		}
	}
	<-client.ended
	spent.add(client)
	if !client.cmd.ProcessState.Success() {
		if ctx.Err() != nil {
			return o, spent, context.Cause(ctx)
		}
		return o, spent, errors.Join(fmt.Errorf("pump ended with %v: %s", client.cmd.ProcessState, strings.TrimSpace(complaints.String())), err)
	}
	if err != nil {
		return o, spent, err
	}
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		return o, spent, fmt.Errorf("pump printed what is no result: %w: %.100s", err, out.Bytes())
	}
	after, err := cpuOf(w.daemons())
	if crowd != nil {
		o.CPU = o.crowd.busy // in which theirs is
	} else if o.CPU > 0 {
		o.CPU += after - before
	}
	o.length = length * 11 / 10
	if o.Times != nil {
		o.roundTrip = o.Times.Quantile(0.5)
	}
	return o, spent, err
}

// serve starts a server and returns its port.
func (w *pumped) serve(server *process, cpu int) (port string, err error) {
	r, out, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	var complaints bytes.Buffer
	server.cmd.Stdout, server.cmd.Stderr = out, &complaints
	err = server.start(w.ns[1], cpu)
	out.Close()
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	port, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil && !errors.Is(err, io.EOF) || !ready {
		server.end()
		return "", fmt.Errorf("the server ended before it was ready: %s", strings.TrimSpace(complaints.String()))
	}
	return port, nil
}

// command is a pump on this path.
func (w *pumped) command(ctx context.Context, l load, mode string, args ...string) *process {
	program := w.plan.Pump
	if w.inGo {
		program = w.plan.GoPump
		if l.mode == "connect" {
			args = append(args, "either")
		}
	}
	address := w.address
	if mode != "serve" && w.dial != "" {
		address = w.dial
	}
	cmd := exec.CommandContext(ctx, program, append([]string{mode, address}, args...)...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD=")
	if w.inGo {
		cmd.Env = append(cmd.Env, "EXN_FABRIC="+filepath.Join(w.dir, "fabric"))
	}
	if w.library != "" {
		// A stream that stays on TCP would be measured as if it did not.
		require := l.mode != "connect"
		cmd.Env = launch.Options{Fabric: filepath.Join(w.dir, "fabric"), Require: require}.Environment(w.library, append(os.Environ(), w.tuning...))
	}
	if w.path == nil && mode == "serve" && filepath.IsAbs(w.address) {
		os.Remove(w.address) // of the server before
	}
	return &process{cmd: cmd, ended: make(chan struct{})}
}

// A process is a program that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts the program in a namespace, or with nil in that of the host, and on a
// processor.
func (p *process) start(ns *netns.NS, cpu int) error {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // Ctrl-C is for dsbench, which then ends us in order
	}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread ends that started the process, so this one
		// stays until the process is gone, and then goes with what it was pinned to.
		runtime.LockOSThread()
		err := pin(cpu)
		if err == nil && ns != nil {
			err = ns.Start(p.cmd)
		} else if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err == nil {
			p.cmd.Wait() // how it ended is in ProcessState
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.cmd.Path, err)
	}
	return nil
}

func pin(cpu int) error {
	if cpu == measure.AnyCPU {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// end ends the program: pump keeps nothing that it would have to tidy up.
func (p *process) end() {
	p.cmd.Process.Kill()
	<-p.ended
}

// A spending is the CPU time of processes that have ended.
type spending time.Duration

func (s *spending) add(p *process) {
	*s += spending(p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime())
}

func cpuOf(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		d, err := measure.ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
