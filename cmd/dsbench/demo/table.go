package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"exnet/cmd/dsbench/report"
)

// Write writes a demonstration for people: the figures of each scene, what they mean, what the
// machine was like, and what to try next.
func Write(w io.Writer, r *report.Report) error {
	var b strings.Builder
	b.WriteString(r.Machine.String() + "\n")
	requestTable(&b, r, "EXT-DS under "+firstOf(r.Paths[overLoopback], " over")+", over loopback", "", overLoopback)
	requestTable(&b, r, "EXT-DS between two namespaces on a bridge, as containers are; the one change is exn-tun bridge", "bridge-", overBridge)
	exn0Table(&b, r)
	for i, sentence := range r.Verdicts {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(sentence + "\n")
	}
	b.WriteString("\n")
	for _, line := range conditions(r) {
		b.WriteString(line + "\n")
	}
	for _, line := range busy(r) {
		b.WriteString(line + "\n")
	}
	for _, line := range left(r) {
		b.WriteString(line + "\n")
	}
	b.WriteString("\n" + next(r))
	_, err := io.WriteString(w, b.String())
	return err
}

func firstOf(text, before string) string {
	first, _, _ := strings.Cut(text, before)
	return first
}

// requestTable has a line for each figure and a column for each way.
func requestTable(b *strings.Builder, r *report.Report, title, prefix, over string) {
	lines := [][]string{{"", named[0], named[1], ""}}
	for _, f := range []struct {
		test, what string
		number     func(report.Row, float64) string
	}{
		{prefix + "requests", "requests a second, 50 clients", func(_ report.Row, v float64) string { return perSecond(v) }},
		{prefix + "cpu", "CPU time of a request", unitOf},
		{prefix + "half-round-trip", "half round trip, one client", unitOf},
	} {
		row := find(r, f.test, over)
		if row == nil {
			continue
		}
		line := []string{f.what, "", "no result: machine busy", ""}
		if row.NoResult == "" {
			line = []string{f.what, f.number(*row, *row.Reference), f.number(*row, row.Value), row.FormatGain()}
		}
		lines = append(lines, line)
	}
	table(b, title, lines)
}

func unitOf(row report.Row, v float64) string { return row.Unit.Format(v) }

// exn0Table has a line for each path.
func exn0Table(b *strings.Builder, r *report.Report) {
	lines := [][]string{{"", "one TCP stream", "half round trip, 64 B"}}
	cell := func(test, path string, reference bool) string {
		row := find(r, test, path)
		switch {
		case row == nil:
			return ""
		case row.NoResult != "" || reference && row.NoRatio != "":
			return "no result"
		case reference:
			return row.Unit.Format(*row.Reference)
		}
		return row.Unit.Format(row.Value)
	}
	if find(r, "tcp-1-veth", overExn0) != nil || find(r, "rtt-p50", overExn0) != nil {
		lines = append(lines,
			[]string{"exn0", cell("tcp-1-veth", overExn0, false), cell("rtt-p50", overExn0, false)},
			[]string{"relay between two TUNs", cell("tcp-1-veth", "relay", false), cell("rtt-p50-relay", overExn0, true)},
			[]string{"veth pair", cell("tcp-1-veth", overExn0, true), cell("rtt-p50", overExn0, true)})
	}
	table(b, "exn0, an interface on shared memory, between two namespaces", lines)
}

// table writes lines in columns, numbers to the right; nothing if there is but a head.
func table(b *strings.Builder, title string, lines [][]string) {
	if len(lines) < 2 {
		return
	}
	fmt.Fprintf(b, "\n%s\n\n", title)
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			width := 0
			for _, l := range lines {
				width = max(width, utf8.RuneCountInString(l[i]))
			}
			pad := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if i == 0 {
				out.WriteString("  " + cell + pad)
			} else {
				out.WriteString("   " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
}

// busy says why figures are not shown, each reason once.
func busy(r *report.Report) (lines []string) {
	for _, row := range r.Rows {
		for _, why := range []string{row.NoResult, row.NoRatio} {
			if line := "Not shown: " + why + "."; why != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	for _, row := range r.Rows {
		if line := row.Note + "."; row.Note != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// left says what was left out or failed; scenes with the same reason share a line.
func left(r *report.Report) (lines []string) {
	names := map[string][]string{}
	var reasons []string
	for _, s := range r.Skipped {
		if names[s.Why] == nil {
			reasons = append(reasons, s.Why)
		}
		names[s.Why] = append(names[s.Why], s.What)
	}
	for _, why := range reasons {
		lines = append(lines, fmt.Sprintf("Left out: %s: %s.", strings.Join(names[why], ", "), why))
	}
	for _, f := range r.Failures {
		lines = append(lines, fmt.Sprintf("Failed: %s: %s.", f.Test, f.Error))
	}
	return lines
}

// next is what to try next, of what there is.
func next(r *report.Report) string {
	lines := [][2]string{
		{"exn-tun run -- YOUR SERVER", "and its client likewise: their connections take shared memory"},
		{"exn-tun show sockets", "which connections did, and why the others did not"},
		{"exn-tun check HOST:PORT", "whether a connection there would"},
	}
	if find(r, "bridge-requests", overBridge) != nil {
		lines = append(lines, [2]string{"exn-tun bridge docker0", "the same for containers: see exn-tun help bridge"})
	}
	lines = append(lines, [2]string{"dsbench", "all paths, with more care and a page with figures"})
	var b strings.Builder
	b.WriteString("Try next (programs are in bin/):\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "  %-28s  %s\n", line[0], line[1])
	}
	return b.String()
}
