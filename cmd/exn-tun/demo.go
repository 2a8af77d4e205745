package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// demoCommand shows on one machine what exnet does. Measuring is what dsbench is for, so
// that becomes this process.
type demoCommand struct {
	JSON bool `name:"json" help:"Print one JSON object instead of tables."`
}

// measurer is the program that measures.
const measurer = "dsbench"

// Help is shown by exn-tun help demo.
func (*demoCommand) Help() string {
	return `Runs dsbench demo, which shows in less than a minute what exnet does for programs of this machine: redis on kernel TCP and under EXT-DS, and for root also between two
network namespaces on a bridge, before and after exn-tun bridge, and the interface exn0 beside a relay and a veth pair. What cannot be shown here is left out, and the reason is said.

Everything it makes is gone when it ends, also after Ctrl-C; the machine's own network is not touched. See dsbench demo --help for its flags and exit codes.`
}

// Run becomes dsbench.
func (c *demoCommand) Run() error {
	program, err := besideOrInPath(measurer)
	if err != nil {
		return coded{fmt.Errorf("%w: build it with make, or install it beside exn-tun", err), exitImpossible}
	}
	args := []string{measurer, "demo"}
	if c.JSON {
		args = append(args, "--json")
	}
	if err := unix.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// besideOrInPath finds another program of ours.
func besideOrInPath(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no program %s beside this one or in PATH", name)
	}
	return found, nil
}
