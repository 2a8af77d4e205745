package script_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// far is a deadline for what takes milliseconds, on a machine where all else goes first.
const far = 2 * time.Minute

// PRC-1: a server's children are killed with their connections open, one after the other and
// more than there are seats. What they held does not stay with the server.
func TestKilledChildrenLeaveNothing(t *testing.T) {
	const connections, most = 100, 20
	fabric := ds.Fabric(t)
	server, port := serving(t, fabric, "serve", strconv.Itoa(connections))
	client := forking(t, fabric, "ask", port, strconv.Itoa(connections))
	server.says("served")
	if n := len(server.sockets()); n > most {
		t.Errorf("%d connections are left of %d whose processes were killed, want %d at most", n, connections, most)
	}
	client.end()
	server.end()
}

// A server has more children at once than there are seats; each has a lane, also where the first
// process closes its copies only when all children have served for a while.
func TestManyChildrenHaveLanes(t *testing.T) {
	for _, server := range []string{"keep", "late"} {
		t.Run(server, func(t *testing.T) { haveLanes(t, server) })
	}
}

func haveLanes(t *testing.T, kind string) {
	const connections = 80
	fabric := ds.Fabric(t)
	server, port := serving(t, fabric, kind, strconv.Itoa(connections))
	client := forking(t, fabric, "crowd", port, strconv.Itoa(connections))
	// Both ends look for each other ever more seldom, so the client goes on until they have met.
	for deadline := time.Now().Add(far); ; {
		client.says("asked")
		var without []status.Socket
		for _, s := range client.sockets() {
			if s.State != status.Lane {
				without = append(without, s)
			}
		}
		t.Logf("%d connections have no lane yet", len(without))
		if n := len(client.sockets()); n != connections {
			t.Fatalf("the client has %d connections, want %d", n, connections)
		}
		if len(without) == 0 {
			break
		}
		if s := without[0]; s.State == status.TCP || time.Now().After(deadline) {
			t.Fatalf("%d connections of %d have no lane: %+v; the server: %+v", len(without), connections, without, server.sockets())
		}
		if _, err := io.WriteString(client.in, "\n"); err != nil {
			t.Fatal(err)
		}
	}
	client.end()
	server.says("served")
	server.end()
}

// A child that is cloned past the library, before its parent has forked otherwise.
func TestClonedChildShares(t *testing.T) {
	const connections = "3"
	fabric := ds.Fabric(t)
	server, port := serving(t, fabric, "clone", connections)
	client := forking(t, fabric, "ask", port, connections)
	client.end()
	server.says("served")
	server.end()
}

// Who forked takes its connection to a lane when no other process holds it any more.
func TestLaneWhenNoOtherHolds(t *testing.T) {
	stages := map[string]script.Stage{
		"preloaded": {Player: player(t), Env: ds.Preload(ds.Library(t), ds.Fabric(t))},
		"static":    {Player: staticPlayer(t), Env: ds.Preload("", ds.Fabric(t))},
	}
	for how, end := range map[string]string{"killed": "A kill9\na reap", "closed": "A close c"} {
		for by, stage := range stages {
			t.Run(how+"/"+by, func(t *testing.T) {
				s := parse(t, "script x\nb l=listen 4\na c=socket 4\na connect c 4 $port\nb d=accept l\na fork\n"+end+
					"\na&7 pong c 40 600\nb ping d 40 600\na join 7\n")
				sockets := outcome(t, stage, s)
				for _, end := range both {
					if s := sockets[end]; s.State != status.Lane {
						t.Errorf("end %c is not on a lane: %+v", end, s)
					}
				}
			})
		}
	}
}

// forker is a process of killed.c.
type forker struct {
	*testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func serving(t *testing.T, fabric string, args ...string) (server *forker, port string) {
	t.Helper()
	server = forking(t, fabric, args...)
	line, err := server.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return server, strings.TrimSpace(line)
}

func forking(t *testing.T, fabric string, args ...string) *forker {
	t.Helper()
	cmd := exec.Command(ds.Build(t, "killed", nil, "killed.c"), args...)
	cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), fabric, "EXN_DS_REQUIRE=1")...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return &forker{t, cmd, in, bufio.NewReader(out)}
}

func (f *forker) says(want string) {
	f.Helper()
	if line, err := f.out.ReadString('\n'); line != want+"\n" {
		f.Fatalf("%v says %q, %v", f.cmd.Args, line, err)
	}
}

func (f *forker) sockets() []status.Socket {
	f.Helper()
	p, found := status.Of(f.cmd.Process.Pid)
	if !found || p.Err != nil {
		f.Fatalf("%v publishes nothing: %v", f.cmd.Args, p.Err)
	}
	return p.Sockets
}

func (f *forker) end() {
	f.Helper()
	f.in.Close()
	if err := f.cmd.Wait(); err != nil {
		f.Errorf("%v: %v", f.cmd.Args, err)
	}
}
