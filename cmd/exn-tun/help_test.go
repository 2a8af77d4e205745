package main

import (
	"strings"
	"testing"

	"exnet/directsockets/settings"
)

// All settings that are for users are explained.
func TestHelpSettings(t *testing.T) {
	code, out, errs := call(t, plain, "help", "settings")
	if code != exitDone || errs != "" {
		t.Fatalf("exit code %d, said %q", code, errs)
	}
	flat := strings.Join(strings.Fields(out), " ")
	for _, s := range settings.All {
		if strings.Contains(out, "\n"+s.Name+"\n") == s.Test {
			t.Errorf("%s: for tests is %v:\n%s", s.Name, s.Test, out)
		}
		if !s.Test && (!strings.Contains(flat, strings.Join(strings.Fields(s.Meaning), " ")) || !strings.Contains(flat, s.Values())) {
			t.Errorf("%s is not explained:\n%s", s.Name, out)
		}
	}
	for line := range strings.Lines(out) {
		if len(line) > helpWidth+1 {
			t.Errorf("a long line: %q", line)
		}
	}
}
