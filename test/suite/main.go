// Suite runs everything that judges a change, and says how it went.
//
//	go run ./test/suite [-lint | -ci | -all]
//	go run ./test/suite -adverse CONDITION,... [PACKAGE...]
//
// Without a flag it does what make test does: gofmt, go vet and staticcheck; all tests that
// test/tier does not leave to later, those of packages in which Go code shares memory with the
// race detector; those of allocations (named ...Alloc...) once more without it, because it
// allocates. Fuzz targets play the inputs that they have. With -lint it ends after the first three.
//
// With -ci it does what make test-ci does: a sample of what make test leaves out, which the commit
// decides, and each fuzz target for a few seconds. With -all it leaves out nothing: no result is
// taken from the cache, tests run in random order and keep their artifacts in bin/artifacts,
// fuzzing takes minutes, and each benchmark runs once to see that it can.
//
// With -adverse (make test-adverse) only tests of packages in which threads or processes wait for
// each other are run, under conditions that a quick machine does not have: one-cpu, busy (two
// loops beside it), half-cpu (a cgroup's quota) and slow-wakes (wake-ups of ours take 0.4 ms and
// yields up to 2 ms, internal/late), or all of them. A test that fails under one counts on time,
// or has found what a slow machine would.
//
// At the end no file of the checkout may have changed and no process may be left. Then follow what
// was left to later, in a line for each kind of case; what could not be run here, and why; what
// failed; and as the last line
//
//	N passed, N failed, N skipped
//
// Tests are counted by their innermost subtests. One test in a run that fails is run once more when
// nothing else runs, because a machine that others use too can stop a process for longer than any
// peer waits; if it passes then, it is listed as unsteady, and its log is kept in bin/artifacts.
// The exit code is 0 when nothing failed, 1 when something did, 2 for wrong usage, and 130 after
// Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"exnet/test/tier"
)

// A plan is what one of the commands runs, and for how long at the most. What takes longer has
// hung: it is stopped, and fails.
type plan struct {
	tier  tier.Tier
	pkg   time.Duration // of a package
	whole time.Duration // of all
	usual time.Duration // what it should take on two CPUs
	steps func(*suite) []func(context.Context)
}

var (
	lintPlan = plan{tier: tier.Quick, whole: 10 * time.Minute, steps: func(s *suite) []func(context.Context) {
		return []func(context.Context){s.lint}
	}}
	quickPlan = plan{tier: tier.Quick, pkg: 10 * time.Minute, whole: 30 * time.Minute, usual: 5 * time.Minute, steps: func(s *suite) []func(context.Context) {
		return []func(context.Context){s.lint, s.raced, s.plain, s.allocations}
	}}
	ciPlan = plan{tier: tier.CI, pkg: 20 * time.Minute, whole: 50 * time.Minute, usual: 15 * time.Minute, steps: func(s *suite) []func(context.Context) {
		return []func(context.Context){s.raced, s.plain, s.fuzz}
	}}
	allPlan = plan{tier: tier.All, pkg: 3 * time.Hour, whole: 12 * time.Hour, steps: func(s *suite) []func(context.Context) {
		return []func(context.Context){s.lint, s.raced, s.plain, s.allocations, s.benchmarks, s.fuzz}
	}}
)

var errTooLong = errors.New("it takes several times as long as it should: something hangs")

