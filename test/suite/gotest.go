package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
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

// goTest runs go test and reports its tests one by one.
func (s *suite) goTest(ctx context.Context, name string, args ...string) {
	s.heading(name)
	failures := len(s.failed)
	cmd := s.command(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		readErr := newTally(s.report).read(stdout)
		if err = cmd.Wait(); err == nil {
			err = readErr
		}
	}
	if err != nil && len(s.failed) == failures {
		s.fail(name, err.Error())
	}
}

// tally turns the events of one go test into results.
type tally struct {
	*report
	packages map[string]*packageRun
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
	return &tally{report: r, packages: make(map[string]*packageRun)}
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
		case "output":
			p.output.WriteString(e.Output)
		case "pass", "fail", "skip":
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
		test.action = e.Action
	}
}

// finish reports a package whose last event is e.
func (t *tally) finish(p *packageRun, e event) {
	failures := len(t.failed)
	for _, name := range p.innermost() {
		test, full := p.tests[name], e.Package+" "+name
		switch test.action {
		case "pass":
			t.pass()
		case "skip":
			t.skip(full, skipReason(test.output.String()))
		case "fail":
			t.fail(full, p.story(name))
		default:
			t.fail(full+" (did not end)", p.story(name))
		}
	}
	switch output := p.output.String(); {
	case e.Action != "fail":
		t.printf("%s", resultLine(output))
	case len(t.failed) > failures:
		t.printf("%s", output)
	case e.FailedBuild != "":
		t.fail(e.Package+" (does not build)", output)
	default:
		t.fail(e.Package, output)
	}
	t.took(e.Package, time.Duration(e.Elapsed*float64(time.Second)))
}

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

// progress matches the lines by which a test reports its progress.
var progress = regexp.MustCompile(`(?m)^\s*(=== |--- ).*\n`)

func told(output string) string { return progress.ReplaceAllString(output, "") }

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
