package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// asProgram makes the test binary dsbench.
const asProgram = "DSBENCH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == measure.PeerCommand {
		main() // also for a run in this process, whose peers would else run the tests again
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the processes need not linger under -race
	goleak.VerifyTestMain(m)
}

// program is a dsbench that has its own temporary directory, and makes fabrics there.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	cmd = exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+tmp, "EXN_FABRIC="+filepath.Join(tmp, "fabric"))
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr, tmp
}

// needTwoCPUs skips where dsbench itself refuses.
func needTwoCPUs(t *testing.T) {
	t.Helper()
	cpus, err := measure.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs, one for each measured process")
	}
}

func parsed(t *testing.T, out []byte) (r report.Report) {
	t.Helper()
	if err := report.Validate(out); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFabricPrintsJSON(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, tmp := program(t, "fabric", "--quick", "--json", "--runs", "2", "--test", "wake-paced,memory-new")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	r := parsed(t, stdout.Bytes())
	if len(r.Rows) != 2 || r.Rows[0].Test != "wake-paced" || len(r.Rows[0].Runs) != 2 || r.Partial {
		t.Errorf("rows %+v", r.Rows)
	}
	if c := strings.Join(r.Machine.Command, " "); c != "dsbench fabric --quick --json --runs 2 --test wake-paced,memory-new" || len(r.Machine.Pinned) != 2 {
		t.Errorf("machine %+v", r.Machine)
	}
	if stderr.Len() != 0 {
		t.Errorf("progress on what is no terminal: %q", stderr)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestFabricPrintsATable(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, _ := program(t, "fabric", "--quick", "--runs", "1", "--test", "memory-new")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, want := range []string{"TEST", "memory-new", "shm", "≤ 64.0 KiB", "1 of 1 targets met."} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
}

// Ctrl-C gives the rows so far, marked, and leaves neither processes nor files.
func TestInterruptGivesAPartialReport(t *testing.T) {
	needTwoCPUs(t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		cmd, stdout, stderr, tmp := program(t, "fabric", "--json", "--runs", "1", "--test", "wake-paced,idle")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The private directory of the second test, by its nodes: idle is
		// measured for ten seconds from then on.
		var first string
		for second := false; !second; time.Sleep(time.Millisecond) {
			socks, err := filepath.Glob(tmp + "/dsbench-fabric-*/node-1.sock")
			if err != nil {
				t.Fatal(err)
			}
			if len(socks) == 1 && first == "" {
				first = socks[0]
			}
			second = len(socks) == 1 && socks[0] != first
		}
		peers := children(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // the exit code is looked at
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v: exit code %d instead of %d: %s", sig, got, code, stderr)
		}
		r := parsed(t, stdout.Bytes())
		if !r.Partial || len(r.Rows) != 1 || len(r.Failures) != 0 {
			t.Errorf("%v: %+v", sig, r)
		}
		if !strings.Contains(stderr.String(), "interrupted by signal") {
			t.Errorf("%v: said %q", sig, stderr)
		}
		if left, _ := os.ReadDir(tmp); len(left) != 0 {
			t.Errorf("%v: %v is left behind", sig, left)
		}
		for _, pid := range peers {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				t.Errorf("%v: process %s is left behind", sig, pid)
			}
		}
	}
}

// children lists the processes that pid has started.
func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may end meanwhile
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// A peer that dies is reported, and the rest is measured.
func TestPeerDeathIsReported(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, tmp := program(t, "fabric", "--json", "--quick", "--test", "idle,memory-new")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var peers []string
	for len(peers) < 2 {
		time.Sleep(time.Millisecond)
		peers = children(t, cmd.Process.Pid)
	}
	pid := 0
	fmt.Sscan(peers[1], &pid)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // the exit code is looked at
	if got := cmd.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("exit code %d: %s", got, stderr)
	}
	r := parsed(t, stdout.Bytes())
	if !r.Partial || len(r.Failures) != 1 || len(r.Rows) != 1 || !strings.Contains(r.Failures[0].Error, "process died") || !strings.Contains(r.Failures[0].Error, "killed") {
		t.Errorf("%+v", r)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestBadOptions(t *testing.T) {
	needTwoCPUs(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"fabrik"}, "unexpected argument fabrik"},
		{[]string{"--path", "carrier-pigeon"}, "no such path: \"carrier-pigeon\"; there are tcp, unix"},
		{[]string{"--test", "velo"}, "no such test: \"velo\"; there are stream"},
		{[]string{"figures", "--runs", "0"}, "ask for 1 or more"},
		{[]string{"--daemon", "/nowhere/exn-tun"}, "give its path with --daemon"},
		{[]string{"compare", "/nowhere.json", "/nowhere.json"}, "give the results.json of a report"},
		{[]string{"compare", "main_test.go", "main_test.go"}, "main_test.go: report: not the JSON object"},
		{[]string{"fabric", "--fast"}, "unknown flag --fast"},
		{[]string{"ds"}, "missing flags: --preload or --go"},
		{[]string{"ds", "--preload", "--go"}, "can't be used together"},
		{[]string{"ds", "--go", "--test", "redis"}, "no such test: \"redis\"; there are stream"},
		{[]string{"ds", "--preload", "--test", "redis"}, "no such test: \"redis\"; there are stream"},
		{[]string{"apps", "--runs", "0"}, "ask for 1 or more"},
		{[]string{"fabric", "--runs", "many"}, "--runs"},
		{[]string{"fabric", "--runs", "0"}, "ask for 1 or more"},
		{[]string{"fabric", "--test", "velo-speed"}, "no such test: \"velo-speed\"; there are velo-latency"},
		{[]string{"fabric", "--fabric", "/nowhere/at/all"}, "leave --fabric out"},
		{[]string{"exn", "--runs", "0", "--daemon", "/bin/true"}, "ask for 1 or more"},
		{[]string{"exn", "--test", "tcp-9", "--daemon", "/bin/true"}, "no such test: \"tcp-9\"; there are tcp-1"},
		{[]string{"exn", "--daemon", "/nowhere/exn-tun"}, "give its path with --daemon"},
		{[]string{"fabric", "--cpus", "0"}, "name two different ones"},
		{[]string{"fabric", "--cpus", "0,0"}, "name two different ones"},
		{[]string{"fabric", "--cpus", "0,1,2"}, "name two different ones"},
		{[]string{"fabric", "--cpus", "0,4095"}, "CPU 4095 is not there or not allowed: choose two of"},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, &out, &errs); code != exitUsage {
			t.Errorf("%v: exit code %d", c.args, code)
		}
		if !strings.Contains(errs.String(), c.want) || out.Len() != 0 {
			t.Errorf("%v: said %q and printed %q", c.args, errs.String(), out.String())
		}
	}
}

