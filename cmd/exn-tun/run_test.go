package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/test/built"
)

// started runs `exn-tun run` as a program of its own, since it becomes another.
func started(t *testing.T, env []string, args ...string) (stdout, stderr string, cmd *exec.Cmd) {
	t.Helper()
	built.Path(t, "libextds.so") // beside it
	cmd = exec.Command(built.Path(t, "exn-tun"), append([]string{"run"}, args...)...)
	cmd.Env = append(append(os.Environ(), "LD_PRELOAD=", "EXN_FABRIC="+newFabric(t)), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd
}

func TestRunBecomesTheProgram(t *testing.T) {
	out, errs, cmd := started(t, nil, "--", "sh", "-c", "echo $$; exit 7")
	if code := cmd.ProcessState.ExitCode(); out != strconv.Itoa(cmd.Process.Pid)+"\n" || code != 7 || errs != "" {
		t.Errorf("printed %q (process %d), exit code %d, said %q", out, cmd.Process.Pid, code, errs)
	}
	_, _, cmd = started(t, nil, "sh", "-c", "kill -TERM $$")
	if w := cmd.ProcessState.Sys().(syscall.WaitStatus); !w.Signaled() || w.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v", cmd.ProcessState)
	}
	// Flags behind the program are the program's.
	if out, errs, _ := started(t, nil, "echo", "--verbose", "--", "x"); out != "--verbose -- x\n" {
		t.Errorf("printed %q, said %q", out, errs)
	}
}

func TestRunSetsTheEnvironment(t *testing.T) {
	library := built.Path(t, "libextds.so")
	show := []string{"sh", "-c", "echo $LD_PRELOAD $EXN_FABRIC $EXN_DS_REQUIRE $EXN_DS_VERBOSE"}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { // what others may enter is no fabric directory
		t.Fatal(err)
	}
	// libc is a library that is there and does no harm.
	out, errs, _ := started(t, []string{"LD_PRELOAD=libc.so.6"}, append([]string{"--fabric", dir, "--require", "--verbose", "--"}, show...)...)
	if want := library + ":libc.so.6 " + dir + " 1 1\n"; out != want {
		t.Errorf("printed %q, want %q; said %q", out, want, errs)
	}
	nested := append([]string{built.Path(t, "exn-tun"), "run", "--"}, show...)
	if out, errs, _ := started(t, []string{"EXN_FABRIC=" + dir}, nested...); out != library+" "+dir+"\n" {
		t.Errorf("run inside of run printed %q, said %q", out, errs)
	}
}

// gcc's address sanitizer ends a program into which another library was loaded before it. All sanitizers ask
// the library for the C library's functions before they or it have begun.
func TestRunSanitized(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "x.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 42; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, sanitizer := range []string{"address", "thread", "undefined"} {
		program := filepath.Join(dir, sanitizer)
		if out, err := exec.Command("gcc", "-fsanitize="+sanitizer, "-o", program, source).CombinedOutput(); err != nil {
			t.Skipf("no gcc with the sanitizer %s: %v %s", sanitizer, err, out)
		}
		if _, errs, cmd := started(t, nil, "--", program); cmd.ProcessState.ExitCode() != 42 {
			t.Errorf("%s: %v, said %q", sanitizer, cmd.ProcessState, errs)
		}
	}
}

func TestRunComplains(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	program := built.Path(t, "exn-tun") // itself in Go
	for _, c := range []struct {
		args, env []string
		code      int
		stderr    string
	}{
		{[]string{"no-such-program"}, nil, exitNotFound, "no such program in PATH"},
		{[]string{"/no/such/program"}, nil, exitNotFound, "no such program"},
		{[]string{filepath.Join(dir, "text")}, nil, exitCannotRun, "may not be executed"},
		{[]string{dir}, nil, exitCannotRun, "is not a program"},
		{[]string{"true"}, []string{"EXN_LIBRARY=/no/lib.so"}, exitNotStarted, "EXN_LIBRARY"},
		{[]string{"true"}, []string{"EXN_LIBRARY=" + program}, exitNotStarted, "not a library"},
		{nil, nil, exitUsage, "no program to run"},
		{[]string{"--"}, nil, exitUsage, ""},
		{[]string{"--require", "--", program, "version"}, nil, exitCannotRun, "with --require it is not started on TCP"},
		{[]string{"--polcy", "x", "--", "true"}, nil, exitUsage, "unknown flag --polcy"},
		{[]string{"true"}, []string{"EXN_DS_SPIN_US=foo"}, exitUsage, "EXN_DS_SPIN_US=foo: write a number from 0 to 100000"},
		{[]string{"true"}, []string{"EXN_DS_SPINUS=7"}, exitUsage, "did you mean EXN_DS_SPIN_US?"},
		{[]string{"--fabric", "/nonexistent/x", "--", "true"}, nil, exitDone, "fabric directory /nonexistent/x: does not exist, and neither does /nonexistent; make it"},
		{[]string{"true"}, []string{"EXN_FABRIC=/nonexistent/x"}, exitDone, "its connections stay on TCP"},
		{[]string{"--require", "--fabric", "/nonexistent/x", "--", "true"}, nil, exitCannotRun, "neither does /nonexistent"},
		{[]string{"--fabric", open, "--", "true"}, nil, exitDone, open},
		{[]string{"--fabric", strings.Repeat("/x", 2500), "--", "true"}, nil, exitDone, "5000 bytes"},
		{[]string{"--", program, "version"}, nil, exitDone, "written in Go, whose programs make their system calls themselves: use the Go package instead; its connections stay on TCP"},
	} {
		_, errs, cmd := started(t, c.env, c.args...)
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(errs, c.stderr) {
			t.Errorf("%v: exit code %d, want %d; said %q, want %q", c.args, code, c.code, errs, c.stderr)
		}
		if n := strings.Count(errs, "\n"); n > 2 { // of a wrong flag the second line says where help is
			t.Errorf("%v: said %d lines: %q", c.args, n, errs)
		}
	}
}
