package stream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
	"exnet/test/built"
	"exnet/test/ds"
	"exnet/test/exn"
)

// DSS-4: two ends in network namespaces of their own, joined by exn0, take lanes,
// and what holds inside one namespace holds between them.
func TestAbroad(t *testing.T) {
	library, program := ds.Library(t), program(t)
	fleet := exn.Up(t, exn.Options{})
	fleet.OnlyExn("other links register no addresses")
	here, there := fleet.Nodes[0], fleet.Nodes[1]
	env := func(seed uint64, settings ...string) []string {
		return append(ds.Preload(library, fleet.Fabric, settings...), fmt.Sprintf("EXN_DS_TEST_SEED=%d", seed),
			"STREAM_CLIENT_NETNS="+there.NS.String(), "STREAM_IPV4="+here.IPv4.String(), "STREAM_IPV6="+here.IPv6.String())
	}
	var runs, upgraded atomic.Int64
	t.Cleanup(func() { // once all seeds are through
		// Most seeds have processes that share connections, which keeps them on TCP
		// on the loopback, too.
		if upgraded.Load()*4 < runs.Load() {
			t.Errorf("only %d of %d runs took lanes", upgraded.Load(), runs.Load())
		}
	})
	play := func(t *testing.T, seed uint64, env []string, mode ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, append([]string{fmt.Sprint(seed)}, mode...)...)
		cmd.Env = append(os.Environ(), env...)
		cmd.WaitDelay = time.Second
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &text
		err := here.NS.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			t.Errorf("seed %d %s: %v\n%s", seed, strings.Join(mode, " "), err, text.String())
		}
		return text.String()
	}
	t.Run("all", func(t *testing.T) { // which ends before the fleet does
		forSeeds(t, 8, func(t *testing.T, seed uint64) {
			_, counts, _ := strings.Cut(play(t, seed, env(seed)), "; ")
			var lane, tcp uint64
			if _, err := fmt.Sscanf(counts, "lane %d tcp %d", &lane, &tcp); err != nil {
				t.Error(err)
			}
			runs.Add(1)
			if lane > 0 {
				upgraded.Add(1)
			}
			play(t, seed, env(seed, "EXN_DS_TEST_SWITCH=5"))
			play(t, seed, env(seed), "kill", side(seed))
			play(t, seed, env(seed), "hand")
		})
	})
}

// Exn-tun check says the same in advance, and looks into the other namespace for it.
func TestCheckAbroad(t *testing.T) {
	fleet := exn.Up(t, exn.Options{})
	fleet.OnlyExn("other links register no addresses")
	here, there := fleet.Nodes[0], fleet.Nodes[1]
	tun, pump := built.Path(t, "exn-tun"), built.Path(t, "pump")
	const upgrading, plain = 7001, 7002
	serve := func(port int, command ...string) {
		command = append(command, pump, "serve", here.IPv4.String(), strconv.Itoa(port))
		here.Serve(port, exec.Command(command[0], command[1:]...))
	}
	serve(upgrading, tun, "run", "--fabric", fleet.Fabric, "--")
	serve(plain)
	for _, c := range []struct {
		port   int
		fabric string
		code   int
		want   string
	}{
		{upgrading, fleet.Fabric, 0, "a busy connection takes lanes: pump"},
		{plain, fleet.Fabric, 6, "does not use the library"},
		{upgrading, t.TempDir(), 6, "is neither the other end's own address nor registered in"},
	} {
		cmd := exec.Command(tun, "check", "--fabric", c.fabric, fmt.Sprintf("%v:%d", here.IPv4, c.port))
		text, err := there.Try(cmd)
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(text), c.want) {
			t.Errorf("%v: exit code %d: %s", cmd.Args, code, text)
		}
	}
}

// Containers have process, mount and user namespaces of their own, too, and a /proc.
func TestContainers(t *testing.T) {
	fleet := exn.Up(t, exn.Options{})
	fleet.OnlyExn("other links register no addresses")
	here, there := fleet.Nodes[0], fleet.Nodes[1]
	const port = "7001"
	for name, flags := range map[string]uintptr{
		"without a user namespace": unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		"with one":                 unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
	} {
		t.Run(name, func(t *testing.T) {
			pump := func(n *exn.Node, args ...string) (*exec.Cmd, *bufio.Reader) {
				args = append([]string{"-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$@"`, "sh",
					built.Path(t, "exn-tun"), "run", "--fabric", fleet.Fabric, "--", built.Path(t, "pump")}, args...)
				cmd := exec.Command("sh", args...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
				if flags&unix.CLONE_NEWUSER != 0 {
					cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{Size: 1}}
					cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{Size: 1}}
				}
				cmd.Stderr = t.Output()
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = n.NS.Start(cmd)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					cmd.Process.Kill() // the first of its process namespace: the others end with it
					cmd.Wait()
				})
				return cmd, bufio.NewReader(out)
			}
			_, said := pump(here, "serve", here.IPv4.String(), port)
			if line, err := said.ReadString('\n'); !strings.HasPrefix(line, "ready") {
				t.Fatalf("pump said %q: %v", line, err)
			}
			client, _ := pump(there, "stream", here.IPv4.String(), port, "60") // seconds; it is killed before
			for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				p, _ := status.Of(client.Process.Pid)
				for _, s := range p.Sockets {
					if s.RMA.Written > 1<<20 {
						return
					}
				}
				if time.Since(begin) > time.Minute {
					t.Fatalf("no lane: %+v", p.Sockets)
				}
			}
		})
	}
}
