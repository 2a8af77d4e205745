package stream_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

const noFilters = 77 // confined's exit status

// Programs may have the kernel kill them for other system calls than their own (seccomp), in the middle of all:
// from then on the library makes none.
func TestConfined(t *testing.T) {
	ds.Build(t, "confined", nil, "confined.c")
	for _, how := range []string{"prctl server", "prctl client", "seccomp server", "raw client", "prctl server client", "prctl first client"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			program := append([]string{ds.Build(t, "confined", nil, "confined.c")}, strings.Fields(how)...)
			_, text, err := preloadedWith(t, "", program)
			if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == noFilters {
				t.Skip("this kernel has no filters of system calls")
			}
			if err != nil {
				t.Fatalf("%v, by TCP: %v\n%s", how, err, text)
			}
			lanes, text, err := preloaded(t, program)
			if err != nil {
				t.Errorf("%v: %v\n%s", how, err, text)
			}
			if first := strings.Contains(how, "first"); lanes < 2 && !first {
				t.Errorf("%d ends had a lane\n%s", lanes, text)
			}
			if !strings.Contains(text, ": seccomp") {
				t.Errorf("nothing was said of the reason\n%s", text)
			}
		})
	}
}