func main() {
	lint := flag.Bool("lint", false, "only gofmt, go vet and staticcheck")
	ci := flag.Bool("ci", false, "a sample of what is left out without a flag")
	all := flag.Bool("all", false, "everything: long matrices, seeds, soaks and fuzzing")
	adverse := flag.String("adverse", "", "tests under `conditions` that a slow machine has, with commas between: one-cpu, busy, half-cpu, slow-wakes, all")
	flag.Parse()
	p := quickPlan
	if *adverse != "" {
		conditions, err := chosenConditions(*adverse)
		if err != nil {
			fmt.Fprintln(os.Stderr, "suite:", err)
			os.Exit(2)
		}
		p = plan{tier: tier.Quick, whole: adverseLimit, steps: func(s *suite) []func(context.Context) {
			return []func(context.Context){s.adverse(conditions, flag.Args())}
		}}
	}
	for _, choice := range []struct {
		on   bool
		plan plan
	}{{*lint, lintPlan}, {*ci, ciPlan}, {*all, allPlan}} {
		if choice.on {
			p = choice.plan
		}
	}
	if flag.NArg() > 0 && *adverse == "" || flag.NFlag() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	if _, err := os.Stat("go.mod"); err != nil {
		fmt.Fprintln(os.Stderr, "suite: run it in the top directory of the checkout:", err)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	limited, cancel := context.WithTimeoutCause(ctx, p.whole, errTooLong)
	run := &suite{report: newReport(os.Stdout), plan: p, mark: newMark(), sample: sample(ctx)}
	run.all(limited)
	interrupted := ctx.Err() != nil
	cancel()
	stop()
	failed := run.summarize()
	switch {
	case interrupted:
		os.Exit(130)
	case failed > 0:
		os.Exit(1)
	}
}

// sample names what make test-ci plays: by EXN_SAMPLE, else the commit.
func sample(ctx context.Context) string {
	if name := os.Getenv(tier.SampleVariable); name != "" {
		return name
	}
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=4", "HEAD").Output()
	if err != nil {
		return "none"
	}
	return strings.TrimSpace(string(out))
}

// suite is one run.
type suite struct {
	*report
	plan
	mark   string // NAME=VALUE in the environment of its processes
	sample string // what make test-ci plays
	again  int    // how many tests were run a second time
}

func (s *suite) all(ctx context.Context) {
	before, statusErr := checkoutState(ctx)
	for _, step := range s.steps(s) {
		step(ctx)
		if ctx.Err() != nil {
			s.fail("the run as a whole", context.Cause(ctx).Error())
			break
		}
	}
	s.heading("what is left behind")
	s.checkUnchanged(before, statusErr)
	s.checkProcesses()
	s.checkBudget()
}

func (s *suite) lint(ctx context.Context) {
	s.check(ctx, "gofmt", func(output string, err error) error {
		if files := strings.Fields(output); err == nil && len(files) > 0 {
			err = fmt.Errorf("%d files are not formatted; run make fmt", len(files))
		}
		return err
	}, "gofmt", "-l", ".")
	s.check(ctx, "go vet", nil, "go", "vet", "./...")
	s.check(ctx, "staticcheck", nil, "go", "tool", "staticcheck", "./...")
}

// What these have in their paths has no Go code of the product that shares memory: programs in C
// play there, programs of ours run as processes, or models that have one thread and take
// seventeen times as long with the race detector.
var plainPackages = []string{"/test/ds", "/test/exn", "/test/memmodel", "/test/docs", "/cmd/", "/internal/debroot"}

// racedLater are packages of Go code that shares memory, whose tests take minutes with the race
// detector: make test runs them without it.
var racedLater = []string{"/test/ds/gopeer", "/fabric/emu"}

func (s *suite) isPlain(pkg string) bool {
	has := func(part string) bool { return strings.Contains(pkg, part) }
	if slices.ContainsFunc(racedLater, has) {
		return s.tier == tier.Quick
	}
	return slices.ContainsFunc(plainPackages, has)
}

func (s *suite) raced(ctx context.Context) {
	s.tests(ctx, "tests with the race detector", []string{"-race", "-p=3"}, func(pkg string) bool { return !s.isPlain(pkg) })
}

// plain runs those that mostly wait for other processes, more of them at once.
func (s *suite) plain(ctx context.Context) {
	s.tests(ctx, "tests without it", []string{"-p=2", "-parallel=6"}, s.isPlain)
}

// tests runs those of some packages that belong to this run.
func (s *suite) tests(ctx context.Context, name string, flags []string, which func(pkg string) bool) {
	found, err := find(".", "Test", "")
	if err != nil {
		s.fail("finding tests", err.Error())
		return
	}
	examples, err := find(".", "Example", "")
	if err != nil {
		s.fail("finding examples", err.Error())
		return
	}
	targets, err := find(".", "Fuzz", "")
	if err != nil {
		s.fail("finding fuzz targets", err.Error())
		return
	}
	chosen, choice := s.choose(found)
	if s.tier != tier.CI { // it leaves out no package
		for _, more := range []map[string][]string{found, examples, targets} {
			maps.Copy(chosen, more)
		}
	}
	var packages []string
	for dir := range chosen {
		if which(strings.TrimPrefix(dir, ".")) {
			packages = append(packages, dir)
		}
	}
	if len(packages) == 0 {
		return
	}
	slices.Sort(packages)
	s.goTest(ctx, name, slices.Concat(s.testFlags(), flags, choice), packages...)
}

// choose returns the tests that run now, by directory, and the flags of go test that choose them.
// What is left to later as a whole is counted.
func (s *suite) choose(found map[string][]string) (chosen map[string][]string, flags []string) {
	chosen = make(map[string][]string)
	names := make(map[string]bool)
	for dir, tests := range found {
		for _, test := range tests {
			row, listed := tier.Rows[test]
			if !listed {
				continue
			}
			later := s.tier == tier.Quick && row.Single() && row.Quick == 0
			sampled := s.tier == tier.CI && row.CI > 0 && (!row.Single() || row.Whole(s.sample))
			if row.Single() && (s.tier == tier.CI || later) && !s.counted[dir+test] {
				s.counted[dir+test] = true
				s.countTest(row.Cases, sampled)
			}
			if later {
				names[test] = true
			}
			if sampled {
				names[test] = true
				chosen[dir] = append(chosen[dir], test)
			}
		}
	}
	if s.tier == tier.All || len(names) == 0 {
		return chosen, nil
	}
	flag := "-skip="
	if s.tier == tier.CI {
		flag = "-run="
	}
	return chosen, []string{flag + runPattern(slices.Sorted(maps.Keys(names)))}
}

// allocations runs only the packages concerned, so that the others are not
// built a second time.
func (s *suite) allocations(ctx context.Context) {
	found, err := find(".", "Test", "Alloc")
	if err != nil {
		s.fail("finding tests of allocations", err.Error())
	}
	if len(found) > 0 {
		s.goTest(ctx, "allocations, without the race detector", append(s.testFlags(), "-run=Alloc"), directories(found)...)
	}
}

func (s *suite) benchmarks(ctx context.Context) {
	found, err := find(".", "Benchmark", "")
	if err != nil {
		s.fail("finding benchmarks", err.Error())
	}
	if len(found) > 0 {
		s.check(ctx, "benchmarks, once each", nil, "go", append([]string{"test", "-run=^$", "-bench=.", "-benchtime=1x"}, directories(found)...)...)
	}
}

// artifacts is where failing tests leave what they have to show.
const artifacts = "bin/artifacts"

// testFlags are those of every go test.
func (s *suite) testFlags() []string {
	flags := []string{"-timeout=" + s.pkg.String()}
	switch s.tier {
	case tier.Quick:
		return append(flags, "-short")
	case tier.CI:
		flags = append(flags, "-count=1")
	default:
		flags = append(flags, "-count=1", "-shuffle=on")
	}
	dir, err := filepath.Abs(artifacts)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		s.fail("making a directory for artifacts", err.Error())
	}
	return append(flags, "-artifacts", "-outputdir="+dir)
}
