package repo

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// subjectMost is how long the first line of a commit's message may be.
const subjectMost = 65

// baseVariable names the commit behind which commits are judged, as CI sets it. Without it
// those are that origin/main does not have.
const baseVariable = "EXN_BASE"

var subjectForm = regexp.MustCompile(`^[\w./@*, -]+: \S`)

// subjectComplaints says what is wrong with the first lines of commits.
func subjectComplaints(subjects []string) (complaints []string) {
	for _, s := range subjects {
		if n := utf8.RuneCountInString(s); n > subjectMost {
			complaints = append(complaints, fmt.Sprintf("%q has %d characters, at most %d", s, n, subjectMost))
		}
		if !subjectForm.MatchString(s) {
			complaints = append(complaints, fmt.Sprintf("%q is not of the form \"package: verb in the imperative\"", s))
		}
	}
	return complaints
}

func TestCommitSubjects(t *testing.T) {
	base := os.Getenv(baseVariable)
	if base == "" {
		base = "origin/main"
		if err := git("rev-parse", "--verify", "--quiet", base).Run(); err != nil {
			t.Skipf("no commits to judge: there is no %s, and %s names none", base, baseVariable)
		}
	}
	out, err := git("log", "--no-merges", "--format=%s", base+"..HEAD").Output()
	if err != nil {
		t.Fatalf("git log %s..HEAD: %v", base, err)
	}
	for _, complaint := range subjectComplaints(strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")) {
		if len(out) > 0 {
			t.Error(complaint)
		}
	}
}

func git(args ...string) *exec.Cmd {
	return exec.Command("git", append([]string{"-C", "../.."}, args...)...)
}

func TestSubjectComplaints(t *testing.T) {
	fits := "exn: " + strings.Repeat("a", subjectMost-5)
	for subject, want := range map[string]int{
		fits: 0, "mtu, arp: say what is meant": 0, "test/ds: é is one character": 0,
		fits + "b": 1, "fix it": 1, "exn:": 1, "": 1, strings.Repeat("long ", 20): 2,
	} {
		if got := subjectComplaints([]string{subject}); len(got) != want {
			t.Errorf("%q: %d complaints, want %d: %v", subject, len(got), want, got)
		}
	}
}
