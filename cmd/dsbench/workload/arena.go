package workload

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"exnet/directsockets/launch"
	"exnet/directsockets/status"
)

// An arena is where one run takes place: a server, a client, a directory.
type arena struct {
	*bench
	dir            string
	server, client bool // who has the library
	serverCPUs     string
	clientCPUs     string   // for taskset; empty: any
	wrap           []string // runs the client, as strace does

	running []*process
	cpu     time.Duration // of the programs that have ended
}

// A process is a server that runs.
type process struct {
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

func (a *arena) command(ctx context.Context, preloaded bool, cpus string, command []string) *exec.Cmd {
	env := []string{"env", "LC_ALL=C", "LD_PRELOAD="}
	if preloaded {
		env = append(env, launch.Options{Fabric: filepath.Join(a.dir, "fabric")}.Environment(a.Library, nil)...)
	}
	command = append(env, command...)
	if cpus != "" {
		command = append([]string{"taskset", "-c", cpus}, command...)
	}
	return a.root.Command(ctx, command[0], command[1:]...)
}

// serve starts a server and waits until somebody listens on the port.
func (a *arena) serve(ctx context.Context, port int, command ...string) (*process, error) {
	p := &process{said: new(bytes.Buffer), ended: make(chan struct{})}
	p.cmd = a.command(ctx, a.server, a.serverCPUs, command)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // how it ended is of no interest: it is told to
	}()
	a.running = append(a.running, p)
	for !listens(port) {
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
	cmd := a.command(ctx, a.client, a.clientCPUs, append(append([]string(nil), a.wrap...), command...))
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command[0], err, last(append(out, complaints.Bytes()...)))
	}
	a.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return out, nil
}

// close ends the servers, and adds up what they used.
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
}

// watch looks for connections on lanes until the function it returns is called,
// which says whether there were any.
func (a *arena) watch() (seen func() bool) {
	if !a.client {
		return func() bool { return false }
	}
	stop, result := make(chan struct{}), make(chan bool)
	go func() {
		lanes := false
		for {
			select {
			case <-stop:
				result <- lanes
				return
			case <-time.After(150 * time.Millisecond): // seldom: it costs CPU time that is measured
			}
			if !lanes {
				lanes = a.lanes()
			}
		}
	}()
	return func() bool { close(stop); return <-result }
}

func (a *arena) lanes() bool {
	processes, err := status.All()
	if err != nil {
		return false
	}
	for _, p := range processes {
		for _, s := range p.Sockets {
			if p.Fabric == filepath.Join(a.dir, "fabric") && (s.ReadsLane || s.WritesLane) {
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
		if port := 20000 + rand.IntN(10000); !listens(port) {
			return port
		}
	}
}

// listens says whether somebody listens on a port. It does not try it out: a
// connection might be the only one that is served, and a socket of ours in the
// way of the server.
func listens(port int) bool {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, _ := os.ReadFile(table) // there may be no IPv6
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