func TestOneCPUIsRefused(t *testing.T) {
	cpus, err := measure.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	var all, one unix.CPUSet
	for _, cpu := range cpus {
		all.Set(cpu)
	}
	one.Set(cpus[0])
	runtime.LockOSThread() // the program inherits what this thread may use
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	cmd, _, stderr, _ := program(t, "fabric")
	cmd.Run() // the exit code is looked at
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(stderr.String(), "widen its affinity (taskset -c) or its cpuset") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"standard", "--help"}, []string{"--path=NAME", "--verify", "ds-preload", "tcp-iperf3", "stream-cpu", "3 a target was missed"}},
		{[]string{"figures", "--help"}, []string{"--path=NAME", "stream-4", "5.26 to 5.29", "(default: 10)"}},
		{[]string{"compare", "--help"}, []string{"--all", "Mann-Whitney", "Exit code 4"}},
		{[]string{"--help"}, []string{"fabric", "Exit codes: 0 measured"}},
		{[]string{"fabric", "--help"}, []string{"--quick", "--json", "--runs=N", "--fabric=DIR", "--cpus=A,B", "--test=NAME", "--check",
			"velo-latency", "rma-get-in-place", "3 a target was missed"}},
		{[]string{"ds", "--help"}, []string{"--preload", "--check", "ping-asleep", "EXN_LIBRARY", "3 a target was missed"}},
		{[]string{"apps", "--help"}, []string{"--runs=N", "redis-get-one", "nginx-connect"}},
		{[]string{"exn", "--help"}, []string{"--quick", "--json", "--runs=N", "--daemon=FILE", "--test=NAME", "--check",
			"tcp-1-mtu1500", "It needs root", "3 a target was missed"}},
	} {
		var out, errs bytes.Buffer
		if code := run(c.args, &out, &errs); code != exitOK || errs.Len() != 0 {
			t.Errorf("%v: exit code %d, said %q", c.args, code, errs.String())
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %q in:\n%s", c.args, want, out.String())
			}
		}
		if strings.Contains(text, " peer ") {
			t.Errorf("%v: the hidden command shows", c.args)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {errors.New("x"), 1}, {usageError{errors.New("x")}, 2}, {errMissed, 3},
		{interruption{syscall.SIGINT}, 130}, {fmt.Errorf("x: %w", interruption{syscall.SIGTERM}), 143},
	} {
		if code := complain(io.Discard, c.err); code != c.code {
			t.Errorf("%v: exit code %d instead of %d", c.err, code, c.code)
		}
	}
}

