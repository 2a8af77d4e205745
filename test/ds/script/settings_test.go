package script_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/directsockets/settings"
	"exnet/test/ds"
)

// warning is what the library says to a program that has these settings when it opens a
// TCP socket.
func warning(t *testing.T, program, library string, env ...string) string {
	t.Helper()
	var text bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), ds.Preload(library, "/nonexistent", env...)...)
	cmd.Stderr = &text
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimPrefix(text.String(), fmt.Sprintf("extds[%d]: ", cmd.Process.Pid))
	return strings.TrimSuffix(line, "\n")
}

// The library refuses what the table of all settings says that it refuses, goes on with the
// default that is written there, and says so once.
func TestSettingsAreThoseOfTheTable(t *testing.T) {
	program, library := ds.Build(t, "warned", nil, "warned.c"), ds.Library(t)
	for _, s := range settings.All {
		if s.Readers&(settings.C|settings.Go) == 0 || s.Kind == settings.Text {
			continue // none of the library's, or it may be anything
		}
		values := []string{"foo", "", "on", "off", "1"}
		for _, n := range []uint64{s.Least, s.Most} {
			values = append(values, fmt.Sprint(n-1), fmt.Sprint(n), fmt.Sprint(n+1), "-"+fmt.Sprint(n), " "+fmt.Sprint(n))
		}
		if s.Kind == settings.Subnets {
			values = append(values, "10.0.0.0/8,::1 fd00::/8", "10.0.0.0/33", "10.0.0.0/8,here", strings.Repeat("::1,", 17))
		}
		for _, v := range values {
			if s.Name == "EXN_DS" && (v == "off" || v == "0") {
				continue // it does nothing then
			}
			if s.Name == "EXN_DS_VERBOSE" && s.Check(v) == nil {
				continue // it says other things
			}
			want := ""
			for _, m := range settings.Check([]string{s.Name + "=" + v}) {
				want = m.Warning(s.Default)
			}
			if got := warning(t, program, library, s.Name+"="+v); got != want {
				t.Errorf("%s=%s\ngot  %q\nwant %q", s.Name, v, got, want)
			}
		}
	}
	if got, want := warning(t, program, library, "EXN_DS_COLOUR=red"), settings.Check([]string{"EXN_DS_COLOUR=red"})[0].Error(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	want := "EXN_DS_LANES=1: write a number from 2 to 4096 (4096 holds); EXN_DS_SLOTS=48: write a power of two from 16 to 1024 (64 holds)"
	if got := warning(t, program, library, "EXN_DS_SLOTS=48", "EXN_DS_LANES=1"); got != want && got != reversed(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func reversed(list string) string {
	first, second, _ := strings.Cut(list, "; ")
	return second + "; " + first
}
