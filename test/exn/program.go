package exn

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"exnet/test/debroot"
)

// Program returns a command from Debian packages, to be run in the node.
func (n *Node) Program(root *debroot.Root, name string, args ...string) *exec.Cmd {
	return root.Command(n.Context(), name, args...)
}

// Run runs a command in the node and returns its standard output. A command that fails ends the
// test with its output.
func (n *Node) Run(cmd *exec.Cmd) []byte {
	n.Helper()
	out, err := n.Try(cmd)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// Try is Run for a command that may fail.
func (n *Node) Try(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.NS.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%v: %s: %w\n%.2000s%.2000s", n, line(cmd), err, stderr.Bytes(), stdout.Bytes())
	}
	return stdout.Bytes(), err
}

// line returns a readable command line, without the script by which debroot runs it.
func line(cmd *exec.Cmd) string {
	last := 0
	for i, arg := range cmd.Args {
		if strings.Contains(arg, "\n") {
			last = i + 1
		}
	}
	return strings.Join(cmd.Args[last:], " ")
}

// Serve starts a server in the node and waits until it listens on a TCP port, unless port is 0. The
// server is ended with the test.
func (n *Node) Serve(port int, cmd *exec.Cmd) *Daemon {
	n.Helper()
	n.servers++
	d := n.launch(fmt.Sprintf("server-%d-%d", n.ID, n.servers), cmd)
	n.Cleanup(func() {
		group := -cmd.Process.Pid // a debroot command leads a process group
		if cmd.SysProcAttr == nil || !cmd.SysProcAttr.Setpgid {
			group = cmd.Process.Pid
		}
		syscall.Kill(group, syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(patience):
			syscall.Kill(group, syscall.SIGKILL)
			<-d.ended
			n.Errorf("%v: %v does not end", n, line(cmd))
		}
		if n.Failed() {
			n.Logf("%v: %v said:\n%s", n, line(cmd), d.Said())
		}
	})
	for begin := time.Now(); port != 0 && !n.listens(port); time.Sleep(5 * time.Millisecond) {
		select {
		case <-d.ended:
			n.Fatalf("%v: %v ended: %v\n%s", n, line(cmd), cmd.ProcessState, d.Said())
		default:
		}
		if time.Since(begin) > patience {
			n.Fatalf("%v: %v does not listen on port %d:\n%s", n, line(cmd), port, d.Said())
		}
	}
	return d
}

// Exit waits until a server has ended by itself and returns its output.
func (d *Daemon) Exit() []byte {
	d.Helper()
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.Fatalf("%v does not end:\n%s", line(d.cmd), d.Said())
	}
	return d.Said()
}

// Alive waits a little and ends the test if the server has ended.
func (d *Daemon) Alive() {
	d.Helper()
	select {
	case <-d.ended:
		d.Fatalf("%v ended: %v\n%s", line(d.cmd), d.cmd.ProcessState, d.Said())
	case <-time.After(5 * time.Millisecond):
	}
}

// listens reports whether a program in the node listens on a TCP port. It does not connect, because
// some servers serve one client and then end.
func (n *Node) listens(port int) bool {
	n.Helper()
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := n.read(path)
		if err != nil {
			n.Fatal(err)
		}
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
