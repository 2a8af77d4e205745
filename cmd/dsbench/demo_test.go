package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"exnet/cmd/dsbench/report"
	"exnet/directsockets/launch"
	"exnet/test/built"
	"exnet/test/netns"
)

// demonstrate prepares a demonstration by what make has built.
func demonstrate(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer, tmp string) {
	t.Helper()
	bin := filepath.Dir(built.Path(t, "exn-tun"))
	built.Path(t, "pump")
	cmd, stdout, stderr, tmp = program(t, append([]string{"demo"}, args...)...)
	library := os.Getenv(launch.LibraryVariable)
	if library == "" {
		library = built.Path(t, "libextds.so")
	}
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), launch.LibraryVariable+"="+library)
	return cmd, stdout, stderr, tmp
}

// leftBehind lists files of a demonstration, and processes with its environment.
func leftBehind(t *testing.T, tmp string) (left []string) {
	t.Helper()
	files, err := filepath.Glob(tmp + "/*")
	if err != nil {
		t.Fatal(err)
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range environments {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte("TMPDIR="+tmp+"\x00")) {
			left = append(left, name)
		}
	}
	return append(left, files...)
}

// tests are the names of the rows of a report.
func tests(r report.Report) (names []string) {
	for _, row := range r.Rows {
		names = append(names, row.Test+" "+row.Path)
	}
	return names
}

// All of it, with root: a row for each figure, and nothing is left.
func TestDemo(t *testing.T) {
	netns.New(t) // skips without root
	cmd, stdout, stderr, tmp := demonstrate(t, "--json", "--duration", "20ms", "--rounds", "1")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	r := parsed(t, stdout.Bytes())
	for _, want := range []string{"requests ext-ds", "cpu ext-ds", "half-round-trip ext-ds", "bridge-requests ext-ds-bridge", "bridge-cpu ext-ds-bridge",
		"tcp-1-veth exn0", "tcp-1-veth relay", "rtt-p50 exn0"} {
		if !slices.Contains(tests(r), want) {
			t.Errorf("no row %q among %q", want, tests(r))
		}
	}
	for _, row := range r.Rows {
		if row.Ratio == nil || row.Value <= 0 || *row.Reference <= 0 {
			t.Errorf("%s is not beside a reference: %+v", row.Test, row)
		}
	}
	if len(r.Verdicts) != 3 || r.Conditions == nil || r.Conditions.WakeUp <= 0 || len(r.Failures) > 0 {
		t.Errorf("verdicts %q, conditions %+v, failures %+v", r.Verdicts, r.Conditions, r.Failures)
	}
	if strings.Contains(stderr.String(), "\r") || !strings.Contains(stderr.String(), "dsbench: bridge: exn-tun bridge is started\n") {
		t.Errorf("progress on what is no terminal is not in lines: %q", stderr)
	}
	if left := leftBehind(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// tools are the programs of the machine that a demonstration of our own pump needs.
var tools = []string{"env", "sh"}

// Without packages and without root our own program is shown, and each lack is one line with its remedy.
func TestDemoWithoutRedisAndRoot(t *testing.T) {
	cmd, stdout, stderr, tmp := demonstrate(t, "--duration", "20ms", "--rounds", "1")
	path := t.TempDir() // neither redis nor apt
	for _, name := range tools {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("needs the program %s", name)
		}
		if err := os.Symlink(found, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(built.Path(t, "exn-tun"))+":"+path)
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Path = readable(t, cmd.Path)
		cmd.Env = append(cmd.Env, launch.LibraryVariable+"="+readable(t, built.Path(t, "libextds.so")),
			"PATH="+filepath.Dir(readable(t, built.Path(t, "exn-tun"), built.Path(t, "pump")))+":"+path)
		open(t, tmp)
		open(t, path)
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	for _, want := range []string{"EXT-DS under our program pump", "requests a second, 50 clients", "half round trip, one client",
		"install redis-server and redis-tools", "Left out: bridge, exn0: two hosts need root, for their network namespaces: sudo bin/exn-tun demo", "Try next"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
	if left := leftBehind(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// readable copies files to where any user may run them, and returns where the first is.
func readable(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dsbench-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	return filepath.Join(dir, filepath.Base(files[0]))
}

// open lets any user use a directory.
func open(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for ; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil {
			err = os.Chmod(dir, info.Mode()|0o111)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// However far it has come, Ctrl-C ends it, takes all with it, and says so.
func TestDemoInterrupted(t *testing.T) {
	netns.New(t) // skips without root
	all := []string{"bridge: exn-tun bridge is started", "redis: 50 clients, EXT-DS, run 1", "exn0: tcp-1"}
	if testing.Short() {
		all = all[:1]
	}
	for _, at := range all {
		scene, _, _ := strings.Cut(at, ":")
		cmd, _, said, tmp := demonstrate(t, "--duration", "300ms", "--rounds", "1000", "--only", scene)
		if scene == "bridge" {
			cmd.Args[slices.Index(cmd.Args, "1000")] = "1" // soon at its second half
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = w
		err = cmd.Start()
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		for sent := false; ; {
			n, err := r.Read(buf)
			if said.Write(buf[:n]); err != nil {
				break
			}
			if !sent && strings.Contains(said.String(), at) {
				sent = true
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		}
		r.Close()
		var failed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != exitSignal+int(syscall.SIGINT) || !strings.Contains(said.String(), "everything that was started is gone") {
			t.Errorf("interrupted at %q: %v: %s", at, err, said)
		}
		if left := leftBehind(t, tmp); len(left) > 0 {
			t.Errorf("interrupted at %q: left behind: %v", at, left)
		}
	}
}

func TestDemoRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--rounds 0", "ask for 1 or more"}, {"--duration 1us", "from 10ms to a minute"}, {"--only nginx", "no such test: \"nginx\"; there are redis, bridge, exn0"},
	} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"demo"}, strings.Fields(c.args)...), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, %s", c.args, code, errs.String())
		}
	}
}
