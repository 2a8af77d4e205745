package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"exnet/cmd/dsbench/page"
)

// inside has a command run in a user namespace of its own. To the kernel outside it is still the
// user of the test.
func inside(cmd *exec.Cmd, uid int, flags uintptr) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getgid(), Size: 1}}}
}

// needUserNamespaces skips where the kernel refuses what inside needs.
func needUserNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.Command("mount", "-t", "tmpfs", "none", t.TempDir())
	inside(cmd, 0, syscall.CLONE_NEWNS)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no tmpfs can be mounted in a user namespace: %v %s", err, out)
	}
}

// oneLine runs dsbench, which must end with a code and say one line with all of the words.
func oneLine(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer, code int, words ...string) {
	t.Helper()
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	said := strings.TrimSuffix(strings.TrimPrefix(stderr.String(), "dsbench: "), "\n")
	if got := cmd.ProcessState.ExitCode(); got != code || strings.Contains(said, "\n") {
		t.Errorf("exit code %d, want %d; said %q", got, code, said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("said %q, without %q", said, w)
		}
	}
}

// A disk that is full after the measurement costs the report, and not the results.
func TestFullDisk(t *testing.T) {
	needTwoCPUs(t)
	needUserNamespaces(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	measure := []string{"fabric", "--quick", "--runs", "1", "--test", "memory-new"}
	for _, c := range []struct {
		name, size string
		code       int
		table      bool
		words      []string
	}{
		{"afterwards", "nr_blocks=2", exitFailed, true, []string{"no space left on device", "free some space there", "by --out", "results above are complete"}},
		{"read-only", "ro", exitUsage, false, []string{"read-only file system", "choose another directory by --out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, stdout, stderr, tmp := program(t)
			disk := filepath.Join(tmp, "disk")
			if err := os.Mkdir(disk, 0o700); err != nil {
				t.Fatal(err)
			}
			mount := `mount -t tmpfs -o "$0" none "$1" && shift && exec "$@"`
			*cmd = exec.Cmd{Path: "/bin/sh", Args: append([]string{"sh", "-c", mount, c.size, disk, self}, append(measure, "--out", filepath.Join(disk, "report"))...),
				Env: cmd.Env, Stdout: stdout, Stderr: stderr}
			inside(cmd, 0, syscall.CLONE_NEWNS)
			if c.code == exitUsage { // the second line says where help is
				cmd.Run()
				first, _, _ := strings.Cut(stderr.String(), "\n")
				if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(first, c.words[0]) || !strings.Contains(first, c.words[1]) {
					t.Errorf("exit code %d, said %q", code, stderr)
				}
			} else {
				oneLine(t, cmd, stderr, c.code, c.words...)
			}
			if strings.Contains(stdout.String(), "memory-new") != c.table {
				t.Errorf("the results are printed is %v, want %v:\n%s", !c.table, c.table, stdout)
			}
		})
	}
}

// When standard output is full, the report is written all the same.
func TestFullStandardOutput(t *testing.T) {
	needTwoCPUs(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	dir := filepath.Join(t.TempDir(), "report")
	cmd, _, stderr, _ := program(t, "fabric", "--quick", "--runs", "1", "--test", "memory-new", "--out", dir)
	cmd.Stdout = full
	oneLine(t, cmd, stderr, exitFailed, "print the report", "no space left on device", "free some space where standard output goes")
	if _, err := os.Stat(filepath.Join(dir, page.Results)); err != nil {
		t.Error(err)
	}
}

// Without root the remedy is named once, and nothing is measured.
func TestNoRoot(t *testing.T) {
	needTwoCPUs(t)
	needUserNamespaces(t)
	cmd, stdout, stderr, _ := program(t, "exn", "--quick", "--runs", "1", "--test", "udp-veth", "--daemon", "/bin/true")
	inside(cmd, 65534, 0)
	oneLine(t, cmd, stderr, exitFailed, "needs root", "run it with sudo")
	if strings.Count(stderr.String(), "sudo") != 1 {
		t.Errorf("said %q", stderr)
	}
	if strings.Contains(stdout.String(), "udp-veth") {
		t.Errorf("printed %q", stdout)
	}
}
