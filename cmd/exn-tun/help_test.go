package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/directsockets/settings"
	"exnet/internal/manpage/mantest"
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

func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if code, _, errs := call(t, plain, "help", "--man", dir); code != exitDone || errs != "" {
		t.Fatalf("exit code %d, said %q", code, errs)
	}
	parser, err := newParser(io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	mantest.Check(t, parser.Model, dir)
	text, err := os.ReadFile(filepath.Join(dir, "exn-tun-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.All {
		if strings.Contains(string(text), "\n\\fB"+s.Name+"\\fR\n") == s.Test {
			t.Errorf("exn-tun-run.1: %s, which is for tests: %v", s.Name, s.Test)
		}
	}
}
