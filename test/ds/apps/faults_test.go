package apps_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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

// Where connections end soon the next get lanes later, until some have gone on; and a
// number that was asked for holds.
func TestShortConnections(t *testing.T) {
	library := ds.Library(t)
	const short, middle, long = "5", "25", "200"
	times := func(n int, what string) []string { return slices.Repeat([]string{what}, n) }
	play := func(settings []string, rounds ...string) (lanes []int) {
		_, log := conversation(t, ds.Preload(library, ds.Fabric(t), settings...), append([]string{"habit"}, rounds...)...)
		for _, one := range strings.Split(log, "connection of ")[1:] {
			lanes = append(lanes, strings.Count(one, " has lane "))
		}
		if len(lanes) != len(rounds) {
			t.Fatalf("%d connections, want %d:\n%s", len(lanes), len(rounds), log)
		}
		return lanes
	}
	lanes := play(nil, slices.Concat(times(12, short), times(1, middle), times(12, long), times(1, middle))...)
	if lanes[12] != 0 {
		t.Errorf("after short connections one of %s rounds has lanes at %d ends", middle, lanes[12])
	}
	if lanes[13] == 0 {
		t.Errorf("a connection of %s rounds has no lane", long)
	}
	if last := lanes[len(lanes)-1]; last == 0 {
		t.Errorf("after long connections one of %s rounds has no lane", middle)
	}
	lanes = play([]string{"EXN_DS_CALLS=8"}, slices.Concat(times(12, short), times(1, middle))...)
	if last := lanes[len(lanes)-1]; last == 0 {
		t.Errorf("with EXN_DS_CALLS=8 a connection of %s rounds has no lane after short ones", middle)
	}
}
