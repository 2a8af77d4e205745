package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFuzzRunsEveryTarget(t *testing.T) {
	enterModule(t, map[string]string{
		"x_test.go": `package x
import "testing"
func FuzzGood(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }
`,
		"deep/y_test.go": `package y
import "testing"
func FuzzBad(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2 {
			t.Error("too long for me")
		}
	})
}
`,
		"elsewhere/z_test.go": `//go:build plan9
package z
import "testing"
func FuzzElsewhere(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }
`,
		"elsewhere/z.go": "package z\n",
	})
	s, out := newSuite()
	s.fuzz(t.Context())
	wantNames(t, "failed", s.failed, []string{"fuzz ./deep FuzzBad"})
	if want := map[string][]string{"not built for this system": {"fuzz ./elsewhere FuzzElsewhere"}}; !maps.EqualFunc(s.skipped, want, slices.Equal) {
		t.Errorf("skipped %q, want %q", s.skipped, want)
	}
	if s.passed != 1 || !strings.Contains(out.String(), "too long for me") {
		t.Errorf("%d passed, want 1; printed:\n%s", s.passed, out)
	}
}

func TestFuzzEndsWithTheRun(t *testing.T) {
	files := make(map[string]string)
	for i := range 2*runtime.NumCPU() + 1 {
		files[fmt.Sprintf("p%d/x_test.go", i)] = "package p\nimport \"testing\"\nfunc FuzzX(f *testing.F) { f.Fuzz(func(*testing.T, byte) {}) }\n"
	}
	enterModule(t, files)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, _ := newSuite()
	s.fuzz(ctx)
	if s.passed+len(s.failed) != 0 {
		t.Errorf("%d passed and %q failed after the end", s.passed, s.failed)
	}
}

func TestFind(t *testing.T) {
	const body = "(t *testing.T) {}\n"
	enterModule(t, map[string]string{
		"x_test.go":                 "package x\nfunc TestAllocs" + body + "func TestPut" + body,
		"a/b/y_test.go":             "package b\nfunc TestGetAllocatesNothing" + body + "// func TestAllocsOld" + body + "func helpTestAlloc" + body + "const code = `\nfunc TestAllocsQuoted" + body + "`\n",
		"a/y.go":                    "package a\nfunc TestAllocs" + body,
		"a/testdata/z_test.go":      "package z\nfunc TestAllocs" + body,
		".git/w_test.go":            "package w\nfunc TestAllocs" + body,
		"_attic/v_test.go":          "package v\nfunc TestAllocs" + body,
		"a/b/benchmark_test.go":     "package b\nfunc BenchmarkPut(b *testing.B) {}\n",
		"a/b/testdata/ignored.text": "",
	})
	found, err := find(".", "Test", "Alloc")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"./.": {"TestAllocs"}, "./a/b": {"TestGetAllocatesNothing"}}
	if !maps.EqualFunc(found, want, slices.Equal) {
		t.Errorf("found %q, want %q", found, want)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		n, cpus int
		long    bool
		want    time.Duration
	}{
		{1, 2, false, 3 * time.Second},
		{40, 2, false, 3 * time.Second},
		{100, 2, false, 1800 * time.Millisecond},
		{1000, 2, false, time.Second},
		{1, 2, true, 2 * time.Minute},
		{32, 2, true, 75 * time.Second},
	} {
		if got := share(c.n, c.cpus, c.long); got != c.want {
			t.Errorf("share(%d, %d, %v) = %v, want %v", c.n, c.cpus, c.long, got, c.want)
		}
	}
}

func TestEndedLate(t *testing.T) {
	const late = `fuzz: elapsed: 3s, execs: 7509 (0/sec), new interesting: 10 (total: 10)
--- FAIL: FuzzFrame (3.01s)
    context deadline exceeded
FAIL
exit status 1
FAIL	exnet/exteth	3.021s
`
	for name, c := range map[string]struct {
		output string
		want   bool
	}{
		"late":               {late, true},
		"no words":           {"FAIL\n", false},
		"found something":    {late + "    Failing input written to testdata/fuzz/FuzzFrame/1\n", false},
		"panic at the end":   {late + "panic: no\n", false},
		"a test's own error": {strings.Replace(late, "    context", "    x_test.go:3: context", 1), false},
		"more than that":     {strings.Replace(late, "exceeded\n", "exceeded\n    and wrong\n", 1), false},
	} {
		if got := endedLate(c.output); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
