package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/test/tier"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// mostAgain is how many tests a run plays a second time. Each more is no accident.
const mostAgain = 1

// goTest runs go test and reports its tests one by one. A test that fails is
// run again when nothing else is: what passes then is called unsteady, and named
// in the summary.
func (s *suite) goTest(ctx context.Context, name string, flags []string, packages ...string) {
	s.heading(fmt.Sprintf("%s: %d packages", name, len(packages)))
	s.progress.begin(len(packages))
	first, err := s.play(ctx, append(slices.Clone(flags), packages...))
	s.progress.end()
	if err != nil && len(first.suspects) == 0 {
		s.fail(name, err.Error())
	}
	for _, x := range first.suspects {
		n := max(1, len(x.tests))
		if x.broken || ctx.Err() != nil || s.again+n > mostAgain {
			s.add(x.results)
			continue
		}
		s.again += n
		s.playAgain(ctx, flags, x)
	}
}

func (s *suite) playAgain(ctx context.Context, flags []string, x suspect) {
	second, err := s.playOnly(ctx, flags, x.pkg, x.tests)
	if err != nil && slices.ContainsFunc(x.tests, isSubtest) && !slices.ContainsFunc(x.tests, second.failed) {
		// They passed; a test they are part of may say that it saw too little. What else of it
		// passed before counts twice then.
		whole := slices.Clone(x.tests)
		for i, name := range whole {
			whole[i], _, _ = strings.Cut(name, "/")
		}
		second, err = s.playOnly(ctx, flags, x.pkg, whole)
	}
	for _, y := range second.suspects {
		s.add(y.results)
	}
	switch {
	case err == nil && !slices.ContainsFunc(x.tests, second.failed):
		for _, v := range x.failed {
			s.unsteady = append(s.unsteady, v.name)
			if err := keepLog(v); err != nil {
				s.printf("the log of %s is lost: %v\n", v.name, err)
			}
		}
	case len(second.suspects) == 0:
		s.add(x.results)
	}
}

// playOnly plays some tests of a package, or all.
func (s *suite) playOnly(ctx context.Context, flags []string, pkg string, tests []string) (*tally, error) {
	s.heading("again, alone: " + pkg + " " + strings.Join(tests, " "))
	args := append(slices.Clone(flags), "-count=1")
	if len(tests) > 0 {
		args = append(args, "-run="+runPattern(tests))
	}
	return s.play(ctx, append(args, pkg))
}

// keepLog keeps what a test printed that failed and then passed.
func keepLog(v verdict) error {
	if err := os.MkdirAll(artifacts, 0o755); err != nil {
		return err
	}
	name := "unsteady-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(v.name, "-") + ".log"
	return os.WriteFile(filepath.Join(artifacts, name), []byte(v.text), 0o644)
}

func isSubtest(name string) bool { return strings.Contains(name, "/") }

// runPattern returns what -run takes for exactly these tests and subtests.
func runPattern(tests []string) string {
	var patterns []string
	for _, name := range tests {
		levels := strings.Split(name, "/")
		for i, level := range levels {
			levels[i] = "^" + regexp.QuoteMeta(level) + "$"
		}
		patterns = append(patterns, strings.Join(levels, "/"))
	}
	return strings.Join(patterns, "|")
}

// play runs go test once. Results of what failed are left to the caller.
func (s *suite) play(ctx context.Context, args []string) (*tally, error) {
	t := newTally(s.report)
	cmd := s.command(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return t, err
	}
	readErr := t.read(stdout)
	if err = cmd.Wait(); err == nil {
		err = readErr
	}
	return t, err
}

// tally turns the events of one go test into results.
type tally struct {
	*report
	packages map[string]*packageRun
	ended    map[string]string // how, by the names of tests, of any package
	suspects []suspect
}

// suspect is what failed in a package, with the results of all that is to be run
// again if that is.
type suspect struct {
	pkg    string
	tests  []string // the tests, as again names them; none if it is the package as a whole
	broken bool     // it was not built
	results
}

// packageRun is what is known of a package whose tests run.
type packageRun struct {
	output strings.Builder // what belongs to no test
	tests  map[string]*testRun
}

type testRun struct {
	output strings.Builder
	action string // pass, fail or skip; none while it runs
}

func (t *testRun) failed() bool { return t.action != "pass" && t.action != "skip" }

func newTally(r *report) *tally {
	return &tally{report: r, packages: make(map[string]*packageRun), ended: make(map[string]string)}
}

