package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"exnet/cmd/dsbench/measure"
)

// The columns of the table; those in right are numbers.
var (
	columns = []string{"TEST", "PATH", "AT", "VALUE", "±", "REFERENCE", "RATIO", "±", "TARGET", ""}
	right   = []bool{false, false, true, true, true, true, true, true, false, false}
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	if len(r.Rows) > 0 {
		r.rows(&b)
		r.legend(&b)
	}
	r.verdict(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) rows(b *strings.Builder) {
	lines := [][]string{columns}
	for i, row := range r.Rows {
		line := row.cells()
		if i > 0 && row.Test == r.Rows[i-1].Test {
			line[0] = "" // one name for a block of sizes
		}
		lines = append(lines, line)
	}
	fmt.Fprintln(b)
	writeAligned(b, lines)
}

// compared says whether there are ratios to be explained.
func (r *Report) compared() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Ratio != nil })
}

func (r Row) cells() []string {
	c := []string{r.Test, r.Path, r.At(), r.FormatValue(), r.FormatSpread(), "", "", "", "", ""}
	if r.Reference != nil {
		c[5] = r.Unit.Format(*r.Reference)
	}
	if ratio, ok := r.Gain(); ok {
		c[6], c[7] = times(ratio), percent(measure.Ratios(r.ReferenceRuns, r.Runs))
	}
	if r.Target != nil {
		c[8] = r.Target.format(r.Unit)
	}
	if r.Met != nil && *r.Met {
		c[9] = "pass"
	} else if r.Met != nil {
		c[9] = "MISS"
	}
	if r.Disturbed > 0 {
		c[9] = strings.TrimSpace(c[9] + " (disturbed)")
	}
	return c
}

func (t *Target) format(u Unit) string {
	number := u.Format
	switch t.Of {
	case Ratio:
		number = times
	case RatioSurely:
		number = func(v float64) string { return times(v) + " (95 %)" }
	}
	if t.AtLeast != nil {
		return "≥ " + number(*t.AtLeast)
	}
	return "≤ " + number(*t.AtMost)
}

func times(v float64) string { return fmt.Sprintf("%.2f×", v) }

// percent prints the spread of several runs.
func percent(runs []float64) string {
	if len(runs) < 2 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*measure.Spread(runs))
}

// FormatSpread prints the interquartile range as a share of the median, "" of one run or where
// there is no result.
func (r Row) FormatSpread() string {
	if r.NoResult != "" {
		return ""
	}
	return percent(r.Runs)
}

// writeAligned writes lines of cells in columns, without trailing blanks and without
// columns that have only a head.
func writeAligned(b *strings.Builder, lines [][]string) {
	width, used := make([]int, len(columns)), make([]bool, len(columns))
	for n, line := range lines {
		for i, cell := range line {
			if cell == "" {
				continue
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
			used[i] = used[i] || n > 0
		}
	}
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			if !used[i] {
				continue
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			out.WriteString(cell + "  ")
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
}

// legend says once per test what its numbers are.
func (r *Report) legend(b *strings.Builder) {
	if r.compared() {
		fmt.Fprintf(b, "\n± is the interquartile range as a share of the median. A value is the median of its runs; a ratio is\n"+
			"value to reference, the median over the pairs of runs that were made one after the other.\n")
	} else {
		fmt.Fprintf(b, "\nA value is the median of its runs; ± is their interquartile range as a share of it.\n")
	}
	against := map[string]string{} // of rows of the same text; that of the reference itself has none
	for _, row := range r.Rows {
		if row.Against != "" {
			against[row.Test+row.What] = "; reference: " + row.Against
		}
	}
	var texts []string
	tests := map[string][]string{} // by text
	for _, row := range r.Rows {
		text := row.What + against[row.Test+row.What]
		if tests[text] == nil {
			texts = append(texts, text)
		}
		if !slices.Contains(tests[text], row.Test) {
			tests[text] = append(tests[text], row.Test)
		}
	}
	for _, text := range texts {
		if text != "" {
			fmt.Fprintf(b, "  %s: %s\n", strings.Join(tests[text], ", "), text)
		}
	}
	var apart, disturbed []string
	farthest := 0.0
	for _, row := range r.Rows {
		if row.Disturbed > 0 {
			disturbed = append(disturbed, fmt.Sprintf("%s (%d of %d)", row.name(), row.Disturbed, len(row.Runs)))
		}
		if far, most := row.far(); far != "" {
			apart, farthest = append(apart, far), max(farthest, most)
		}
		if row.Target != nil && row.Target.Of == RatioSurely && len(row.Interval) == 2 {
			fmt.Fprintf(b, "  %s: the ratio lies between %.3f and %.3f in 95 of 100 cases (%d pairs)\n", row.name(), row.Interval[0], row.Interval[1], len(row.Runs))
		}
		if row.Note != "" {
			fmt.Fprintf(b, "  %s: %s\n", row.name(), row.Note)
		}
	}
	for _, line := range r.busy() {
		fmt.Fprintf(b, "  %s\n", line)
	}
	if len(disturbed) > 0 {
		fmt.Fprintf(b, "  other programs took CPU time in some of the pairs of %s; measure again on a quiet machine\n",
			strings.Join(slices.Compact(disturbed), ", "))
	}
	if len(apart) > 0 {
		fmt.Fprintf(b, "  the two CPUs are on different dies, up to %s apart, where everything is slower: %s\n",
			Nanoseconds.Format(farthest), strings.Join(apart, ", "))
	}
}

// farCores is the time in ns above which two cores do not share a die, nor a
// last-level cache: neighbours are 40 to 70 apart, others 150 and more.
const farCores = 110

// far is the name of a row whose CPUs were far apart, with how often if that was not always, and
// how far; "": they were not.
func (r Row) far() (name string, most float64) {
	of := r.CoresToCores
	if len(of) == 0 {
		of = []float64{r.CoreToCore}
	}
	times := 0
	for _, ns := range of {
		if most = max(most, ns); ns > farCores {
			times++
		}
	}
	switch times {
	case 0:
		return "", most
	case len(of):
		return r.name(), most
	}
	return fmt.Sprintf("%s (%d of %d)", r.name(), times, len(of)), most
}

// verdict sums up the targets and what went wrong.
func (r *Report) verdict(b *strings.Builder) {
	targets := 0
	for _, row := range r.Rows {
		if row.Met != nil {
			targets++
		}
	}
	if missed := r.Missed(); targets > 0 {
		fmt.Fprintf(b, "\n%d of %d targets met.", targets-len(missed), targets)
		for i, row := range missed {
			fmt.Fprintf(b, "%s %s", map[bool]string{true: " Missed:", false: ","}[i == 0], row.name())
		}
		fmt.Fprintln(b)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(b, "\nnot measured: %s: %s\n", s.What, s.Why)
	}
	for _, f := range r.Failures {
		fmt.Fprintf(b, "\nFAILED %s: %s\n", f.Test, f.Error)
	}
	if r.Partial {
		fmt.Fprintln(b, "\nThis report is PARTIAL: rows are missing.")
	}
}

// name names a row in a sentence.
func (r Row) name() string { return strings.TrimSpace(r.Test + " " + r.At()) }
