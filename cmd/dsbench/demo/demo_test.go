package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// beside is a row whose ratio to its reference is given.
func beside(test, path string, unit report.Unit, reference, ratio float64) report.Row {
	return report.Row{Test: test, Path: path, Unit: unit, Runs: []float64{reference * ratio, reference * ratio}, ReferenceRuns: []float64{reference, reference}}.Finish()
}

// shown is a report of a whole demonstration with the given ratios.
func shown(rate, cpu, half, bridge, relay, veth, message float64) *report.Report {
	r := &report.Report{Machine: report.Machine{CPUs: 2}, Conditions: &report.Conditions{}}
	r.Describe(overLoopback, "redis 7.0.15 over loopback")
	r.Rows = []report.Row{
		beside("requests", overLoopback, report.MessagesPerSec, 35_246, rate), beside("cpu", overLoopback, report.Nanoseconds, 25e3, cpu),
		beside("half-round-trip", overLoopback, report.Nanoseconds, 18e3, half), beside("bridge-requests", overBridge, report.MessagesPerSec, 34_961, bridge),
		beside("tcp-1-veth", "relay", report.BitsPerSecond, 20e9, veth/relay), beside("tcp-1-veth", overExn0, report.BitsPerSecond, 20e9, veth),
		beside("rtt-p50", overExn0, report.Nanoseconds, 20e3, message), beside("rtt-p50-relay", overExn0, report.Nanoseconds, 30e3, message),
	}
	return r
}

// The sentences are computed from the figures.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		r    *report.Report
		want string
	}{
		{shown(4, 0.2, 0.1, 5.7, 1.1, 0.9, 0.5), "redis answers 4 × as many requests here, for a fifth of the CPU time each, and a lone client waits a tenth of the time.\n" +
			"Between namespaces on a bridge it answers 5.7 × as many requests once exn-tun bridge runs: 35,000 before, 199,000 after.\n" +
			"exn0 moves 1.1 × as many bytes a second as the relay between two TUNs and only 90 % as many as a veth pair, and a message takes half of the time that it takes over veth."},
		{shown(1.02, 1.3, 0.97, 0.5, 0.8, 0.4, 1.5), "redis answers about as many requests here, for 1.3 × the CPU time each, and a lone client waits about the same time.\n" +
			"Between namespaces on a bridge it answers only half as many requests once exn-tun bridge runs: 35,000 before, 17,500 after.\n" +
			"exn0 moves only 80 % as many bytes a second as the relay between two TUNs and only 40 % as many as a veth pair, and a message takes 1.5 × the time that it takes over veth."},
		{&report.Report{}, ""},
	} {
		if got := strings.Join(Verdicts(c.r), "\n"); got != c.want {
			t.Errorf("got\n%s\ninstead of\n%s", got, c.want)
		}
	}
}

// What is no result is in no sentence and in no table, and the reason is said once.
func TestNoVerdictOfABusyMachine(t *testing.T) {
	r := shown(4, 0.2, 0.1, 5.7, 1.1, 0.9, 0.5)
	for i := range r.Rows {
		r.Rows[i].NoResult = whyBusy
		r.Rows[i] = r.Rows[i].Finish()
	}
	r.Conditions.Foreign = 1.3
	r.Verdicts = Verdicts(r)
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, figure := range []string{"141,000", "140,", "35,2", "×", "µs", "Gbit"} {
		if strings.Contains(text, figure) {
			t.Errorf("a figure that is none, %q, in:\n%s", figure, text)
		}
	}
	if strings.Count(text, "Not shown: "+whyBusy) != 1 || strings.Count(text, "no verdict: machine busy") != 3 || !strings.Contains(text, "other programs used 1.30 of 2 CPUs") ||
		!strings.Contains(text, "It is busy") {
		t.Errorf("the reason is not said, or not once:\n%s", text)
	}
}

