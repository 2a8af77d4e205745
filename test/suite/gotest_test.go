package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/test/leak"
	"exnet/test/tier"
)

func TestMain(m *testing.M) { leak.Main(m) }

// newSuite returns a suite and what it prints.
func newSuite() (*suite, *strings.Builder) {
	var out strings.Builder
	return &suite{report: newReport(&out), plan: plan{tier: tier.Quick, pkg: time.Minute}, mark: newMark()}, &out
}

// enterModule makes a module of the given files and goes there.
func enterModule(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func wantNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestGoTestFindsEveryKindOfFailure(t *testing.T) {
	enterModule(t, map[string]string{
		"good/x_test.go": `package good
import "testing"
func TestOne(t *testing.T) {}
func TestTwo(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b/c", func(t *testing.T) { t.Log("wait"); t.Skip("needs more memory") })
}
func FuzzSeeds(f *testing.F) { f.Add(1); f.Fuzz(func(*testing.T, int) {}) }
`,
		"bad/x_test.go": `package bad
import "testing"
func TestGood(t *testing.T) {}
func TestBad(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("an apple is no pear") })
}
func TestBadAfterSubtests(t *testing.T) {
	t.Run("good", func(t *testing.T) {})
	t.Error("after all")
}
`,
		"crash/x_test.go": "package crash\nimport \"testing\"\nfunc TestCrash(t *testing.T) { panic(\"out of luck\") }\nfunc TestLater(t *testing.T) {}\n",
		"exit/x_test.go":  "package exit\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { os.Exit(3) }\n",
		"broken/x.go":     "package broken\nvar x int = y\n",
		"main/x_test.go":  "package main\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { m.Run(); println(\"left a mess\"); os.Exit(1) }\nfunc TestGood(t *testing.T) {}\n",
		"empty/x.go":      "package empty\n",
	})
	s, out := newSuite()
	s.again = mostAgain
	s.goTest(t.Context(), "all", nil, "./...")
	wantNames(t, "failed", s.failed, []string{
		"m/bad TestBad/bad", "m/bad TestBadAfterSubtests", "m/broken (does not build)", "m/crash TestCrash", "m/exit TestExit (did not end)", "m/main",
	})
	const passed = 3 + 3 + 1 // in good, bad and main
	if s.passed != passed {
		t.Errorf("%d passed, want %d", s.passed, passed)
	}
	if want := map[string][]string{"needs more memory": {"m/good TestTwo/b/c"}}; !maps.EqualFunc(s.skipped, want, slices.Equal) {
		t.Errorf("skipped %q, want %q", s.skipped, want)
	}
	for _, want := range []string{"an apple is no pear", "after all", "out of luck", "undefined: y", "left a mess", "ok  \tm/good\t"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not printed: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("printed:\n%s", out)
	}
}

func TestGoTestThatDoesNotRun(t *testing.T) {
	enterModule(t, map[string]string{"x_test.go": "package x\nimport \"testing\"\nfunc TestHang(t *testing.T) { select {} }\n"})
	for name, args := range map[string][]string{
		"wrong usage": {"-such-a-flag-is-not-there=1", "."},
		"no package":  {"-v", "./nowhere"},
	} {
		s, _ := newSuite()
		s.goTest(t.Context(), name, args[:1], args[1:]...)
		if len(s.failed) != 1 {
			t.Errorf("%s: failed %q, want one", name, s.failed)
		}
	}

	s, _ := newSuite()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	s.goTest(ctx, "out of time", nil, ".")
	wantNames(t, "failed", s.failed, []string{"out of time"})
}

func TestTallyOfTestThatDidNotEnd(t *testing.T) {
	s, _ := newSuite()
	tally := newTally(s.report)
	err := tally.read(strings.NewReader(`not an event
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: here\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t1.500s\n"}
{"Action":"fail","Package":"p","Elapsed":1.5}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(tally.suspects) != 1 || len(tally.suspects[0].tests) != 0 {
		t.Fatalf("suspects %+v, want the package as a whole", tally.suspects)
	}
	wantVerdicts(t, tally.suspects[0].failed, []string{"p TestA (did not end)"})
	if s.elapsed["p"] != 1500*time.Millisecond {
		t.Errorf("took %v", s.elapsed["p"])
	}
}

func wantVerdicts(t *testing.T, got []verdict, want []string) {
	t.Helper()
	var names []string
	for _, v := range got {
		names = append(names, v.name)
	}
	wantNames(t, "failed", names, want)
}

// once returns a line of code that is true in the first run only.
func once(t *testing.T, name string) string {
	return fmt.Sprintf("func() bool { _, err := os.Stat(%[1]q); return err != nil && os.WriteFile(%[1]q, nil, 0o644) == nil }()", filepath.Join(t.TempDir(), name))
}

func TestFailedOnesRunAgain(t *testing.T) {
	const head = "import (\"os\"; \"testing\")\nvar _ = os.Exit\nfunc TestGood(t *testing.T) {}\n"
	sub := func(name, body string) string {
		return fmt.Sprintf("t.Run(%s, func(t *testing.T) { %s })\n", name, body)
	}
	passes := func(which, file string) string {
		return "if " + which + once(t, file) + " { t.Error(\"this time\") }"
	}
	enterModule(t, map[string]string{
		"a/x_test.go": "package a\n" + head + "func TestShaky(t *testing.T) {" + sub(`"once"`, passes("!", "a1")) + sub(`"a|(y"`, sub(`"z"`, passes("", "a2"))) + "}\n",
		"b/x_test.go": "package b\n" + head + "func TestCrash(t *testing.T) { if " + once(t, "b") + " { os.Exit(3) } }\n",
		"c/x_test.go": "package c\n" + head + "func TestBad(t *testing.T) { t.Error(\"each time\") }\n",
		"d/x_test.go": "package d\n" + head + "func TestBoth(t *testing.T) {" + sub(`"x"`, passes("", "d1")) + sub(`"y"`, passes("", "d2")) + sub(`"z"`, "") + "}\n",
		"e/x_test.go": "package e\nimport (\"fmt\"; \"os\"; \"testing\")\nfunc TestNamed(t *testing.T) {" + sub(`fmt.Sprint(os.Getpid())`, passes("", "e")) + "}\n",
		"f/x_test.go": "package f\nimport (\"os\"; \"testing\")\nfunc TestSum(t *testing.T) { n := 0\n" + sub(`"x"`, "n++") + sub(`"y/z"`, "n++; "+passes("", "f")) + "if n < 2 { t.Error(\"too little\") } }\n",
	})
	s, out := newSuite()
	s.again = -7 // more than else
	s.goTest(t.Context(), "all", nil, "./...")
	for i, name := range s.failed {
		if strings.HasPrefix(name, "m/e TestNamed/") {
			s.failed[i] = "m/e TestNamed"
		}
	}
	wantNames(t, "failed", s.failed, []string{"m/c TestBad", "m/e TestNamed"})
	wantNames(t, "unsteady", s.unsteady, []string{"m/a TestShaky/a|(y/z", "m/b TestCrash (did not end)", "m/d TestBoth/x", "m/d TestBoth/y", "m/f TestSum/y/z"})
	const passed = 3 + 2 + 1 + 4 + 1 + 3 // in a, b, c, d, e (without its subtest) and f (x twice)
	if s.passed != passed {
		t.Errorf("%d passed, want %d", s.passed, passed)
	}
	if s.summarize() != 2 || !strings.Contains(out.String(), "this time") || !strings.Contains(out.String(), "== unsteady") {
		t.Error("the summary does not say what was unsteady, or the report not why")
	}
	if t.Failed() {
		t.Logf("printed:\n%s", out)
	}
}

// A list of skips fits on a screen, and what a sample left out is no skip.
func TestSummaryIsShort(t *testing.T) {
	s, out := newSuite()
	for i := range 100 {
		s.skip(fmt.Sprint("m TestProgram", i), "no network")
	}
	s.count("scripts", 3, 10)
	s.count("scripts", 4, 10)
	s.summarize()
	if n := strings.Count(out.String(), "\n"); n > 24 || !strings.Contains(out.String(), "no network (100)") || !strings.Contains(out.String(), "and 96 more") {
		t.Errorf("%d lines:\n%s", n, out)
	}
	if !strings.Contains(out.String(), "scripts    7 of 20\n") {
		t.Errorf("no sum of the samples:\n%s", out)
	}
}

// Cases that a test samples are added up, and a test in a later tier is left out without a skip.
func TestSamplesAreSummedUp(t *testing.T) {
	enterModule(t, map[string]string{"x_test.go": "package x\nimport \"testing\"\nfunc TestNginx(t *testing.T) { t.Log(\"" + tier.Said + "scripts 2 of 9\") }\nfunc TestApache(t *testing.T) { t.Error(\"it is for later\") }\n"})
	s, _ := newSuite()
	s.tests(t.Context(), "all", nil, func(string) bool { return true })
	wantNames(t, "failed", s.failed, nil)
	want := map[string][2]int{"scripts": {2, 9}, "programs": {0, 1}}
	if s.passed != 1 || len(s.skipped) != 0 || !maps.Equal(s.cases, want) {
		t.Errorf("%d passed, skipped %v, cases %v, want %v", s.passed, s.skipped, s.cases, want)
	}
}

// The later command plays what the earlier left out, if it is in the sample, and nothing else.
func TestLaterTier(t *testing.T) {
	enterModule(t, map[string]string{
		"a/x_test.go": "package a\nimport \"testing\"\nfunc TestOther(t *testing.T) { t.Error(\"it is not listed\") }\n",
		"b/x_test.go": "package b\nimport \"testing\"\nfunc TestApache(t *testing.T) {}\nfunc TestOther(t *testing.T) { t.Error(\"it is not listed\") }\n",
	})
	played := 0
	for i := range 64 {
		s, _ := newSuite()
		s.tier, s.sample = tier.CI, fmt.Sprint(i)
		if !tier.Rows["TestApache"].Whole(s.sample) {
			continue
		}
		played++
		s.tests(t.Context(), "all", nil, func(string) bool { return true })
		if len(s.failed) > 0 || s.passed != 1 {
			t.Errorf("%d passed, failed %v", s.passed, s.failed)
		}
		break
	}
	if played == 0 {
		t.Error("the test is in no sample")
	}
}

func TestOverBudget(t *testing.T) {
	for _, c := range []struct {
		seconds []float64
		over    bool
	}{
		{nil, false}, {[]float64{1000, 1000}, false}, {[]float64{1000, 400, 1000}, false}, {[]float64{451, 452, 1000}, true},
	} {
		if err := overBudget(c.seconds, 5*time.Minute); (err != nil) != c.over {
			t.Errorf("%v: %v", c.seconds, err)
		}
	}
}

func TestSkipReason(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestX\n    x_test.go:1: first\n    x_test.go:2: needs root: no\n--- SKIP: TestX (0.00s)\n": "needs root: no",
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\n":                                                          "skipped without a reason",
	} {
		if got := skipReason(output); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	s, out := newSuite()
	s.passed = 12
	s.skip("exnet/exn TestTUN", "needs root")
	s.skip("exnet/exn TestTAP", "needs root")
	s.fail("exnet/napi TestBudget", "it was overdrawn\n")
	s.took("exnet/exn", 2*time.Second)
	if n := s.summarize(); n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
	want := `FAILED: exnet/napi TestBudget
    it was overdrawn

== not possible on this machine
needs root (2)
    exnet/exn TestTUN
    exnet/exn TestTAP

== failed
exnet/napi TestBudget

== 0s in all; the longest
   2.0 s  exnet/exn

12 passed, 1 failed, 2 skipped
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out, want)
	}
}

func TestCheck(t *testing.T) {
	s, out := newSuite()
	s.check(t.Context(), "good", nil, "true")
	s.check(t.Context(), "bad", nil, "sh", "-c", "echo the reason; exit 7")
	s.check(t.Context(), "missing", nil, "no-such-program")
	wantNames(t, "failed", s.failed, []string{"bad", "missing"})
	if s.passed != 1 || !strings.Contains(out.String(), "the reason") {
		t.Errorf("%d passed, want 1; printed:\n%s", s.passed, out)
	}
}

func TestLintSeesUnformattedFiles(t *testing.T) {
	enterModule(t, map[string]string{"x.go": "package  x\n"})
	s, out := newSuite()
	s.lint(t.Context())
	if !slices.Contains(s.failed, "gofmt") || !strings.Contains(out.String(), "x.go") {
		t.Errorf("failed %q, printed:\n%s", s.failed, out)
	}
}
