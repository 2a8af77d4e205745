package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"exnet/cmd/dsbench/report"
)

// Verdicts say in sentences what the rows of a demonstration mean. Each is computed from the
// rows alone; what is no result is in none.
func Verdicts(r *report.Report) (sentences []string) {
	for _, of := range []func(*report.Report) string{loopbackVerdict, bridgeVerdict, exn0Verdict} {
		if sentence := of(r); sentence != "" {
			sentences = append(sentences, sentence)
		}
	}
	return sentences
}

// find is the row of a test over a path, nil if there is none.
func find(r *report.Report, test, path string) *report.Row {
	i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Test == test && row.Path == path })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// gain is the ratio of such a row, if it can be trusted.
func gain(r *report.Report, test, path string) (ratio float64, ok bool) {
	row := find(r, test, path)
	if row == nil {
		return 0, false
	}
	return row.Gain()
}

// none says that there is no verdict, and why; "" where nothing was shown.
func none(r *report.Report, what, test, path string) string {
	row := find(r, test, path)
	if row == nil {
		return ""
	}
	return fmt.Sprintf("%s: no verdict: %s. Run it again when the machine is quiet.", what, row.NoRatio)
}

// program is what answered the requests.
func program(r *report.Report) string {
	if strings.HasPrefix(r.Paths[overLoopback]+r.Paths[overBridge], redisName) {
		return redisName
	}
	return pumpName
}

func loopbackVerdict(r *report.Report) string {
	rate, ok := gain(r, "requests", overLoopback)
	if !ok {
		return none(r, "EXT-DS over loopback", "requests", overLoopback)
	}
	clauses := []string{fmt.Sprintf("%s answers %s requests here", program(r), report.AsMany(rate))}
	if cpu, ok := gain(r, "cpu", overLoopback); ok {
		clauses = append(clauses, fmt.Sprintf("for %s CPU time each", report.OfThe(cpu)))
	}
	if half, ok := gain(r, "half-round-trip", overLoopback); ok {
		clauses = append(clauses, fmt.Sprintf("and a lone client waits %s time", report.OfThe(half)))
	}
	return strings.Join(clauses, ", ") + "."
}

func bridgeVerdict(r *report.Report) string {
	rate, ok := gain(r, "bridge-requests", overBridge)
	if !ok {
		return none(r, "EXT-DS over a bridge", "bridge-requests", overBridge)
	}
	row := find(r, "bridge-requests", overBridge)
	return fmt.Sprintf("Between namespaces on a bridge it answers %s requests once exn-tun bridge runs: %s before, %s after.",
		report.AsMany(rate), perSecond(*row.Reference), perSecond(row.Value))
}

func exn0Verdict(r *report.Report) string {
	const stream, message = "tcp-1-veth", "rtt-p50"
	var clauses []string
	if ratio, ok := overRelay(r); ok {
		clauses = append(clauses, fmt.Sprintf("moves %s bytes a second as the relay between two TUNs", report.AsMany(ratio)))
	}
	if ratio, ok := gain(r, stream, overExn0); ok {
		clauses = append(clauses, fmt.Sprintf("%s as a veth pair", report.AsMany(ratio)))
	}
	if len(clauses) == 2 {
		clauses = []string{clauses[0] + " and " + clauses[1]}
	}
	if ratio, ok := gain(r, message, overExn0); ok {
		clauses = append(clauses, fmt.Sprintf("a message takes %s time that it takes over veth", report.OfThe(ratio)))
	}
	if len(clauses) == 0 {
		return none(r, "exn0", stream, overExn0)
	}
	return "exn0 " + strings.Join(clauses, ", and ") + "."
}

// overRelay is the stream over exn0 beside that over the relay in the same round.
func overRelay(r *report.Report) (ratio float64, ok bool) {
	ours, theirs := find(r, "tcp-1-veth", overExn0), find(r, "tcp-1-veth", "relay")
	if ours == nil || theirs == nil {
		return 0, false
	}
	row := report.Row{Test: ours.Test, Path: ours.Path, Unit: ours.Unit, Runs: ours.Runs, ReferenceRuns: theirs.Runs, NoResult: ours.NoResult + theirs.NoResult}
	return row.Finish().Gain()
}

// perSecond prints a rate without its unit: "35,200".
func perSecond(v float64) string {
	const digits = 3 // that count
	text := fmt.Sprintf("%.0f", round(v, digits))
	var parts []string
	for len(text) > 3 {
		parts = append([]string{text[len(text)-3:]}, parts...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, parts...), ",")
}

// round keeps so many digits.
func round(v float64, digits int) float64 {
	step := math.Pow10(max(0, len(fmt.Sprintf("%.0f", v))-digits))
	return math.Round(v/step) * step
}
