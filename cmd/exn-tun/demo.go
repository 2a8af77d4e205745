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
	return `Runs dsbench demo, which measures in less than a minute what exnet gains on this machine. It runs redis on kernel TCP and under EXT-DS. As root it also runs redis between two
network namespaces on a bridge, before and after exn-tun bridge, and compares the interface exn0 with a relay and a veth pair. It leaves out what it cannot measure here, and says why.

It removes everything that it made when it ends, also after Ctrl-C. It does not touch the machine's own network. dsbench demo --help explains its flags and exit codes.`
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
