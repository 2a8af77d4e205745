package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/built"
)

// The demonstration is that of the dsbench beside exn-tun, with its output and its exit code.
func TestDemoIsThatOfDsbench(t *testing.T) {
	exnTun := built.Path(t, "exn-tun")
	dir := t.TempDir()
	copied := filepath.Join(dir, "exn-tun")
	text, err := os.ReadFile(exnTun)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		t.Fatal(err)
	}
	alone := exec.Command(copied, "demo")
	alone.Env = append(os.Environ(), "PATH="+dir)
	if out, _ := alone.CombinedOutput(); alone.ProcessState.ExitCode() != exitImpossible || !strings.Contains(string(out), "no program dsbench beside this one or in PATH: build it with make") {
		t.Errorf("without dsbench: exit code %d: %s", alone.ProcessState.ExitCode(), out)
	}
	stand := "#!/bin/sh\necho \"$0 $*\"\nexit 77\n"
	if err := os.WriteFile(filepath.Join(dir, "dsbench"), []byte(stand), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "demo", "--json")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 77 || string(out) != filepath.Join(dir, "dsbench")+" demo --json\n" {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}
