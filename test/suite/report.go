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
	progress *progress
	start    time.Time
	passed   int
	failed   []string
	unsteady []string            // failed, and passed when run again
	skipped  map[string][]string // names by reason
	elapsed  map[string]time.Duration
	counted  map[string]bool   // which tests as a whole are among the cases
	cases    map[string][2]int // how many cases of a kind were played, and of how many
}

func newReport(out io.Writer) *report {
	r := &report{out: out, start: time.Now(), skipped: make(map[string][]string), elapsed: make(map[string]time.Duration),
		counted: make(map[string]bool), cases: make(map[string][2]int)}
	r.progress = newProgress(out, r.start)
	return r
}

func (r *report) printf(format string, args ...any) {
	r.progress.print(fmt.Sprintf(format, args...))
}

// count adds cases of a kind.
func (r *report) count(kind string, kept, all int) {
	c := r.cases[kind]
	r.cases[kind] = [2]int{c[0] + kept, c[1] + all}
}

// countTest adds a test that is a case as a whole.
func (r *report) countTest(kind string, kept bool) {
	if kept {
		r.count(kind, 1, 1)
	} else {
		r.count(kind, 0, 1)
	}
}

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
	if len(r.cases) > 0 {
		r.heading("sampled")
		for _, kind := range slices.Sorted(maps.Keys(r.cases)) {
			r.printf("%-10s %d of %d\n", kind, r.cases[kind][0], r.cases[kind][1])
		}
	}
	skips := 0
	if len(r.skipped) > 0 {
		r.heading("not possible on this machine")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		names := r.skipped[reason]
		skips += len(names)
		const shown = 4
		list := strings.Join(names[:min(shown, len(names))], "\n")
		if more := len(names) - shown; more > 0 {
			list += fmt.Sprintf("\nand %d more", more)
		}
		r.printf("%s (%d)\n%s", reason, len(names), indent(list))
	}
	if len(r.unsteady) > 0 {
		r.heading("unsteady: it failed, and passed when it was run again alone (logs: " + artifacts + "/unsteady-*)")
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
