// Suite runs everything that judges a change, and says how it went.
//
//	go run ./test/suite [-lint | -long]
//	go run ./test/suite -adverse CONDITION,... [PACKAGE...]
//
// It runs gofmt, go vet and staticcheck; then all tests with the race detector but
// those of models, which have one thread and take ten times as long with it; those
// of allocations (named ...Alloc...) once more without it, because it
// allocates; those of EXT-DS with many seeds and programs; then every fuzz target found
// in the tree, a few seconds each. With -lint it ends after the first three. With -long
// nothing is cached, tests run without -short and in random order and keep their
// artifacts in bin/artifacts, fuzzing takes minutes, and each benchmark runs once to see
// that it can.
//
// It is to take no more than a quarter of an hour, with -long three quarters: on a slow
// machine tests of many seeds and programs leave out the rest of them, and so do fuzz
// targets, which is listed. What still runs long after that is stopped, and fails.
// EXN_SUITE_END, as CI sets it, is the second since 1970 at which all must have ended. A
// test that cannot be short asks testing.Short.
//
// With -adverse (make test-adverse) only tests of packages in which threads or processes wait for each
// other are run, under conditions that a quick machine does not have: one-cpu, busy (two loops
// beside it), half-cpu (a cgroup's quota) and slow-wakes (wake-ups of ours take 0.4 ms and yields up
// to 2 ms, internal/late), or all of them. A test that fails under one counts on time, or has found
// what a slow machine would.
//
// At the end no file of the checkout may have changed and no process may be
// left. Then follow what was not run and why, what failed, and as the last line
//
//	N passed, N failed, N skipped
//
// Tests are counted by their innermost subtests. One that fails is run once more
// when nothing else runs, because a machine that others use too can stop a
// process for longer than any peer waits; what passes then counts, and is listed
// as unsteady. A few such ones are let pass in a run, no more. The exit code is 0 when
// nothing failed, 1 when something did, and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// schedule is when parts of a run end, counted from its beginning. Those that can be made
// shorter come after those that cannot, which so have the time they need, also on a fresh
// machine that has to build all first.
type schedule struct {
	seeds time.Duration // tests of many seeds and programs leave out the rest of them (test/ds.Hurry)
	fuzz  time.Duration // no fuzz target begins
	limit time.Duration // all is stopped
	pkg   time.Duration // a package is stopped, if it took so long itself: earlier, so that a test that hangs shows where
	most  time.Duration // the same for those of many seeds and programs, which use what time there is
	rest  time.Duration // what comes after seeds takes
}

var (
	short = schedule{seeds: 9 * time.Minute, fuzz: 13 * time.Minute, limit: 25 * time.Minute, pkg: 10 * time.Minute, most: 10 * time.Minute, rest: 5 * time.Minute}
	long  = schedule{seeds: 35 * time.Minute, fuzz: 42 * time.Minute, limit: 45 * time.Minute, pkg: 20 * time.Minute, most: 35 * time.Minute, rest: 10 * time.Minute}
)

// fuzzEnd is how long a target takes that began last.
const fuzzEnd = 2 * time.Minute

// within is a schedule that ends when so much time is left.
func (s schedule) within(left time.Duration) schedule {
	s.limit = min(s.limit, left)
	s.fuzz = min(s.fuzz, left-fuzzEnd)
	s.seeds = min(s.seeds, left-s.rest)
	return s
}

// The names of what is in the environment: the second, since 1970, at which whoever calls
// wants the end, and that from which on tests are to leave out the rest.
const (
	endVariable   = "EXN_SUITE_END"
	untilVariable = "EXN_TESTS_UNTIL"
)

var errTooLong = errors.New("the time is over; what takes long belongs behind testing.Short")