// read handles events until there are no more. What is no event is printed.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				t.handle(e)
			} else {
				t.printf("%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) handle(e event) {
	if e.Action == "build-output" {
		t.printf("%s", e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := t.packages[e.Package]
	if p == nil {
		p = &packageRun{tests: make(map[string]*testRun)}
		t.packages[e.Package] = p
	}
	if e.Test == "" {
		switch e.Action {
		case "start":
			t.progress.starts(e.Package)
		case "output":
			p.output.WriteString(e.Output)
		case "pass", "fail", "skip":
			t.progress.ends(e.Package)
			t.finish(p, e)
			delete(t.packages, e.Package)
		}
		return
	}
	test := p.tests[e.Test]
	if test == nil {
		test = new(testRun)
		p.tests[e.Test] = test
	}
	switch e.Action {
	case "output":
		test.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		test.action, t.ended[e.Test] = e.Action, e.Action
	}
}

// sampled matches the line by which a test says how many of its cases it played.
var sampled = regexp.MustCompile(`(?m): ` + tier.Said + `(\w+) (\d+) of (\d+)$`)

func (t *tally) countCases(output string) {
	for _, m := range sampled.FindAllStringSubmatch(output, -1) {
		kept, _ := strconv.Atoi(m[2]) // digits
		all, _ := strconv.Atoi(m[3])
		t.count(m[1], kept, all)
	}
}

// failed says whether a test was not run to a good end, with its subtests. One whose name
// is another each time was not run. Of a subtest named a/b go test knows no a.
func (t *tally) failed(name string) bool {
	ran := false
	for test, how := range t.ended {
		if within(test, name) {
			if how == "fail" {
				return true
			}
			ran = true
		}
	}
	return !ran
}

// finish reports a package whose last event is e.
func (t *tally) finish(p *packageRun, e event) {
	var good results
	bad := suspect{pkg: e.Package, broken: e.FailedBuild != ""}
	whole := false // no test can be run again without all others
	innermost := p.innermost()
	bad.tests = p.again(innermost)
	for _, test := range p.tests {
		t.countCases(test.output.String())
	}
	for _, name := range innermost {
		test, full := p.tests[name], e.Package+" "+name
		into := &good
		if slices.ContainsFunc(bad.tests, func(again string) bool { return within(name, again) }) {
			into = &bad.results
		}
		switch test.action {
		case "pass":
			into.passed++
		case "skip":
			into.skipped = append(into.skipped, verdict{full, skipReason(test.output.String())})
		case "fail":
			into.failed = append(into.failed, verdict{full, p.story(name)})
		default:
			into.failed = append(into.failed, verdict{full + " (did not end)", p.story(name)})
			t.ended[name] = "fail"
			whole = true
		}
	}
	switch output := p.output.String(); {
	case e.Action != "fail":
		t.printf("%s%s", t.progress.place(), resultLine(output))
	case len(bad.failed) > 0:
		t.printf("%s", output)
		whole = whole || !strings.Contains(output, "\nFAIL\n") && !strings.HasPrefix(output, "FAIL\n") // it crashed
	case bad.broken:
		bad.failed = append(bad.failed, verdict{e.Package + " (does not build)", output})
	default:
		bad.failed = append(bad.failed, verdict{e.Package, output})
		whole = true
	}
	t.took(e.Package, time.Duration(e.Elapsed*float64(time.Second)))
	if len(bad.failed) == 0 {
		t.add(good)
		return
	}
	for _, v := range bad.failed {
		t.printf("FAILED: %s\n%s", v.name, indent(v.text))
	}
	if whole {
		bad.tests = nil
		bad.join(good)
	} else {
		t.add(good)
	}
	t.suspects = append(t.suspects, bad)
}

// again returns what to run again so that the innermost tests that failed run: of a
// test the subtest in which all of them are, with its own subtests, or all of it.
func (p *packageRun) again(innermost []string) []string {
	units := make(map[string]string) // by test
	for _, name := range innermost {
		if !p.tests[name].failed() {
			continue
		}
		levels := strings.SplitN(name, "/", 3)
		test, unit := levels[0], strings.Join(levels[:min(2, len(levels))], "/")
		if other, found := units[test]; found && other != unit {
			unit = test
		}
		units[test] = unit
	}
	return slices.Sorted(maps.Values(units))
}

// within says whether a test is another or a subtest of it.
func within(name, other string) bool { return strings.HasPrefix(name+"/", other+"/") }

// innermost returns the tests that have no subtests, and those that failed
// though none of their subtests did, in order of name.
func (p *packageRun) innermost() []string {
	hasSubtest, hasFailedSubtest := make(map[string]bool), make(map[string]bool)
	for name, test := range p.tests {
		for parent := range parents(name) {
			hasSubtest[parent] = true
			hasFailedSubtest[parent] = hasFailedSubtest[parent] || test.failed()
		}
	}
	var names []string
	for name, test := range p.tests {
		if !hasSubtest[name] || test.failed() && !hasFailedSubtest[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// parents yields the tests that a subtest is part of, outermost first.
func parents(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, c := range name {
			if c == '/' && !yield(name[:i]) {
				return
			}
		}
	}
}

// story returns what a test and those it is part of have printed.
func (p *packageRun) story(name string) string {
	var all strings.Builder
	for parent := range parents(name) {
		if test := p.tests[parent]; test != nil {
			all.WriteString(told(test.output.String()))
		}
	}
	all.WriteString(told(p.tests[name].output.String()))
	return all.String()
}

// reported matches the lines by which a test reports its progress.
var reported = regexp.MustCompile(`(?m)^\s*(=== |--- ).*\n`)

func told(output string) string { return reported.ReplaceAllString(output, "") }

// logLine matches a line of testing.T.Log or Skip, which name their place.
var logLine = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// skipReason returns what a test said last before it was skipped.
func skipReason(output string) string {
	if all := logLine.FindAllStringSubmatch(output, -1); all != nil {
		return all[len(all)-1][1]
	}
	return "skipped without a reason"
}

// resultLine returns the line by which go test ends a package: the last one
// made of columns.
func resultLine(output string) (result string) {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "\t") {
			result = line
		}
	}
	return result
}
