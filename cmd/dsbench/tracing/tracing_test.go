package tracing_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/tracing"
)

// open opens a session, where that can be.
func open(t *testing.T, points ...tracing.Point) *tracing.Session {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	s, err := tracing.Open(points, []int{0})
	if err != nil {
		if strings.Contains(err.Error(), "no tracefs") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return s
}

// What a process does is noted between Start and Stop, and forgotten then.
func TestSession(t *testing.T) {
	s := open(t, tracing.Point{Name: "raw_syscalls/sys_enter", Filter: "id == " + strconv.Itoa(unix.SYS_GETPPID)})
	us := "(" + strings.Repeat(" ", max(0, 7-len(strconv.Itoa(os.Getpid())))) + strconv.Itoa(os.Getpid()) + ")"
	count := func(calls int) (n int) {
		t.Helper()
		unix.Getppid()
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		for range calls {
			unix.Getppid()
		}
		if err := s.Stop(func(line string) {
			if strings.Contains(line, us) || strings.Contains(line, "-"+strconv.Itoa(unix.Gettid())+" ") {
				n++
			}
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, calls := range []int{0, 3} {
		if n := count(calls); n != calls {
			t.Errorf("%d events of %d calls", n, calls)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// What the kernel does not have is refused, and nothing stays.
func TestUnknownPoint(t *testing.T) {
	open(t).Close()
	for range 2 { // the second would find the instance of the first
		if _, err := tracing.Open([]tracing.Point{{Name: "no/such"}}, nil); err == nil || !strings.Contains(err.Error(), "no/such") {
			t.Errorf("%v", err)
		}
	}
}

// A process that is killed leaves its instance, and the next session removes it.
func TestOrphan(t *testing.T) {
	if dir := os.Getenv("DSBENCH_TEST_ORPHAN"); dir != "" {
		if _, err := tracing.Open(nil, nil); err != nil {
			t.Fatal(err)
		}
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	s := open(t)
	defer func() { s.Close() }()
	child := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	child.Env = append(os.Environ(), "DSBENCH_TEST_ORPHAN=1")
	if err := child.Run(); err == nil {
		t.Fatal("it was not killed")
	}
	name := "dsbench-" + strconv.Itoa(child.Process.Pid)
	if _, err := os.Stat(s.Instance(name)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t)
	if _, err := os.Stat(s.Instance(name)); !os.IsNotExist(err) {
		t.Errorf("the instance of the killed process: %v", err)
	}
}
