package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"exnet/cmd/dsbench/measure"
)

// A Comparison is what changed from one report to another, row by row.
//
// What is compared of a row is the ratio to its reference, if both have one: that was
// measured beside it, and what slows the machine down slows both. Else it is the value.
// A row has changed if chance explains that in less than one case of a hundred
// ([measure.Shift]); no percentage is fixed. So of a hundred rows between which there is no
// difference one is said to have changed, and the table says how many that makes.
//
// Rows with disturbed runs are shown with their verdict, and mostly are no proof: what disturbed
// them may have been there in one report only. See [Change.Proven].
type Comparison struct {
	Changes []Change `json:"changes"`
	Gone    []string `json:"gone,omitempty"` // rows that the second report lacks
	New     []string `json:"new,omitempty"`  // that the first lacks

	// Elsewhere says in what the machines differ: then values tell of those.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

// A Change is how one row differs.
type Change struct {
	Test    string    `json:"test"`
	Path    string    `json:"path"`
	Size    int       `json:"size"`
	Setting *Setting  `json:"setting,omitempty"`
	Unit    Unit      `json:"unit"`
	Of      Quantity  `json:"of"` // what was compared: value or ratio
	Before  float64   `json:"before"`
	After   float64   `json:"after"`
	Factor  float64   `json:"factor,omitempty"`  // after to before
	Between []float64 `json:"between,omitempty"` // where the factor lies in 99 of 100 cases
	Verdict Verdict   `json:"verdict"`
	Noisy   bool      `json:"noisy,omitempty"` // runs of either were disturbed
}

// A Verdict is what a Change comes to.
type Verdict string

// The verdicts.
const (
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Same    Verdict = "same"    // no more than noise
	Unknown Verdict = "unknown" // too few runs to tell: 5 and 5 are needed
)

// Compare compares two reports.
func Compare(before, after *Report) *Comparison {
	c := &Comparison{Changes: []Change{}, Elsewhere: elsewhere(before.Machine, after.Machine)}
	for _, a := range before.Rows {
		i := slices.IndexFunc(after.Rows, a.samePoint)
		if i < 0 {
			c.Gone = append(c.Gone, a.point())
			continue
		}
		c.Changes = append(c.Changes, change(a, after.Rows[i]))
	}
	for _, b := range after.Rows {
		if !slices.ContainsFunc(before.Rows, b.samePoint) {
			c.New = append(c.New, b.point())
		}
	}
	return c
}

func (r Row) samePoint(o Row) bool {
	return r.Test == o.Test && r.Path == o.Path && r.Size == o.Size && r.At() == o.At() && r.Unit == o.Unit && r.Against == o.Against
}

func (r Row) point() string { return strings.TrimSpace(r.name() + " " + r.Path) }

func change(before, after Row) Change {
	c := Change{Test: after.Test, Path: after.Path, Size: after.Size, Setting: after.Setting, Unit: after.Unit, Of: Value,
		Before: before.Value, After: after.Value, Verdict: Unknown, Noisy: before.Disturbed+after.Disturbed > 0 || before.NoResult+before.NoRatio+after.NoResult+after.NoRatio != ""}
	was, is := before.Runs, after.Runs
	if before.Ratio != nil && after.Ratio != nil {
		c.Of, c.Before, c.After = Ratio, *before.Ratio, *after.Ratio
		was, is = measure.Ratios(before.ReferenceRuns, before.Runs), measure.Ratios(after.ReferenceRuns, after.Runs)
	}
	factor, low, high, ok := measure.Shift(was, is)
	c.Factor = factor
	if !ok {
		return c
	}
	c.Between = []float64{low, high}
	switch {
	case low <= 1 && high >= 1:
		c.Verdict = Same
	case (low > 1) == after.Unit.LowerIsBetter():
		c.Verdict = Worse
	default:
		c.Verdict = Better
	}
	return c
}

// LowerIsBetter says that the unit is of what costs; others are of what is gained.
func (u Unit) LowerIsBetter() bool {
	switch u {
	case Nanoseconds, PercentOfCPU, Bytes, ObjectsPerOp, CallsPerOp:
		return true
	}
	return false
}

func elsewhere(a, b Machine) (differences []string) {
	for _, d := range []struct{ what, before, after string }{
		{"CPU", a.CPU, b.CPU}, {"number of CPUs", fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs)},
		{"kernel", a.Kernel, b.Kernel}, {"architecture", a.Arch, b.Arch},
	} {
		if d.before != d.after {
			differences = append(differences, fmt.Sprintf("%s: %s, then %s", d.what, d.before, d.after))
		}
	}
	return differences
}

