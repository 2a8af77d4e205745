package script_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
)

// Many threads open the first sockets of a process at once: the library knows them all.
func TestFirstSockets(t *testing.T) {
	const runs, connections = 30, 16 // 16 of 60 runs found the fault
	program := ds.Build(t, "first", []string{"-O2", "-pthread"}, "first.c")
	library, fabric := ds.Library(t), ds.Fabric(t)
	for range runs {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), ds.Preload(library, fabric)...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			t.Errorf("%q, %v", line, err)
		}
		known := 0
		p, _ := status.Of(cmd.Process.Pid)
		for _, s := range p.Sockets {
			if s.Inode != 0 && s.Remote.IsValid() {
				known++
			}
		}
		if known != 2*connections {
			t.Errorf("%d busy ends of connections are known, want %d: %v, %+v", known, 2*connections, p.Err, p.Sockets)
		}
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
