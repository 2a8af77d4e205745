package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/cmd/dsbench/page"
	"exnet/cmd/dsbench/report"
	"exnet/test/built"
)

// withPrograms lets a dsbench of a test find what make has built.
func withPrograms(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(built.Path(t, "pump"))+":"+os.Getenv("PATH"))
	cmd.Dir = t.TempDir()
}

// written is the report in a directory.
func written(t *testing.T, dir string) (r *report.Report, html string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, page.Results))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err = report.Read(f); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, page.Index))
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

// dsbench alone prints a table of paths by tests, and writes a report beside it.
func TestStandardWritesAReport(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, tmp := program(t, "--quick", "--runs", "2", "--path", "unix,veth", "--test", "rr,crr")
	withPrograms(t, cmd)
	err := cmd.Run()
	rootless := os.Geteuid() != 0 // veth was asked for, and fails
	if (err != nil) != rootless {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, want := range []string{"PATH", "rr 64 B", "crr 64 B", "unix", reportDir} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
	r, html := written(t, filepath.Join(cmd.Dir, reportDir))
	if len(r.Rows) < 6 || strings.Contains(html, "This report is partial") != rootless {
		t.Errorf("%+v", r)
	}
	for _, row := range r.Rows {
		if len(row.Runs) != 2 || (row.Path != "tcp") != (row.Ratio != nil) {
			t.Errorf("%+v", row)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
}

// Ctrl-C leaves a report that says that it is partial, and nothing else.
func TestInterruptedReportIsMarked(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, tmp := program(t, "--path", "unix", "--test", "rr", "--runs", "1000", "--out", "here")
	withPrograms(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(children(t, cmd.Process.Pid)) < 2 { // a server and a client run
		time.Sleep(time.Millisecond)
	}
	pumps := children(t, cmd.Process.Pid)
	for range 2 { // as timeout(1) does
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	cmd.Wait() // the exit code is looked at
	if code := cmd.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGINT) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	r, html := written(t, filepath.Join(cmd.Dir, "here"))
	if !r.Partial || len(r.Failures) != 0 || !strings.Contains(html, "This report is partial") || !strings.Contains(stdout.String(), "PARTIAL") {
		t.Errorf("%+v\n%s", r, stdout)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("%v is left behind", left)
	}
	for _, pid := range pumps {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is left behind", pid)
		}
	}
}

// A lane is a path of breakdown only.
func TestBreakdownCommand(t *testing.T) {
	needTwoCPUs(t)
	cmd, stdout, stderr, _ := program(t, "breakdown", "--quick", "--runs", "1", "--path", "lane", "--json")
	withPrograms(t, cmd)
	cmd.Run() // the exit code is looked at
	if code := cmd.ProcessState.ExitCode(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if r := parsed(t, stdout.Bytes()); !slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Test == "lane-sum" && row.Path == "lane" && row.Value > 0 }) {
		t.Errorf("%+v", r.Rows)
	}
	for _, args := range [][]string{{"breakdown", "--path", "pasta"}, {"--path", "lane"}} {
		cmd, _, stderr, _ := program(t, args...)
		withPrograms(t, cmd)
		cmd.Run() // as above
		if code := cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(stderr.String(), args[len(args)-1]) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
