package page

import (
	"fmt"
	"slices"
	"strings"

	"exnet/cmd/dsbench/report"
)

// A pathLine is a path and what it is.
type pathLine struct{ Name, What string }

// described are the paths of the rows of which the report says what they are, exnet's first.
func described(r *report.Report) (lines []pathLine) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if what := r.Paths[row.Path]; what != "" && !seen[row.Path] {
			seen[row.Path] = true
			lines = append(lines, pathLine{row.Path, what})
		}
	}
	slices.SortStableFunc(lines, func(a, b pathLine) int {
		switch ours := IsExnet(a.Name); {
		case ours == IsExnet(b.Name):
			return 0
		case ours:
			return -1
		}
		return 1
	})
	return lines
}

// verdicts say in sentences what the report means: its own, or else for each path of exnet what the
// rows that everybody asks for first say.
func verdicts(r *report.Report) (sentences []string) {
	if len(r.Verdicts) > 0 {
		return r.Verdicts
	}
	shown := false
	for _, path := range []string{"ds-preload", "ds-go", "exn0"} {
		shown = shown || slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Path == path })
		if sentence := verdict(r, path); sentence != "" {
			sentences = append(sentences, sentence)
		}
	}
	if _, ok := r.Matrix(); ok && shown && sentences == nil {
		return []string{noVerdict}
	}
	return sentences
}

// noVerdict stands where other programs have disturbed all that a verdict could be about.
const noVerdict = "No verdict: the machine was busy. Measure again when nothing else runs."

// verdict is the sentence about one path, "" where nothing of it is a result.
func verdict(r *report.Report, path string) string {
	var clauses []string
	against := ""
	clause := func(test, words string, say func(float64) string) {
		for _, row := range r.Rows {
			if row.Test != test || row.Path != path {
				continue
			}
			ratio, ok := row.Gain()
			if quiet := 2*row.Disturbed <= len(row.Runs); ok && quiet {
				clauses, against = append(clauses, fmt.Sprintf(words, say(ratio))), row.Against
			}
			return // of several sizes the first
		}
	}
	if _, ok := r.Matrix(); !ok {
		return "" // over several sizes there is no one ratio
	}
	clause("stream", "carries %s bytes a second", report.AsMany)
	clause("stream-cpu", "needs %s CPU time for each of them", report.OfThe)
	clause("rr", "and a message takes %s time", report.OfThe)
	if len(clauses) == 0 {
		return ""
	}
	sentence := path + " " + strings.Join(clauses, ", ")
	if against != "" {
		sentence += ", compared with " + against
	}
	return sentence + "."
}
