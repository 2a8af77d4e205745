package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"exnet/test/built"
	"exnet/test/netns"
)

// demo prepares a demonstration by the programs that make has built.
func demo(t *testing.T, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	netns.New(t) // skips without root
	built.Path(t, "pump")
	cmd = exec.Command(built.Path(t, "exn-tun"), append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, errs
	return cmd, out, errs
}

// leftBehind lists files of a demonstration and processes with its environment.
func leftBehind(t *testing.T, cmd *exec.Cmd) (left []string) {
	t.Helper()
	mark := cmd.Env[len(cmd.Env)-1]
	files, err := filepath.Glob(strings.TrimPrefix(mark, "TMPDIR=") + "/*")
	if err != nil {
		t.Fatal(err)
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range environments {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(mark)) {
			left = append(left, name)
		}
	}
	return append(left, files...)
}

func TestDemo(t *testing.T) {
	cmd, out, errs := demo(t, "--duration", "20ms", "--rounds", "1")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	for _, line := range []string{`ping over exn0: answered`, `veth +[\d.]+ Gbit/s +1\.00 +[\d.]+ us +1\.00`,
		`exn0 +[\d.]+ Gbit/s +[\d.]+ +[\d.]+ us +[\d.]+`, `loopback +`, `loopback, EXT-DS +`, `exn0, EXT-DS +`} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(out.String()) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if left := leftBehind(t, cmd); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// However far it has come, Ctrl-C ends it and takes all with it.
func TestDemoInterrupted(t *testing.T) {
	for _, at := range []string{"exn0 of node 1", "exn0 of node 2", "veth, stream", "exn0, pingpong"} {
		cmd, _, errs := demo(t, "--duration", "300ms", "--rounds", "1000000")
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
			if errs.Write(buf[:n]); err != nil {
				break
			}
			if !sent && strings.Contains(errs.String(), at) {
				sent = true
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		}
		r.Close()
		var failed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != exitFailed || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("interrupted at %q: %v: %s", at, err, errs)
		}
		if left := leftBehind(t, cmd); len(left) > 0 {
			t.Errorf("interrupted at %q: left behind: %v", at, left)
		}
	}
}

func TestDemoWithoutRoot(t *testing.T) {
	netns.New(t) // root gives it up
	if code, out, errs := call(t, noRoot, "demo"); code != exitImpossible || !strings.Contains(errs, "dsbench fabric --quick") || out != "" {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if code, _, errs := call(t, plain, "demo", "--rounds", "0"); code != exitUsage || !strings.Contains(errs, "at least once") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
