package page

import (
	"bytes"
	"strings"
	"testing"

	"exnet/cmd/dsbench/report"
)

// compared is a report of two tests over tcp, unix and ds-preload.
func compared(streams, halves []float64) *report.Report {
	r := &report.Report{}
	r.Describe("tcp", "kernel TCP over loopback")
	r.Describe("ds-preload", "TCP over loopback with the library")
	steady := func(v float64, n int) (runs []float64) {
		for range n {
			runs = append(runs, v)
		}
		return runs
	}
	for _, path := range []string{"tcp", "unix", "ds-preload"} {
		stream := report.Row{Test: "stream", Path: path, Size: 1 << 17, Unit: report.BitsPerSecond, Runs: steady(2e10, len(streams)), What: "what one connection carries"}
		rr := report.Row{Test: "rr", Path: path, Size: 64, Unit: report.Nanoseconds, Runs: steady(2e4, len(halves)), What: "half of a round trip"}
		if path == "ds-preload" {
			stream.Runs, rr.Runs = streams, halves
		}
		if path != "tcp" {
			stream.ReferenceRuns, rr.ReferenceRuns = steady(2e10, len(streams)), steady(2e4, len(halves))
			stream.Against, rr.Against = "kernel TCP over loopback", "kernel TCP over loopback"
		}
		r.Rows = append(r.Rows, stream.Finish(), rr.Finish())
	}
	return r
}

// The page has a verdict in a sentence, which follows from the figures, and says what things are.
func TestPageExplains(t *testing.T) {
	for _, c := range []struct {
		streams, halves []float64
		want            string
	}{
		{[]float64{6e10, 6e10}, []float64{1e3, 1e3}, "ds-preload carries 3 × as many bytes a second, and a message takes 1/20 of the time, compared with kernel TCP over loopback."},
		{[]float64{1e10, 1e10}, []float64{2e4, 2e4}, "ds-preload carries only half as many bytes a second, and a message takes about the same time, compared with kernel TCP over loopback."},
		{[]float64{6e10, 6e10}, []float64{1e3, 9e4}, "ds-preload carries 3 × as many bytes a second, compared with kernel TCP over loopback."},
		{[]float64{1e9, 6e10}, []float64{1e3, 9e4}, noVerdict},
	} {
		r := compared(c.streams, c.halves)
		if got := strings.Join(verdicts(r), "\n"); got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
		var b bytes.Buffer
		if err := WriteHTML(&b, r, Figures(r)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.want, "exnet lets programs on one host", "What the paths are", "TCP over loopback with the library", "more is better", "less is better"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q on the page", want)
			}
		}
		if scattered := c.want == noVerdict; strings.Contains(b.String(), "no result<small>machine busy") != (scattered || c.halves[1] > 8e4) {
			t.Errorf("%v, %v: what is no result is not said so", c.streams, c.halves)
		}
	}
}

// Rows that other programs have disturbed for the most part are in no verdict.
func TestNoVerdictOfDisturbedRows(t *testing.T) {
	r := compared([]float64{6e10, 6e10, 6e10}, []float64{1e3, 1e3, 1e3})
	for i := range r.Rows {
		r.Rows[i].Disturbed = 2
	}
	if got := verdicts(r); len(got) != 1 || got[0] != noVerdict {
		t.Errorf("%q", got)
	}
}

// Exnet has the one colour; what is not a result has no bar.
func TestColours(t *testing.T) {
	for path, want := range map[string]bool{"ds-preload": true, "ds-go": true, "exn0": true, "exn0-irq": true, "fabric": true, "tcp": false, "veth": false, "unix": false, "ds-go-on-tcp": false, "goblin": false} {
		if IsExnet(path) != want {
			t.Errorf("%s is exnet: %v", path, !want)
		}
	}
	bars := func(r *report.Report) int { return strings.Count(Figures(r)[0].body, "<rect x=") }
	steady, scattered := compared([]float64{6e10, 6e10}, []float64{1, 1}), compared([]float64{1e9, 6e10}, []float64{1, 1})
	if bars(steady) != 3 || bars(scattered) != 2 {
		t.Errorf("%d bars of three results, %d of two", bars(steady), bars(scattered))
	}
	if body := Figures(scattered)[0].body; !strings.Contains(body, "no result: machine busy") || !strings.Contains(Figures(steady)[0].body, "var(--exnet)") {
		t.Errorf("what is no result is not said so, or exnet has no colour: %s", body)
	}
}