func main() {
	lintOnly := flag.Bool("lint", false, "only gofmt, go vet and staticcheck")
	isLong := flag.Bool("long", false, "long matrices, seeds, soaks and fuzzing")
	adverse := flag.String("adverse", "", "tests under `conditions` that a slow machine has, with commas between: one-cpu, busy, half-cpu, slow-wakes, all")
	flag.Parse()
	if flag.NArg() > 0 && *adverse == "" || flag.NFlag() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	if _, err := os.Stat("go.mod"); err != nil {
		fmt.Fprintln(os.Stderr, "suite: run it in the top directory of the checkout:", err)
		os.Exit(2)
	}

	times := short
	if *isLong {
		times = long
	}
	if end, err := strconv.ParseInt(os.Getenv(endVariable), 10, 64); err == nil {
		times = times.within(time.Until(time.Unix(end, 0)))
	}
	if *adverse != "" {
		times = schedule{limit: adverseLimit}
	}
	begun := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, times.limit, errTooLong)
	run := &suite{report: newReport(os.Stdout), long: *isLong, mark: newMark(), times: times, until: begun.Add(times.seeds), fuzzUntil: begun.Add(times.fuzz)}
	if *adverse != "" {
		under, err := chosenConditions(*adverse)
		if err != nil {
			fmt.Fprintln(os.Stderr, "suite:", err)
			os.Exit(2)
		}
		run.until = time.Time{}
		run.watched(ctx, run.adverse(under, flag.Args()))
	} else {
		run.all(ctx, *lintOnly)
	}
	cancel()
	stop()
	if run.summarize() > 0 {
		os.Exit(1)
	}
}

// suite is one run.
type suite struct {
	*report
	long  bool
	mark  string // NAME=VALUE in the environment of its processes
	again int    // how many tests were run a second time
	times schedule

	until     time.Time // when tests are to leave out the rest; zero: never
	fuzzUntil time.Time // when no fuzz target begins any more
}

func (s *suite) all(ctx context.Context, lintOnly bool) {
	steps := []func(context.Context){s.lint}
	if !lintOnly {
		steps = append(steps, s.tests, s.models, s.allocations)
		if s.long {
			steps = append(steps, s.benchmarks)
		}
		steps = append(steps, s.elastic, s.fuzz)
	}
	s.watched(ctx, steps...)
}

// watched runs them, and looks what they leave behind.
func (s *suite) watched(ctx context.Context, steps ...func(context.Context)) {
	before, statusErr := checkoutState(ctx)
	for _, step := range steps {
		step(ctx)
		if ctx.Err() != nil {
			s.fail("the run as a whole", context.Cause(ctx).Error())
			break
		}
	}
	s.heading("what is left behind")
	s.checkUnchanged(before, statusErr)
	s.checkProcesses()
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

// tests runs all that other steps do not.
func (s *suite) tests(ctx context.Context) {
	s.race(ctx, "tests with the race detector", s.times.pkg, func(p string) bool {
		return !strings.Contains(p, elasticPackages) && !strings.Contains(p, modelPackages)
	})
}

// elasticPackages is in the paths of those that leave out seeds and programs when there
// is little time.
const elasticPackages = "/test/ds"

func (s *suite) elastic(ctx context.Context) {
	s.race(ctx, "seeds and programs, with the race detector", s.times.most, func(p string) bool { return strings.Contains(p, elasticPackages) })
}

func (s *suite) race(ctx context.Context, name string, pkg time.Duration, which func(pkg string) bool) {
	list := s.command(ctx, "go", "list", "-e", "./...")
	list.Stderr = os.Stderr
	packages, err := list.Output()
	if err != nil {
		s.fail("listing packages", err.Error())
		return
	}
	raced := slices.DeleteFunc(strings.Fields(string(packages)), func(p string) bool { return !which(p) })
	s.goTest(ctx, name, append(s.testFlags(pkg), "-race"), raced...)
}

// modelPackages is in the paths of those that explore models.
const modelPackages = "/test/memmodel"

func (s *suite) models(ctx context.Context) {
	s.goTest(ctx, "models, without the race detector", s.testFlags(s.times.pkg), "."+modelPackages+"/...")
}

// allocations runs only the packages concerned, so that the others are not
// built a second time.
func (s *suite) allocations(ctx context.Context) {
	found, err := find(".", "Test", "Alloc")
	if err != nil {
		s.fail("finding tests of allocations", err.Error())
	}
	if len(found) > 0 {
		s.goTest(ctx, "allocations, without the race detector", append(s.testFlags(s.times.pkg), "-run=Alloc"), directories(found)...)
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

// testFlags are those of every go test, the packages of which are stopped after so long.
func (s *suite) testFlags(pkg time.Duration) []string {
	if !s.long {
		return []string{"-short", "-timeout=" + pkg.String()}
	}
	artifacts, err := filepath.Abs("bin/artifacts")
	if err == nil {
		err = os.MkdirAll(artifacts, 0o755)
	}
	if err != nil {
		s.fail("making a directory for artifacts", err.Error())
	}
	return []string{"-count=1", "-shuffle=on", "-timeout=" + pkg.String(), "-artifacts", "-outputdir=" + artifacts}
}
