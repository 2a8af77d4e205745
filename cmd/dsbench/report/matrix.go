package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Matrix is a report whose every test was made at one size, over several paths.
type Matrix struct {
	Tests []Row    // the first row of each test, for its name, size and unit
	Paths []string // in the order they were measured
	Cells [][]*Row // by path and test; nil: not measured
}

// Matrix arranges the rows so. ok is false where that is not possible, or of no use.
func (r *Report) Matrix() (m Matrix, ok bool) {
	for _, row := range r.Rows {
		i := slices.IndexFunc(m.Tests, func(t Row) bool { return t.Test == row.Test })
		if i >= 0 && m.Tests[i].At() != row.At() {
			return Matrix{}, false
		}
		if i < 0 {
			m.Tests = append(m.Tests, row)
		}
		if !slices.Contains(m.Paths, row.Path) {
			m.Paths = append(m.Paths, row.Path)
		}
	}
	m.Cells = make([][]*Row, len(m.Paths))
	for i, path := range m.Paths {
		m.Cells[i] = make([]*Row, len(m.Tests))
		for j, t := range m.Tests {
			if k := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Path == path && row.Test == t.Test }); k >= 0 {
				m.Cells[i][j] = &r.Rows[k]
			}
		}
	}
	return m, len(m.Paths) > 2
}

// WriteMatrix writes the report for people as paths by tests where it can, else as
// WriteTable does.
func (r *Report) WriteMatrix(w io.Writer) error {
	m, ok := r.Matrix()
	if !ok {
		return r.WriteTable(w)
	}
	head := []string{"PATH"}
	for _, t := range m.Tests {
		head = append(head, t.name())
	}
	lines := [][]string{head}
	for i, path := range m.Paths {
		line := []string{path}
		for _, row := range m.Cells[i] {
			line = append(line, row.cell())
		}
		lines = append(lines, line)
	}
	if len(head) > len(lines)+1 { // many tests: downwards
		lines = transposed(lines)
		lines[0][0] = "TEST"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Machine)
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			width := 0
			for _, l := range lines { // as wide as the widest of its column
				width = max(width, utf8.RuneCountInString(l[i]))
			}
			out.WriteString(cell + strings.Repeat(" ", width-utf8.RuneCountInString(cell)+3))
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	fmt.Fprintf(&b, "\nMedians of the runs, ± their interquartile range, and the median ratio to the reference in the same round; ! noisy.\n")
	for _, t := range m.Tests {
		fmt.Fprintf(&b, "  %s: %s\n", t.name(), t.What)
	}
	r.notes(&b)
	r.verdict(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func transposed(lines [][]string) [][]string {
	out := make([][]string, len(lines[0]))
	for i := range out {
		for _, line := range lines {
			out[i] = append(out[i], line[i])
		}
	}
	return out
}

// notes prints the notes of rows, each once.
func (r *Report) notes(b *strings.Builder) {
	var notes []string
	of := map[string][]string{}
	for _, row := range r.Rows {
		if row.Note != "" && of[row.Note] == nil {
			notes = append(notes, row.Note)
		}
		of[row.Note] = append(of[row.Note], row.point())
	}
	for _, note := range notes {
		points := of[note]
		if len(points) > 2 {
			points = append(points[:1:1], fmt.Sprintf("and %d more", len(points)-1))
		}
		fmt.Fprintf(b, "  %s: %s\n", strings.Join(points, ", "), note)
	}
	for _, line := range r.busy() {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

func (r *Row) cell() string {
	if r == nil {
		return ""
	}
	if r.NoResult != "" {
		return noResult
	}
	parts := []string{r.Unit.Format(r.Value)}
	if s := r.FormatSpread(); s != "" {
		parts = append(parts, "±"+s)
	}
	if gain := r.FormatGain(); gain != "" {
		parts = append(parts, gain)
	}
	if r.Disturbed > 0 {
		parts = append(parts, "!")
	}
	return strings.Join(parts, " ")
}

// FormatRatio prints a ratio such that small ones can be told apart, too.
func FormatRatio(v float64) string {
	if v > 0 && v < 0.095 {
		return fmt.Sprintf("1/%.0f×", 1/v)
	}
	return digits(v) + "×"
}
