package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/directsockets/policy/policyfile"
	"exnet/directsockets/status"
	"exnet/test/built"
)

// What becomes of a connection, by policy: the connection of a client that is as busy
// as it can be ends up on a lane, or on TCP with the reason "policy".
func TestPolicyDecides(t *testing.T) {
	for name, c := range map[string]struct {
		text string // with %d for the server's port
		lane bool
	}{
		"none":                 {"", true},
		"a setting":            {"[[program]]\nname = 'pu?p'\nwindow = '64KiB'", true},
		"forbidden":            {"[[connection]]\nupgrade = false", false},
		"to the port":          {"[[connection]]\nport = %d\ndirection = 'out'\nupgrade = false", false},
		"from the port":        {"[[connection]]\nport = %d\ndirection = 'in'\nupgrade = false", false},
		"of another port":      {"[[connection]]\nport = ['1-1023', 65535]\nupgrade = false", true},
		"of the address":       {"[[connection]]\naddress = ['10.0.0.0/8', '127.0.0.0/8']\nupgrade = false", false},
		"of another address":   {"[[connection]]\naddress = ['::1', '10.0.0.0/8']\nupgrade = false", true},
		"of another program":   {"[[connection]]\nprogram = 'redis-*'\nupgrade = false", true},
		"allowed before it is": {"[[connection]]\nport = %d\n[[connection]]\nupgrade = false", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil { // what others may enter is no fabric directory
				t.Fatal(err)
			}
			port := freePort(t)
			text := c.text
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, port)
			}
			file := filepath.Join(dir, "policy.toml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			pump := func(args ...string) (*exec.Cmd, *bufio.Reader) {
				cmd := exec.Command(built.Path(t, "exn-tun"), append([]string{"run", "--fabric", dir, "--policy", file, "--", built.Path(t, "pump")}, args...)...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				cmd.Stderr = t.Output()
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					cmd.Process.Kill()
					cmd.Wait()
				})
				return cmd, bufio.NewReader(out)
			}
			server, said := pump("serve", "127.0.0.1", strconv.Itoa(port))
			if line, err := said.ReadString('\n'); !strings.HasPrefix(line, "ready") {
				t.Fatalf("pump said %q: %v", line, err)
			}
			const longEnough = "60" // seconds; it is killed when its connection has been seen
			client, _ := pump("stream", "127.0.0.1", strconv.Itoa(port), longEnough)
			for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				p, _ := status.Of(client.Process.Pid)
				peer, _ := status.Of(server.Process.Pid)
				for _, s := range p.Sockets {
					switch {
					case s.State == status.Lane && s.VELO.Sum()+s.RMA.Sum() > 0:
						if !c.lane {
							t.Error("it took a lane")
						}
						return
					case s.State == status.TCP && s.Reason == status.Policy:
						if c.lane || strings.HasPrefix(name, "from") {
							t.Error("policy kept it on TCP")
						}
						return
					}
				}
				// Of the server's policy its client learns at most that nobody comes.
				if strings.HasPrefix(name, "from") && slices.ContainsFunc(peer.Sockets, func(s status.Socket) bool { return s.State == status.TCP && s.Reason == status.Policy }) {
					return
				}
				if time.Since(begin) > time.Minute {
					t.Fatalf("neither lane nor policy: %+v, its peer %+v", p.Sockets, peer.Sockets)
				}
			}
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// A program is not started with a policy that is not understood.
func TestPolicyIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := os.WriteFile(file, []byte("[[program]]\nspin = 'long'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, cmd := started(t, []string{"EXN_POLICY=" + file}, "--", "echo", "started")
	if code := cmd.ProcessState.ExitCode(); out != "" || code != exitUsage || !strings.Contains(errs, file+":2: spin: long: write a time") {
		t.Errorf("exit code %d, printed %q, said %q", code, out, errs)
	}
	if err := os.WriteFile(file, []byte(policyfile.Example), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, _ := started(t, []string{"EXN_POLICY=" + file}, "--", "sh", "-c", "echo $EXN_DS_POLICY"); !strings.Contains(out, "connection postgres in 5432-5432,6432-6439 ") {
		t.Errorf("printed %q, said %q", out, errs)
	}
}
