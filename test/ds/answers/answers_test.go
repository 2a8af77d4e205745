package answers_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/status"
	"exnet/test/ds"
)

// patience is far more than anything here takes.
const patience = 2 * time.Minute

// A program is answers.c, serving or calling.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex
	log bytes.Buffer // its standard error
}

// Write takes what it says on standard error.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start starts a program, until the test ends.
func start(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(name, args...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.out = bufio.NewReader(out)
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v said %q", name, args, p.said())
		}
	})
	return p
}

func (p *program) line() string {
	p.t.Helper()
	text, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%v: %v: %s", p.cmd.Args, err, p.said())
	}
	return strings.TrimSpace(text)
}

// call has it make so many round trips, and says how that ended.
func (p *program) call(n int) string {
	p.t.Helper()
	fmt.Fprintln(p.in, n)
	return p.line()
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// pair starts a server and a client that are connected, each with its environment.
func pair(t *testing.T, serverEnv, clientEnv []string) (server, client *program) {
	t.Helper()
	binary := ds.Build(t, "answers", nil, "answers.c")
	server = start(t, binary, serverEnv, "serve")
	client = start(t, binary, clientEnv, "call", server.line())
	if got := client.line(); got != "ready" {
		t.Fatal(got)
	}
	return server, client
}

// shown is what exn-tun show sockets says of the connection of a process.
func shown(t *testing.T, pid int) (s status.Socket, found bool) {
	t.Helper()
	all, err := status.All()
	if err != nil {
		t.Fatal(err)
	}
	status.Explain(all)
	for _, p := range all {
		for _, s := range p.Sockets {
			if p.PID == pid && s.State != status.Listener && s.State != status.New {
				return s, true
			}
		}
	}
	return s, false
}

// until has the client call on until a condition holds.
func until(t *testing.T, client *program, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if got := client.call(10); got != "done" {
			t.Fatalf("a call fails: %s", got)
		}
		if time.Since(begin) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// What is shown of a program whose peer has no library is true at once, before the
// library itself knows, and names the peer.
func TestPeerWithoutLibrary(t *testing.T) {
	library, fabric := ds.Library(t), ds.Fabric(t)
	ours := ds.Preload(library, fabric)
	for _, test := range []struct {
		name           string
		server, client []string
	}{
		{"server", nil, ours},
		{"client", ours, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := pair(t, test.server, test.client)
			has, plain := client, server
			if test.server != nil {
				has, plain = server, client
			}
			for _, calls := range []int{1, 2, 20, 1000} {
				if got := client.call(calls); got != "done" {
					t.Fatal(got)
				}
				s, found := shown(t, has.pid())
				if !found || !s.Local.IsValid() || !s.Remote.IsValid() || s.Inode == 0 {
					t.Fatalf("after %d calls its ends are not known: %+v", calls, s)
				}
				if s.State != status.TCP || s.Reason != status.NoLibrary || s.Peer.PID != plain.pid() {
					t.Errorf("after %d calls: %+v, and the peer is %d", calls, s, plain.pid())
				}
				want := fmt.Sprintf("%s (process %d) has not the library: start it by exn-tun run", s.Peer.Program, plain.pid())
				if s.Why() != want || !strings.HasPrefix(s.Peer.Program, "answers") {
					t.Errorf("after %d calls: %q, want %q", calls, s.Why(), want)
				}
			}
		})
	}
}

// Both ends know theirs, also before there is anything to look for.
func TestAddressesAreShown(t *testing.T) {
	ours := ds.Preload(ds.Library(t), ds.Fabric(t))
	server, client := pair(t, ours, ours)
	if got := client.call(1); got != "done" { // so it is accepted
		t.Fatal(got)
	}
	a, _ := shown(t, client.pid())
	b, _ := shown(t, server.pid())
	if a.State != status.Counting || b.State != status.Counting || !a.Local.IsValid() || !a.Remote.IsValid() || a.Local != b.Remote || a.Remote != b.Local ||
		a.Inode == 0 || b.Inode == 0 || a.Why() != "" || b.Why() != "" {
		t.Errorf("client %+v\nserver %+v", a, b)
	}
	until(t, client, "a lane", func() bool {
		a, _ = shown(t, client.pid())
		b, _ = shown(t, server.pid())
		return a.State == status.Lane && b.State == status.Lane
	})
	if a.Local != b.Remote || a.Remote != b.Local || a.Why() != "" || b.Why() != "" {
		t.Errorf("client %+v\nserver %+v", a, b)
	}
}

// A peer in another fabric directory is named with that.
func TestOtherDirectory(t *testing.T) {
	library, here, there := ds.Library(t), ds.Fabric(t), ds.Fabric(t)
	server, client := pair(t, ds.Preload(library, there), ds.Preload(library, here))
	if got := client.call(100); got != "done" {
		t.Fatal(got)
	}
	for _, test := range []struct {
		of, other *program
		dir       string
	}{{client, server, there}, {server, client, here}} {
		s, _ := shown(t, test.of.pid())
		want := fmt.Sprintf("no peer in this fabric directory: %s (process %d) uses %s", s.Peer.Program, test.other.pid(), test.dir)
		if s.State != status.TCP || s.Why() != want {
			t.Errorf("%+v: %q, want %q", s, s.Why(), want)
		}
	}
}
