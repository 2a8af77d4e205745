package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"

	"exnet/test/tier"
)

// command returns a command that is killed with all its process group when ctx
// ends: go test and the test binaries it started. All bear the mark of the run.
func (s *suite) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	// A program with the race detector would sleep for a second before it ends.
	cmd.Env = append(os.Environ(), s.mark, tier.Variable+"="+string(s.tier), "GORACE=atexit_sleep_ms=20")
	if s.tier == tier.CI {
		cmd.Env = append(cmd.Env, tier.SampleVariable+"="+s.sample)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // for output that a process outside the group still holds
	return cmd
}

// check runs a command that passes or fails as a whole. judge, if any, has the
// last word.
func (s *suite) check(ctx context.Context, name string, judge func(output string, err error) error, program string, args ...string) {
	s.heading(name)
	start := time.Now()
	output, err := s.command(ctx, program, args...).CombinedOutput()
	if judge != nil {
		err = judge(string(output), err)
	}
	s.took(name, time.Since(start))
	if err != nil {
		s.fail(name, string(output)+err.Error())
		return
	}
	s.pass()
}