// Count is how many rows came to a verdict.
func (c *Comparison) Count(v Verdict) (n int) {
	for _, ch := range c.Changes {
		if ch.Verdict == v {
			n++
		}
	}
	return n
}

// byOthers is the factor that other programs explain: one that wants a CPU, too, gets half.
const byOthers = 2

// Proven says that nothing else explains the verdict: no run was disturbed, or it is by more
// than what disturbs.
func (ch Change) Proven() bool {
	return !ch.Noisy || len(ch.Between) == 2 && (ch.Between[0] > byOthers || ch.Between[1] < 1.0/byOthers)
}

// Surely is how many rows came to a verdict that is proven.
func (c *Comparison) Surely(v Verdict) (n int) {
	for _, ch := range c.Changes {
		if ch.Verdict == v && ch.Proven() {
			n++
		}
	}
	return n
}

// WriteJSON writes the comparison for programs.
func (c *Comparison) WriteJSON(w io.Writer) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// WriteTable writes the comparison for people: the rows that changed, or all of them.
func (c *Comparison) WriteTable(w io.Writer, all bool) error {
	var b strings.Builder
	lines := [][]string{{"TEST", "PATH", "AT", "BEFORE", "", "AFTER", "FACTOR", "", "IN 99 OF 100", ""}}
	for _, ch := range c.Changes {
		if all || ch.Verdict == Better || ch.Verdict == Worse {
			lines = append(lines, ch.cells())
		}
	}
	if len(lines) > 1 {
		writeAligned(&b, lines)
		fmt.Fprintf(&b, "\n× is a ratio to the reference that was measured beside it.\n")
	}
	fmt.Fprintf(&b, "%d better, %d worse, %d the same within their noise", c.Count(Better), c.Count(Worse), c.Count(Same))
	if n := c.Count(Unknown); n > 0 {
		fmt.Fprintf(&b, ", %d with too few runs to tell (5 are needed in either report)", n)
	}
	fmt.Fprintln(&b, ".")
	told := c.Count(Better) + c.Count(Worse)
	if noisy := told - c.Surely(Better) - c.Surely(Worse); noisy > 0 {
		fmt.Fprintf(&b, "%d of those that changed are noisy, and by less than %d times surely, which proves nothing: measure them again when the machine is quiet.\n", noisy, byOthers)
	}
	if told > 0 {
		fmt.Fprintf(&b, "Of %d rows without a difference chance alone makes about %.1f seem better or worse.\n", told+c.Count(Same), measure.ByChance*float64(told+c.Count(Same)))
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"only in the first report", c.Gone}, {"only in the second report", c.New}, {"measured elsewhere, where values differ anyhow", c.Elsewhere}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", list.what, strings.Join(list.names, "; "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (ch Change) cells() []string {
	number := ch.Unit.Format
	if ch.Of == Ratio {
		number = FormatRatio
	}
	line := []string{ch.Test, ch.Path, Row{Size: ch.Size, Setting: ch.Setting}.At(), number(ch.Before), "", number(ch.After), "", "", "", string(ch.Verdict)}
	if ch.Factor > 0 {
		line[6] = fmt.Sprintf("%.3f", ch.Factor)
	}
	if len(ch.Between) == 2 {
		line[8] = fmt.Sprintf("%.3f … %.3f", ch.Between[0], ch.Between[1])
	}
	if ch.Noisy {
		line[9] += " (noisy)"
	}
	return line
}
