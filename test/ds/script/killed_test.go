package script_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
)

// PRC-1: a server's children are killed with their connections open, one after the other and
// more than there are seats. Each has a lane; what they held does not stay with the server.
func TestKilledChildrenLeaveNothing(t *testing.T) {
	const connections, most = 100, 20
	program, library := ds.Build(t, "killed", nil, "killed.c"), ds.Library(t)
	env := ds.Preload(library, ds.Fabric(t), "EXN_DS_REQUIRE=1")

	server := exec.Command(program, "serve", strconv.Itoa(connections))
	server.Env, server.Stderr = append(os.Environ(), env...), os.Stderr
	end, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Process.Kill()
	lines := bufio.NewReader(out)
	port, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}

	client := exec.Command(program, "ask", strings.TrimSpace(port), strconv.Itoa(connections))
	client.Env = append(os.Environ(), env...)
	if out, err := client.CombinedOutput(); err != nil {
		t.Errorf("the client: %v\n%s", err, out)
	}
	if line, err := lines.ReadString('\n'); line != "served\n" {
		t.Errorf("the server says %q, %v", line, err)
	}
	if p, found := status.Of(server.Process.Pid); !found || p.Err != nil {
		t.Errorf("the server publishes nothing: %v", p.Err)
	} else if len(p.Sockets) > most {
		t.Errorf("%d connections are left of %d whose processes were killed, want %d at most", len(p.Sockets), connections, most)
	}
	end.Close()
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}