// With --check a missed target is exit code 3, without it 0.
func TestVerdict(t *testing.T) {
	missed := report.Row{Test: "a", Path: "shm", Unit: report.Bytes, Runs: []float64{2}, Target: report.AtMost(report.Value, 1)}.Finish()
	r := &report.Report{Rows: []report.Row{missed}}
	if err := verdict(r, nil, false); err != nil {
		t.Errorf("without --check: %v", err)
	}
	if err := verdict(r, nil, true); !errors.Is(err, errMissed) {
		t.Errorf("with --check: %v", err)
	}
	r.Fail("b", errors.New("wrong data"))
	if err := verdict(r, nil, true); err == nil || errors.Is(err, errMissed) {
		t.Errorf("a failure weighs more than a miss: %v", err)
	}
	if err := verdict(r, interruption{syscall.SIGINT}, true); !errors.As(err, &interruption{}) {
		t.Errorf("an interruption weighs most: %v", err)
	}
}

// Two reports of the same machine, one of them slower: exit code 4 names the row.
func TestCompareExits(t *testing.T) {
	dir := t.TempDir()
	disturbed := 0
	write := func(name string, by float64) string {
		r := &report.Report{Rows: []report.Row{{Test: "rr", Path: "tcp", Size: 64, Unit: report.Nanoseconds, Runs: []float64{10 * by, 11 * by, 10.5 * by, 10.2 * by, 10.7 * by}, Disturbed: disturbed}}}
		r.Rows[0] = r.Rows[0].Finish()
		name = filepath.Join(dir, name)
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := r.WriteJSON(f); err != nil {
			t.Fatal(err)
		}
		return name
	}
	before, same, slower := write("before", 1), write("same", 1.01), write("slower", 1.5)
	disturbed = 2
	noisy := write("noisy", 1.5)
	for _, c := range []struct {
		before, after string
		code          int
		want          string
	}{
		{before, same, exitOK, "0 better, 0 worse, 1 the same"},
		{before, slower, exitWorse, "worse"},
		{slower, before, exitOK, "1 better"},
		{before, noisy, exitOK, "worse (noisy)"},
	} {
		var out, errs bytes.Buffer
		if code := run([]string{"compare", c.before, c.after}, &out, &errs); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("exit code %d instead of %d: %s%s", code, c.code, out.String(), errs.String())
		}
	}
}
