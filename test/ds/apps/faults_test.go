package apps_test

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"exnet/test/ds"
)

// conversation runs faults.py and returns what it and the library say.
func conversation(t *testing.T, env []string, args ...string) (out, log string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	cmd := exec.CommandContext(t.Context(), python, append([]string{testdata(t, "faults.py")}, args...)...)
	cmd.Env = append(append(os.Environ(), "EXN_DS_VERBOSE=1"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// A reset is told to the first call, one that peeks too, in TCP mode.
func TestPeekTellsReset(t *testing.T) {
	library := ds.Library(t)
	want, _ := conversation(t, nil, "peek")
	got, log := conversation(t, ds.Preload(library, ds.Fabric(t), "EXN_DS_TEST_NOCONSENT=1"), "peek")
	if got != want {
		t.Errorf("with the library\n%swithout\n%s%s", got, want, log)
	}
}

// A server that lets an offer expire over its work takes lanes afterwards.
func TestThinkingServer(t *testing.T) {
	library := ds.Library(t)
	for rounds := 2; rounds < 6; rounds++ {
		for extra := range 3 {
			t.Run(strconv.Itoa(rounds)+"-"+strconv.Itoa(extra), func(t *testing.T) {
				t.Parallel()
				_, log := conversation(t, ds.Preload(library, ds.Fabric(t)), "think", strconv.Itoa(rounds), strconv.Itoa(extra))
				if bytes.Count([]byte(log), []byte(" has lane ")) != 2 {
					t.Errorf("not both ends have a lane:\n%s", log)
				}
			})
		}
	}
}
