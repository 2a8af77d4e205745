package page

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"exnet/cmd/dsbench/report"
)

// The names of the files.
const (
	Results = "results.json"
	CSV     = "results.csv"
	Index   = "index.html"
)

// Make makes the directory and finds out whether files can be written there: before
// something is measured that takes an hour.
func Make(dir string) error {
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		err = replace(filepath.Join(dir, ".dsbench"), func(w io.Writer) error { _, err := w.Write([]byte{0}); return err })
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, ".dsbench"))
	}
	if err != nil {
		return fmt.Errorf("no report can be written to %s: %w; choose another directory by --out", dir, err)
	}
	return nil
}

// Write makes the directory, or writes its files anew. A file that cannot be written
// whole is not written at all; the first is the one that cannot be made of the others.
func Write(dir string, r *report.Report) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return fmt.Errorf("page: the directory %q cannot be searched: %w", dir, err)
	}
	figures := Figures(r)
	files := map[string]func(io.Writer) error{
		CSV:   func(w io.Writer) error { return WriteCSV(w, r) },
		Index: func(w io.Writer) error { return WriteHTML(w, r, figures) },
	}
	for _, f := range figures {
		files[f.Name+".svg"] = func(w io.Writer) error { _, err := io.WriteString(w, f.Alone()); return err }
	}
	errs := []error{replace(filepath.Join(dir, Results), r.WriteJSON)}
	for _, name := range old { // of a test that is not in this report
		if files[filepath.Base(name)] == nil && madeHere(name) {
			errs = append(errs, os.Remove(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		errs = append(errs, replace(filepath.Join(dir, name), files[name]))
	}
	for _, err := range errs {
		if err != nil { // those after it rarely say more
			remedy := "choose another directory by --out"
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				remedy = "free some space there, or " + remedy
			}
			return fmt.Errorf("the report in %s is not complete: %w; %s", dir, err, remedy)
		}
	}
	return nil
}

// madeHere says whether a figure was made here: nothing else is removed.
func madeHere(name string) bool {
	b, err := os.ReadFile(name)
	return err == nil && bytes.Contains(b[:min(len(b), 200)], []byte(mark))
}

// replace writes a file beside and puts it in the place of the old one.
func replace(name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	beside := name + ".new"
	err := os.WriteFile(beside, b.Bytes(), 0o666)
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		os.Remove(beside)
	}
	return err
}

// WriteCSV writes the rows for spreadsheets, in the units of the report. Runs are
// divided by blanks.
func WriteCSV(w io.Writer, r *report.Report) error {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	maybe := func(v *float64) string {
		if v == nil {
			return ""
		}
		return number(*v)
	}
	c := csv.NewWriter(w)
	c.Write([]string{"test", "path", "size", "setting", "value", "unit", "q1", "q3", "reference", "ratio", "p50", "p90", "p99", "p99.9", "max", "disturbed", "runs"})
	for _, row := range r.Rows {
		line := []string{row.Test, row.Path, strconv.Itoa(row.Size), "", number(row.Value), string(row.Unit), "", "", maybe(row.Reference), maybe(row.Ratio), "", "", "", "", "", strconv.Itoa(row.Disturbed)}
		if len(row.Quartiles) == 2 {
			line[6], line[7] = number(row.Quartiles[0]), number(row.Quartiles[1])
		}
		if row.Setting != nil {
			line[3] = number(row.Setting.Value)
		}
		if p := row.Percentiles; p != nil {
			for i, v := range []float64{p.P50, p.P90, p.P99, p.P999, p.Max} {
				line[10+i] = number(v)
			}
		}
		var runs []string
		for _, v := range row.Runs {
			runs = append(runs, number(v))
		}
		c.Write(append(line, strings.Join(runs, " ")))
	}
	c.Flush()
	return c.Error()
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"size":    report.FormatSize,
	"ratio":   report.Row.FormatGain,
	"exnet":   IsExnet,
	"percent": func(row report.Row) string { return row.FormatSpread() },
	"join":    strings.Join,
	"better":  better,
}).Parse(pageText))

// WriteHTML writes the page.
func WriteHTML(w io.Writer, r *report.Report, figures []Figure) error {
	matrix, ok := r.Matrix()
	return pageTemplate.Execute(w, map[string]any{
		"Report":   r,
		"Machine":  r.Machine,
		"Matrix":   matrix,
		"Headline": ok,
		"Best":     best(matrix),
		"Figures":  figures,
		"Noisy":    slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Disturbed > 0 }),
		"Style":    template.CSS(style),
		"Command":  strings.Join(r.Machine.Command, " "),
		"Verdicts": verdicts(r),
		"Paths":    described(r),
		"NoResult": slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.NoResult != "" }),
	})
}

// best is the best value of each column of a table.
func best(m report.Matrix) (rows []*report.Row) {
	for j := range m.Tests {
		var b *report.Row
		for i := range m.Paths {
			row := m.Cells[i][j]
			if row != nil && row.NoResult == "" && (b == nil || (row.Value < b.Value) == row.Unit.LowerIsBetter()) {
				b = row
			}
		}
		rows = append(rows, b)
	}
	return rows
}
