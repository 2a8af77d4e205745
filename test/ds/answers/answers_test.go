package answers_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
				want := fmt.Sprintf("%s (process %d) does not use the library: start it with exn-tun run", s.Peer.Program, plain.pid())
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

// Whoever asks for it is told, once and in one line, who has no library.
func TestVerboseNamesThePeer(t *testing.T) {
	library, fabric := ds.Library(t), ds.Fabric(t)
	verbose := ds.Preload(library, fabric, "EXN_DS_VERBOSE=1")
	for _, test := range []struct {
		name           string
		server, client []string
	}{
		{"client", nil, verbose},
		{"server", verbose, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := pair(t, test.server, test.client)
			has, plain := client, server
			if test.server != nil {
				has, plain = server, client
			}
			until(t, client, "a line", func() bool { return strings.Contains(has.said(), "\n") })
			if got := client.call(10000); got != "done" {
				t.Fatal(got)
			}
			s, _ := shown(t, has.pid())
			want := fmt.Sprintf("extds[%d]: %v to %v is on TCP: %s (process %d) does not use the library: start it with exn-tun run\n",
				has.pid(), s.Local, s.Remote, s.Peer.Program, plain.pid())
			if has.said() != want {
				t.Errorf("said %q, want %q", has.said(), want)
			}
		})
	}
}

// Lines about a lane name its ends, and the peer by its program.
func TestVerboseNamesTheLane(t *testing.T) {
	verbose := ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")
	server, client := pair(t, verbose, verbose)
	until(t, client, "both have a lane", func() bool {
		return strings.Contains(server.said(), " has lane ") && strings.Contains(client.said(), " has lane ")
	})
	s, _ := shown(t, client.pid())
	for _, end := range []struct {
		of, other *program
		ends      string
	}{
		{client, server, fmt.Sprintf("%v to %v", s.Local, s.Remote)},
		{server, client, fmt.Sprintf("%v to %v", s.Remote, s.Local)},
	} {
		if said := end.of.said(); !strings.HasPrefix(said, fmt.Sprintf("extds[%d]: %s has lane ", end.of.pid(), end.ends)) ||
			!strings.HasSuffix(said, fmt.Sprintf(" to %.15s (process %d)\n", filepath.Base(end.other.cmd.Path), end.other.pid())) {
			t.Errorf("%s said %q", end.ends, said)
		}
	}
}

// What must not be on TCP is reset at its first busy moment, when nobody with the library
// is at the other end: in the eighth call.
func TestRequireBites(t *testing.T) {
	library, fabric := ds.Library(t), ds.Fabric(t)
	require := ds.Preload(library, fabric, "EXN_DS_REQUIRE=1")
	for _, test := range []struct {
		name           string
		server, client []string
	}{
		{"client", nil, require},
		{"server", require, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := pair(t, test.server, test.client)
			has, plain := client, server
			if test.server != nil {
				has, plain = server, client
			}
			if got := client.call(3); got != "done" { // six calls of each end
				t.Fatalf("it bites too early: %s", got)
			}
			if got := client.call(200); got == "done" {
				t.Error("200 calls by TCP pass")
			}
			until := time.Now().Add(patience)
			want := fmt.Sprintf("is reset, for it stays on TCP and EXN_DS_REQUIRE is set: %.15s (process %d) does not use the library",
				filepath.Base(plain.cmd.Path), plain.pid())
			for !strings.Contains(has.said(), want) {
				if time.Now().After(until) {
					t.Fatalf("said %q, want %q", has.said(), want)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Run("both", func(t *testing.T) { // they have lanes
		server, client := pair(t, require, require)
		until(t, client, "a lane", func() bool {
			a, _ := shown(t, client.pid())
			b, _ := shown(t, server.pid())
			return a.State == status.Lane && b.State == status.Lane
		})
	})
}

// The other end of a connection that a policy keeps on TCP is told so, not that nobody is there.
func TestRefusedByPolicy(t *testing.T) {
	library, fabric := ds.Library(t), ds.Fabric(t)
	kept := ds.Preload(library, fabric, "EXN_DS_POLICY=connection * any any any no;")
	server, client := pair(t, ds.Preload(library, fabric), kept)
	want := ""
	until(t, client, "both ends say why", func() bool {
		a, _ := shown(t, client.pid())
		b, _ := shown(t, server.pid())
		want = fmt.Sprintf("refused by peer: %s (process %d): policy", b.Peer.Program, client.pid())
		return a.State == status.TCP && a.Reason == status.Policy && b.State == status.TCP && b.Why() == want
	})
}
