package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report collects results. It prints as things happen, and sums up at the end.
type report struct {
	out      io.Writer
	start    time.Time
	passed   int
	failed   []string
	unsteady []string            // failed, and passed when run again
	skipped  map[string][]string // names by reason
	elapsed  map[string]time.Duration
}

func newReport(out io.Writer) *report {
	return &report{out: out, start: time.Now(), skipped: make(map[string][]string), elapsed: make(map[string]time.Duration)}
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

func (r *report) heading(name string) { r.printf("\n== %s\n", name) }

func (r *report) pass() { r.passed++ }

// fail notes a failure and prints what there is to say about it.
func (r *report) fail(name, why string) {
	r.failed = append(r.failed, name)
	r.printf("FAILED: %s\n%s", name, indent(why))
}

func (r *report) skip(name, reason string) {
	r.skipped[reason] = append(r.skipped[reason], name)
}

// results are those of some tests; what failed was printed already.
type results struct {
	passed          int
	skipped, failed []verdict
}

// verdict is a test's name, and why it was not run or failed.
type verdict struct{ name, text string }

func (r *results) join(other results) {
	r.passed += other.passed
	r.skipped = append(r.skipped, other.skipped...)
	r.failed = append(r.failed, other.failed...)
}

func (r *report) add(all results) {
	r.passed += all.passed
	for _, v := range all.skipped {
		r.skip(v.name, v.text)
	}
	for _, v := range all.failed {
		r.failed = append(r.failed, v.name)
	}
}

// took notes how long something took.
func (r *report) took(name string, d time.Duration) { r.elapsed[name] += d }

// summarize prints the end of the report and returns the number of failures.
func (r *report) summarize() int {
	skips := 0
	if len(r.skipped) > 0 {
		r.heading("not run")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		names := r.skipped[reason]
		skips += len(names)
		r.printf("%s (%d)\n%s", reason, len(names), indent(strings.Join(names, "\n")))
	}
	if len(r.unsteady) > 0 {
		r.heading("unsteady: failed, and passed when run again alone")
		r.printf("%s\n", strings.Join(r.unsteady, "\n"))
	}
	if len(r.failed) > 0 {
		r.heading("failed")
		r.printf("%s\n", strings.Join(r.failed, "\n"))
	}
	r.heading(fmt.Sprintf("%v in all; the longest", time.Since(r.start).Round(time.Second)))
	const shown = 5
	names := slices.SortedFunc(maps.Keys(r.elapsed), func(a, b string) int { return cmp.Compare(r.elapsed[b], r.elapsed[a]) })
	for _, name := range names[:min(shown, len(names))] {
		r.printf("%6.1f s  %s\n", r.elapsed[name].Seconds(), name)
	}
	r.printf("\n%d passed, %d failed, %d skipped\n", r.passed, len(r.failed), skips)
	return len(r.failed)
}

// indent moves a text to the right and ends it with a newline.
func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
