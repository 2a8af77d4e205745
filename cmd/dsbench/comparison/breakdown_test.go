package comparison

import (
	"errors"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// Every sample counts once, for the innermost function that is of a layer, if it is ours.
func TestLayers(t *testing.T) {
	const text = `pump 10
	ffffffff81000001 _raw_spin_lock ([kernel.kallsyms])
	ffffffff81000002 tcp_sendmsg_locked ([kernel.kallsyms])
	ffffffff81000003 sock_write_iter ([kernel.kallsyms])
	ffffffff81000004 do_syscall_64 ([kernel.kallsyms])
	           d4ad7 __GI___write (/usr/lib/libc.so.6)

pump 10
	ffffffff81000001 try_to_wake_up ([kernel.kallsyms])
	ffffffff81000002 tcp_rcv_established ([kernel.kallsyms])

pump 11
	            1000 messages (/somewhere/bin/pump)

pump 11
	            1000 spin (/somewhere/bin/libextds.so)
	            2000 write (/somewhere/bin/libextds.so)

exn-tun 20
	            1000 runtime.main (/somewhere/bin/exn-tun)

exn-tun 20
	ffffffff81000001 tun_get_user ([kernel.kallsyms])

exn-tun 21
	            1000 of.another (/somewhere/bin/exn-tun)

swapper 0
	ffffffff81000001 pv_native_safe_halt ([kernel.kallsyms])
	ffffffff81000002 do_idle ([kernel.kallsyms])

swapper 0
	ffffffff81000001 memcpy ([kernel.kallsyms])
	ffffffff81000002 ip_rcv ([kernel.kallsyms])
	ffffffff81000003 net_rx_action ([kernel.kallsyms])

a b c 12
	ffffffff81000002 tcp_v4_rcv ([kernel.kallsyms])

pump 10
	ffffffff81000001 strange ([kernel.kallsyms])
`
	got, err := countLayers(strings.NewReader(text), []int{10, 11}, []int{20})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"tcp": 1, "wake": 1, inProgram: 1, inLibrary: 1, inDaemon: 1, "tun": 1, "ip": 1, inOther: 1, inAll: 8}
	if !maps.Equal(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
	if _, err := countLayers(strings.NewReader("nonsense\n"), nil, nil); err == nil {
		t.Error("nonsense is counted")
	}
}

// The client's clock needs no perf, and says that layers are left out.
func TestBreakdownByTheClock(t *testing.T) {
	p := quick(t)
	p.Runs = 1
	var r report.Report
	b := Breakdown{Plan: *p}
	b.Paths = []string{"unix"}
	if err := b.Run(t.Context(), &r, nil); err != nil || len(r.Failures) > 0 {
		t.Fatal(err, r.Failures)
	}
	r.Rows = slices.DeleteFunc(r.Rows, func(row report.Row) bool { return strings.HasPrefix(row.Test, "trace-") })
	if len(r.Rows) != 2*len(steps) || len(r.Skipped) == 0 || !strings.Contains(r.Skipped[0].Why, "linux-perf") {
		t.Fatalf("%+v", r)
	}
	if os.Geteuid() != 0 && !slices.ContainsFunc(r.Skipped, func(s report.Skip) bool { return strings.Contains(s.Why, "sudo") }) {
		t.Errorf("without root: %+v", r.Skipped)
	}
	for i, path := range []string{reference, "unix"} {
		write, wait, round := r.Rows[i], r.Rows[2+i], r.Rows[4+i]
		if write.Path != path || write.Value <= 0 || wait.Value <= 0 || math.Abs(round.Value-write.Value-wait.Value) > 1 {
			t.Errorf("%s: %+v, %+v, %+v", path, write, wait, round)
		}
	}
}

// What goes through shared memory is taken apart by stamps, in steps that are compared with
// a whole. Go programs time their calls as others do.
func TestBreakdownOfLanes(t *testing.T) {
	p := quick(t)
	p.Runs = 2
	cpus, err := measure.CPUs()
	if err != nil || len(cpus) < 2 {
		t.Skipf("needs two CPUs, one for each side: %v, %v", cpus, err)
	}
	p.CPUs = [2]int(cpus)
	var r report.Report
	b := Breakdown{Plan: *p}
	b.Paths = []string{"ds-go", polled, slept}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context(), &r, nil); err != nil || len(r.Failures) > 0 {
		t.Fatal(err, r.Failures)
	}
	row := func(test, path string) (found report.Row) {
		i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Test == test && row.Path == path })
		if i < 0 {
			return report.Row{Runs: make([]float64, p.Runs)}
		}
		return r.Rows[i]
	}
	for path, steps := range map[string][]string{polled: {"post", "way", "copy", "credit"}, slept: {"post", "look", "wake", "way", "copy", "credit"}} {
		for run := range p.Runs {
			sum := 0.0
			for _, s := range steps {
				sum += row("lane-"+s, path).Runs[run]
			}
			all, whole := row("lane-sum", path).Runs[run], row("lane-whole", path)
			if all <= 0 || whole.Runs[run] <= 0 || math.Abs(sum-all) > 1 || !strings.Contains(whole.Note, "the steps add up to") {
				t.Errorf("%s: steps %v, sum %v, whole %+v", path, sum, all, whole)
			}
		}
	}
	if write, wait, round := row("time-write", "ds-go").Value, row("time-wait", "ds-go").Value, row("time-round", "ds-go").Value; write <= 0 || wait <= 0 || round <= 0 {
		t.Errorf("ds-go: %v, %v, %v", write, wait, round)
	}
}

// How far the steps are from the whole has a sign.
func TestMissed(t *testing.T) {
	if s := missed(200, 190); s != "the steps add up to 190 ns, which is -5.0 % of it away" {
		t.Error(s)
	}
}

// What perf says when it may not is told in a line.
func TestRefused(t *testing.T) {
	for complaints, want := range map[string]string{
		"Error:\nAccess to performance monitoring is limited.\nperf_event_paranoid setting is 2:\n": "run it with sudo",
		"Error:\nNo such event.\nMore of it.\n":                                                     "perf record ended: No such event.",
	} {
		err := refused(complaints)
		var not unsampled
		if !errors.As(err, &not) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	}
}

// Over TCP most of the work is that of the kernel, and TCP has a part in it; over a lane
// it is the library's.
func TestBreakdown(t *testing.T) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		t.Skip("needs the program perf (Debian: linux-perf)")
	}
	p := quick(t)
	p.Runs = 1
	var r report.Report
	b := Breakdown{Plan: *p, Perf: perf}
	b.Paths = []string{"unix"}
	if err := b.Run(t.Context(), &r, nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Skipped {
		if strings.HasPrefix(s.What, "CPU time") {
			t.Skip(s.Why)
		}
	}
	value := func(test, path string) float64 {
		i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Test == test && row.Path == path })
		if i < 0 {
			return 0
		}
		return r.Rows[i].Value
	}
	if value("tcp", reference) <= 0 || value("tcp", "unix") > value("tcp", reference)/2 || value(inAll, "unix") <= 0 || value(inAll, thesis) != 11022 {
		t.Errorf("%+v", r)
	}
}
