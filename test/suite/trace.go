package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// checkoutState describes the files of the checkout: which are new, and how the
// others differ from what was committed.
func checkoutState(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return "", err
	}
	var state strings.Builder
	for _, args := range [][]string{{"status", "--porcelain", "--untracked-files=all"}, {"diff", "HEAD"}} {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		state.Write(out)
	}
	return state.String(), nil
}

func (s *suite) checkUnchanged(before string, err error) {
	const name = "no file changed"
	after := ""
	if err == nil {
		after, err = checkoutState(context.Background())
	}
	switch {
	case err != nil:
		s.skip(name, "not a git checkout: "+err.Error())
	case after != before:
		s.fail(name, "before:\n"+indent(before)+"after:\n"+indent(after))
	default:
		s.pass()
	}
}

// newMark returns what all processes of a run, and of no other, have in their
// environment.
func newMark() string {
	return fmt.Sprintf("EXNET_SUITE=%d-%d", os.Getpid(), time.Now().UnixNano())
}

// marked returns the processes that bear a mark, by number, with their command.
func marked(mark string) map[int]string {
	found := make(map[int]string)
	all, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is good
	for _, path := range all {
		// What cannot be read belongs to others or is gone.
		environ, _ := os.ReadFile(path)
		if !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+mark+"\x00")) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found[pid] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// checkProcesses wants no process to outlive the run, and kills those that do.
func (s *suite) checkProcesses() {
	const patience = 3 * time.Second // for what has been told to end
	left := marked(s.mark)
	for deadline := time.Now().Add(patience); len(left) > 0 && time.Now().Before(deadline); left = marked(s.mark) {
		time.Sleep(patience / 30)
	}
	if len(left) == 0 {
		s.pass()
		return
	}
	var list strings.Builder
	for pid, command := range left {
		fmt.Fprintf(&list, "%d %s\n", pid, command)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			fmt.Fprintf(&list, "    cannot be killed: %v\n", err)
		}
	}
	s.fail("no process left", list.String())
}