func TestTable(t *testing.T) {
	r := shown(4, 0.2, 0.1, 5.7, 1.1, 0.9, 0.5)
	r.Verdicts = Verdicts(r)
	r.Skip("bridge", errors.New("needs root"))
	r.Skip("exn0", errors.New("needs root"))
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"EXT-DS under redis 7.0.15, over loopback\n",
		"                                  kernel TCP    EXT-DS\n" +
			"  requests a second, 50 clients       35,200   141,000   4.00×\n" +
			"  CPU time of a request              25.0 µs   5.00 µs   0.20×\n" +
			"  half round trip, one client        18.0 µs   1.80 µs   0.10×\n",
		"redis answers 4 × as many", "Left out: bridge, exn0: needs root.\n", "  veth pair                   20.0 Gbit/s                 20.0 µs\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// What the machine is like is said, and what to make of it only where there is something.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		cpus          int
		is            report.Conditions
		want, wantNot []string
	}{
		{2, report.Conditions{Foreign: 0.02, Apart: 58, WakeUp: 21e3}, []string{"other programs used 0.02 of 2 CPUs", "58.0 ns", "21.0 µs"}, []string{"busy", "far apart", "slow", "one CPU, which"}},
		{2, report.Conditions{Foreign: 1.2, Apart: 240, WakeUp: 370e3}, []string{"It is busy", "far apart", "slow to wake"}, []string{"one CPU, which"}},
		{1, report.Conditions{WakeUp: 5e3}, []string{"of 1 CPU meanwhile", "It has one CPU"}, []string{"cache line", "slow to wake"}},
	} {
		text := strings.Join(conditions(&report.Report{Machine: report.Machine{CPUs: c.cpus}, Conditions: &c.is}), "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: no %q in: %s", c.is, want, text)
			}
		}
		for _, not := range c.wantNot {
			if strings.Contains(text, not) {
				t.Errorf("%+v: %q in: %s", c.is, not, text)
			}
		}
	}
}

// Most of the pairs disturbed: no result; a few: one.
func TestDisturbedPairs(t *testing.T) {
	s := &show{report: &report.Report{Machine: report.Machine{CPUs: 4}}}
	for disturbed, want := range map[int]bool{0: true, 1: true, 2: false, 3: false} {
		var all series
		for i := range 3 {
			all.add(workload.Figure{Rate: 100, Lanes: true}, workload.Figure{Rate: 400, Lanes: true}, i < disturbed)
		}
		row := s.row(all, report.Row{Test: "requests", Path: overLoopback, Unit: report.MessagesPerSec}, func(f workload.Figure) float64 { return f.Rate })
		if _, ok := row.Gain(); ok != want || (row.NoResult == "") != want {
			t.Errorf("%d of 3 disturbed: a result is %v: %q", disturbed, ok, row.NoResult)
		}
	}
	var f workload.Figure
	for foreign, want := range map[float64]bool{0.3: false, 0.5: true} { // of four CPUs
		if f.Foreign = foreign; s.disturbed(f) != want {
			t.Errorf("%v CPUs taken: disturbed is %v", foreign, !want)
		}
	}
}

// Each obstacle has a remedy, and is no failure where the machine lacks something.
func TestRemedies(t *testing.T) {
	for err, want := range map[error]string{
		fs.ErrPermission: "need root",
		path.NoNamespace{Err: errors.New("no CONFIG_NET_NS")}: "no CONFIG_NET_NS",
	} {
		if got := needsRoot(fmt.Errorf("path: %w", err)); got == nil || !strings.Contains(got.Error(), want) || !errors.As(got, new(missing)) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if err := needsRoot(errors.New("else")); err != nil {
		t.Error(err)
	}
	for err, want := range map[error]string{syscall.ENOSPC: "TMPDIR", syscall.EROFS: "TMPDIR", errors.New("else"): "else"} {
		if got := remedy(fmt.Errorf("make a directory: %w", err)); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
