package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/test/leak"
	"exnet/test/netns"
)

// In these tests exn-tun is the test binary itself, told so by an environment
// variable, so that it is built as the tests are.
const (
	beExnTun = "EXNET_TEST_BE_EXN_TUN"
	plain    = "plain"
	noRoot   = "no root"         // without capabilities
	noDevice = "no /dev/net/tun" // in a mount namespace of its own, without the device
)

func TestMain(m *testing.M) {
	how, isExnTun := os.LookupEnv(beExnTun)
	if !isExnTun {
		leak.Main(m)
	}
	var err error
	switch how {
	case noRoot:
		err = giveUpRoot()
	case noDevice:
		err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/dev/net", "tmpfs", 0, ""))
	}
	if err != nil {
		panic(err)
	}
	main()
}

// giveUpRoot starts this program again without what exn-tun up needs.
func giveUpRoot() error {
	runtime.LockOSThread()
	for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	os.Setenv(beExnTun, plain)
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// A process is a running exn-tun.
type process struct {
	*exec.Cmd
	out *bufio.Reader // standard output
	mu  sync.Mutex
	log strings.Builder // standard error so far
	// ready gets the line that says so, and is closed when standard error ends.
	ready chan string
	over  chan struct{}
}

func command(how string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beExnTun+"="+how)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if how == noDevice {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
	}
	return cmd
}

// start starts exn-tun; it is killed when the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startBy(t, (*exec.Cmd).Start, args...)
}

// startIn starts it in a network namespace.
func startIn(t *testing.T, ns *netns.NetNS, args ...string) *process {
	t.Helper()
	return startBy(t, ns.Start, args...)
}

func startBy(t *testing.T, begin func(*exec.Cmd) error, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(plain, args...), ready: make(chan string, 1), over: make(chan struct{})}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.StderrPipe()
	if err == nil {
		err = begin(p.Cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(stdout)
	go func() {
		defer close(p.over)
		defer close(p.ready)
		for r := bufio.NewReader(stderr); ; {
			line, err := r.ReadString('\n')
			p.mu.Lock()
			p.log.WriteString(line)
			p.mu.Unlock()
			if strings.HasPrefix(line, "exn-tun: ready: ") {
				p.ready <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		p.wait()
	})
	return p
}

// up starts a daemon in a namespace and waits until it is ready.
func up(t *testing.T, ns *netns.NetNS, fabricDir string, args ...string) (p *process, ready string) {
	t.Helper()
	p = start(t, append([]string{"up", "--netns", ns.String(), "--fabric", fabricDir}, args...)...)
	ready, ok := <-p.ready
	if !ok {
		t.Fatalf("exn-tun up %v: exit code %d: %s", args, p.wait(), p.log.String())
	}
	return p, ready
}

// wait returns the exit code, or minus the signal.
func (p *process) wait() int {
	<-p.over
	io.Copy(io.Discard, p.out)
	p.Wait()
	if s := p.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return -int(s.Signal())
	}
	return p.ProcessState.ExitCode()
}

// end ends it by a signal and returns its exit code.
func (p *process) end(sig os.Signal) int {
	p.Process.Signal(sig)
	return p.wait()
}

// call runs exn-tun to its end, in this process if it can, so that what it leaves
// behind here is noticed, too.
func call(t *testing.T, how string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	if how == plain {
		code = run(args, &out, &errs)
		return code, out.String(), errs.String()
	}
	cmd := command(how, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func newFabric(t *testing.T) string { return filepath.Join(t.TempDir(), "fabric") }

// interfaces lists those of a namespace besides the loopback.
func interfaces(t *testing.T, ns *netns.NetNS) (names []string) {
	t.Helper()
	ns.Do(t, func() {
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Attrs().Name != "lo" {
				names = append(names, l.Attrs().Name)
			}
		}
	})
	return names
}

// leftovers lists what a fabric directory holds besides what every fabric does.
func leftovers(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"fabric", "lock"}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// said is what it has written to standard error so far.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}
