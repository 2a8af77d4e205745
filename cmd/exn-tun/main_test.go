package main

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // a part of it, or "" for nothing
	}{
		{"version", exitDone, runtime.Version() + " " + runtime.GOOS, ""},
		{"help", exitDone, "version", ""},
		{"--help", exitDone, "Exit codes:", ""},
		{"help version", exitDone, "Usage: exn-tun version", ""},
		{"version --help", exitDone, "Usage: exn-tun version", ""},
		{"", exitUsage, "", "exn-tun help"},
		{"fly", exitUsage, "", "fly"},
		{"help fly", exitUsage, "", "fly"},
		{"version --fast", exitUsage, "", "--fast"},
		{"show nodes --fabric /nowhere/at/all", exitFailed, "", "no node has attached"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(c.args), &stdout, &stderr); code != c.code {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.code)
		}
		for _, stream := range []struct{ name, got, want string }{
			{"standard output", stdout.String(), c.stdout},
			{"standard error", stderr.String(), c.stderr},
		} {
			if !strings.Contains(stream.got, stream.want) || stream.want == "" && stream.got != "" {
				t.Errorf("%q: %s is %q, want %q", c.args, stream.name, stream.got, stream.want)
			}
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestFailureIsExitCodeOne(t *testing.T) {
	var stderr bytes.Buffer
	if code := run([]string{"version"}, brokenPipe{}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "nobody reads") {
		t.Errorf("exit code %d, standard error %q", code, &stderr)
	}
}
