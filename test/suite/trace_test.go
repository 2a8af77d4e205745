package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func git(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=nobody", "-c", "user.email=nobody@example.org"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func TestCheckUnchanged(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func()
		want   []string
	}{
		"nothing":         {func() {}, nil},
		"an ignored file": {func() { write("x.prof", "") }, nil},
		"a new file":      {func() { write("new", "") }, []string{"no file changed"}},
		"a tracked file":  {func() { write("clean", "dirt") }, []string{"no file changed"}},
		"a dirty file":    {func() { write("dirty", "more dirt") }, []string{"no file changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			enterModule(t, map[string]string{".gitignore": "*.prof\n", "clean": "", "dirty": ""})
			git(t, "init", "--quiet")
			git(t, "add", ".")
			git(t, "commit", "--quiet", "--message=x")
			write("dirty", "dirt")
			before, err := checkoutState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.change()
			s, _ := newSuite()
			s.checkUnchanged(before, err)
			wantNames(t, "failed", s.failed, c.want)
		})
	}
	t.Run("no checkout", func(t *testing.T) {
		t.Chdir(t.TempDir())
		before, err := checkoutState(t.Context())
		s, _ := newSuite()
		s.checkUnchanged(before, err)
		if len(s.failed) != 0 || len(s.skipped) != 1 {
			t.Errorf("failed %q, skipped %q, want one skip", s.failed, s.skipped)
		}
	})
}

func TestCheckProcesses(t *testing.T) {
	s, out := newSuite()
	s.checkProcesses()
	if s.passed != 1 {
		t.Errorf("failed %q though nothing was started", s.failed)
	}

	sleeper := s.command(t.Context(), "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	s.checkProcesses()
	if len(s.failed) != 1 || !strings.Contains(out.String(), strconv.Itoa(sleeper.Process.Pid)+" sleep 1000") {
		t.Errorf("failed %q, printed:\n%s", s.failed, out)
		sleeper.Process.Kill()
	}
	if err := sleeper.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process that was left ended with %v", err)
	}
}
