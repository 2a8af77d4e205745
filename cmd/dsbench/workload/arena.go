package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"exnet/cmd/dsbench/path"
	"exnet/directsockets/launch"
	"exnet/directsockets/status"
	"exnet/fabric/dir"
)

// An arena is where one run takes place: a server, a client, a directory.
type arena struct {
	*bench
	dir            string     // for what the programs keep
	fabric         string     // the fabric directory
	peers          dir.Peers  // whose programs meet there
	made           []string   // directories that go with it
	host           string     // where the server listens
	abroad         *path.Path // between whose ends the programs are; nil: none
	asNobody       bool       // they run as that user, if we are root
	group          string     // a directory of cgroups in which they run; "": ours
	server, client bool       // who has the library
	serverCPUs     string
	clientCPUs     string   // for taskset; empty: any
	wrap           []string // runs the client, as strace does
	env            []string // of both, beside what says where lanes are

	running []*process
	cpu     time.Duration // of the programs that have ended
}

// A process is a server that runs.
type process struct {
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

// nobody is as whom programs run that refuse to be root.
const nobody = 65534

// The ends of a path.
const (
	clientEnd = iota
	serverEnd
)

// newArena makes one of which close leaves nothing; both sides have the library, or none.
func (b *bench) newArena(library bool) (*arena, error) {
	a := &arena{bench: b, host: loopback, server: library, client: library}
	var err error
	if a.dir, err = b.private(os.MkdirTemp("", "dsbench-")); err != nil {
		return nil, err
	}
	a.made = append(a.made, a.dir)
	runtime, err := b.private(path.Runtime())
	if err != nil {
		a.close()
		return nil, err
	}
	a.made = append(a.made, runtime)
	a.fabric = filepath.Join(runtime, "fabric")
	return a, nil
}

func (a *arena) command(ctx context.Context, end int, command []string) *exec.Cmd {
	preloaded, cpus := a.client, a.clientCPUs
	if end == serverEnd {
		preloaded, cpus = a.server, a.serverCPUs
	}
	command = append(a.environment(preloaded), command...)
	if a.asNobody && os.Geteuid() == 0 {
		command = append([]string{"setpriv", fmt.Sprint("--reuid=", nobody), fmt.Sprint("--regid=", nobody), "--clear-groups"}, command...)
	}
	if a.abroad != nil {
		command = append([]string{"nsenter", "--net=" + a.abroad.Ends[end].NetNS, "--"}, command...)
	}
	if a.group != "" {
		command = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, a.group}, command...)
	}
	if cpus != "" {
		command = append([]string{"taskset", "-c", cpus}, command...)
	}
	if a.root != nil {
		return a.root.Command(ctx, command[0], command[1:]...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// environment sets that of a program.
func (a *arena) environment(preloaded bool) []string {
	env := append([]string{"env", "LC_ALL=C", "LD_PRELOAD=", "EXN_FABRIC=" + a.fabric, "EXN_PEERS=" + a.peers.String()}, a.env...)
	if preloaded && a.Library != "" { // a Go program has the package
		env = append(env, launch.Options{Fabric: a.fabric}.Environment(a.Library, nil)...)
	}
	return env
}

// serve starts a server and waits until somebody listens on the port.
func (a *arena) serve(ctx context.Context, port int, command ...string) (*process, error) {
	p := &process{said: new(bytes.Buffer), ended: make(chan struct{})}
	p.cmd = a.command(ctx, serverEnd, command)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // how it ended is of no interest: it is told to
	}()
	a.running = append(a.running, p)
	for !listens(port, strconv.Itoa(p.cmd.Process.Pid)) {
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended at once: %s", command[0], last(p.said.Bytes()))
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not listen on port %d: %w", command[0], port, context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
	return p, nil
}

// run runs a client to its end and returns what it printed.
func (a *arena) run(ctx context.Context, command ...string) ([]byte, error) {
	said, err := a.runAll(ctx, 1, command...)
	if err != nil {
		return nil, err
	}
	return said[0], nil
}

// runAll runs a client so many times at once.
func (a *arena) runAll(ctx context.Context, n int, command ...string) (said [][]byte, err error) {
	clients := make([]*exec.Cmd, n)
	said, errs := make([][]byte, n), make([]error, n)
	var all sync.WaitGroup
	for i := range clients {
		cmd := a.command(ctx, clientEnd, append(append([]string(nil), a.wrap...), command...))
		clients[i] = cmd
		all.Go(func() {
			var complaints bytes.Buffer
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", command[0], err, last(append(out, complaints.Bytes()...)))
			}
			said[i], errs[i] = out, err
		})
	}
	all.Wait()
	for _, cmd := range clients {
		if cmd.ProcessState != nil {
			a.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	}
	return said, errors.Join(errs...)
}

// close ends the servers, adds up what they used, and removes what is the arena's own.
func (a *arena) close() {
	for _, p := range a.running {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
			p.cmd.Cancel() // kills the group
			<-p.ended
		}
		a.cpu += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	}
	a.running = nil
	for _, dir := range a.made {
		os.RemoveAll(dir)
	}
}

// watch looks for connections that show a sign until the function it returns is
// called, which says whether there were any.
func (a *arena) watch(sign func(status.Socket) bool) (seen func() bool) {
	if !a.client {
		return func() bool { return false }
	}
	stop, result := make(chan struct{}), make(chan bool)
	go func() {
		any := false
		for {
			select {
			case <-stop:
				result <- any
				return
			case <-time.After(150 * time.Millisecond): // seldom: it costs CPU time that is measured
			}
			if !any {
				any = a.shows(sign)
			}
		}
	}()
	return func() bool { close(stop); return <-result }
}

func (a *arena) shows(sign func(status.Socket) bool) bool {
	processes, err := status.All()
	if err != nil {
		return false
	}
	for _, p := range processes {
		for _, s := range p.Sockets {
			if p.Fabric == a.fabric && sign(s) {
				return true
			}
		}
	}
	return false
}

// last is the end of what a program said: there its complaint is.
func last(text []byte) string {
	const enough = 300
	return strings.TrimSpace(string(text[max(0, len(text)-enough):]))
}

// freePort finds a port below those that the kernel gives to clients: one of
// them might be taken until the server comes to it.
func freePort() int {
	for {
		if port := 20000 + rand.IntN(10000); !listens(port, "self") {
			return port
		}
	}
}

// listens says whether somebody listens on a port where a process is. It does not try it out: a
// connection might be the only one that is served, and a socket of ours in the
// way of the server.
func listens(port int, process string) bool {
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile("/proc/" + process + "/net/" + table) // there may be no IPv6, and it may have ended
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) > 3 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}

// write makes a file for the programs.
func (a *arena) write(name string, text []byte) (string, error) {
	path := filepath.Join(a.dir, name)
	return path, os.WriteFile(path, text, 0o644)
}
