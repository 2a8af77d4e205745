package comparison

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/tracing"
	"exnet/test/built"
)

// What the kernel notes of a round trip over loopback: the server had not left its CPU yet, so
// it is not switched to. Between the lines is what is no part of it.
const overLoopback = `
            pump-10      (     10) [000] .....     1.000000: sys_enter: NR 1 (3, 55cf9dae32a0, 40, 0, 0, 0)
            pump-99      (     99) [001] .....     1.000001: sys_enter: NR 1 (3, 55cf9dae32a0, 40, 0, 0, 0)
            pump-10      (     10) [000] b....     1.000004: net_dev_queue: dev=lo skbaddr=00aa len=130
            pump-99      (     99) [001] ..s1.     1.000005: netif_receive_skb: dev=lo skbaddr=00bb len=116
            pump-10      (     10) [000] ..s1.     1.000006: netif_receive_skb: dev=lo skbaddr=00aa len=116
            pump-10      (     10) [000] d.s5.     1.000009: sched_waking: comm=pump pid=21 prio=120 target_cpu=001
            pump-10      (     10) [000] .....     1.000010: sys_exit: NR 1 = 64
            pump-21      (     20) [001] .....     1.000039: sys_exit: NR 0 = 64
            pump-21      (     20) [001] .....     1.000041: sys_enter: NR 1 (4, 560d5bdcf2a0, 40, 7ff60c4304f0, 4, 64)
            pump-21      (     20) [001] b....     1.000046: net_dev_queue: dev=lo skbaddr=00cc len=130
            pump-21      (     20) [001] ..s1.     1.000048: netif_receive_skb: dev=lo skbaddr=00cc len=116
            pump-21      (     20) [001] d.s5.     1.000053: sched_waking: comm=pump pid=10 prio=120 target_cpu=000
     some thing-5        (-------) [000] d..2.     1.000080: sched_switch: prev_comm=some thing prev_pid=5 prev_prio=120 prev_state=R ==> next_comm=pump next_pid=10 next_prio=120
            pump-10      (     10) [000] .....     1.000082: sys_exit: NR 0 = 64
            pump-10      (     10) [000] .....     1.000083: sys_enter: NR 1 (3, 55cf9dae32a0, 40, 0, 0, 0)
`

// The same over exn0: the daemons 30 and 40 take and hand over what the packets carry.
const overExn0 = `
            pump-10      (     10) [000] .....     1.000000: sys_enter: NR 1 (3, 55cf9dae32a0, 40, 0, 0, 0)
            pump-10      (     10) [000] b....     1.000003: net_dev_queue: dev=bench0 skbaddr=00aa len=116
            pump-10      (     10) [000] .....     1.000004: sys_exit: NR 1 = 64
         exn-tun-31      (     30) [001] .....     1.000007: sys_exit: NR 19 = 126
         exn-tun-41      (     40) [000] .....     1.000011: sys_enter: NR 20 (d, 20efe219e7c8, 2, 0, 0, 0)
         exn-tun-41      (     40) [000] b....     1.000012: netif_receive_skb: dev=bench1 skbaddr=00bb len=116
         exn-tun-41      (     40) [000] D..4.     1.000015: sched_waking: comm=pump pid=20 prio=120 target_cpu=001
          <idle>-0       (-------) [001] d..2.     1.000025: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=pump next_pid=20 next_prio=120
            pump-20      (     20) [001] .....     1.000027: sys_exit: NR 0 = 64
            pump-20      (     20) [001] .....     1.000028: sys_enter: NR 1 (4, 560d5bdcf2a0, 40, 7ff60c4304f0, 4, 64)
            pump-20      (     20) [001] b....     1.000030: net_dev_queue: dev=bench1 skbaddr=00cc len=116
         exn-tun-41      (     40) [000] .....     1.000034: sys_exit: NR 19 = 126
         exn-tun-31      (     30) [001] .....     1.000036: sys_enter: NR 20 (d, 20efe219e7c8, 2, 0, 0, 0)
         exn-tun-31      (     30) [001] b....     1.000037: netif_receive_skb: dev=bench0 skbaddr=00dd len=116
         exn-tun-31      (     30) [001] D..4.     1.000038: sched_waking: comm=pump pid=10 prio=120 target_cpu=000
            pump-10      (     10) [000] .....     1.000040: sys_exit: NR 0 = 64
            pump-10      (     10) [000] .....     1.000041: sys_enter: NR 1 (3, 55cf9dae32a0, 40, 0, 0, 0)
`

// And over AF_UNIX: who reads wakes the other, who so is awake when the answer is written.
const overUnix = `
            pump-10      (     10) [000] .....     1.000000: sys_enter: NR 1 (3, 557cf02c62a0, 40, 0, 0, 0)
            pump-10      (     10) [000] .....     1.000002: sys_exit: NR 1 = 64
            pump-20      (     20) [001] d..3.     1.000012: sched_waking: comm=pump pid=10 prio=120 target_cpu=000
            pump-20      (     20) [001] .....     1.000014: sys_exit: NR 0 = 64
            pump-20      (     20) [001] .....     1.000015: sys_enter: NR 1 (4, 560d5bdcf2a0, 40, 7ff60c4304f0, 4, 64)
            pump-20      (     20) [001] .....     1.000018: sys_exit: NR 1 = 64
            pump-10      (     10) [000] .....     1.000028: sys_exit: NR 0 = 64
            pump-10      (     10) [000] .....     1.000030: sys_enter: NR 1 (3, 557cf02c62a0, 40, 0, 0, 0)
`

// tracedOf is a tracer that has seen lines so many times, a second after each other.
func tracedOf(times int, text string) *tracer {
	t := newTracer(10, 20, []int{30, 40})
	for i := range 1 + times {
		for line := range strings.Lines(text) {
			t.line(strings.Replace(strings.TrimRight(line, "\n"), " 1.0", fmt.Sprintf(" %d.0", i+1), 1))
		}
		t.begun = false // the next is a second later
	}
	t.rounds = t.rounds[min(1, len(t.rounds)):] // in which it has learned whose threads are whose
	return t
}

// Each piece of a round trip belongs to a step, so that they sum up to the whole.
func TestTracedSteps(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]float64 // µs
	}{
		"loopback": {overLoopback, map[string]float64{"trace-send": 4 + 5, "trace-device": 2 + 2, "trace-receive": 3 + 5, "trace-wake": 30 + 27,
			"trace-return": 2, "trace-program": 2 + 1, "trace-round": 83}},
		"exn0": {overExn0, map[string]float64{"trace-send": 3 + 2, "trace-device": 4 + 4, "trace-fabric": 4 + 2, "trace-tun": 1 + 1, "trace-receive": 3 + 1,
			"trace-wake": 10 + 2, "trace-return": 2, "trace-program": 1 + 1, "trace-round": 41}},
		"unix": {overUnix, map[string]float64{"trace-send": 2 + 3, "trace-wake": 12 + 10, "trace-program": 1 + 2, "trace-round": 30}},
	} {
		got, share, err := tracedOf(fewest, c.text).steps()
		if err != nil || share != 1 {
			t.Errorf("%s: %v, %v", name, share, err)
		}
		for step, v := range got {
			got[step] = math.Round(v) / 1e3
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v instead of %v", name, got, c.want)
		}
	}
}

// Of round trips that went different ways, or took a rest, the ordinary ones are shown.
func TestOrdinaryRoundTrips(t *testing.T) {
	tr := tracedOf(3*fewest, overLoopback)
	for i := range fewest / 2 {
		tr.rounds[i].at[0][taken] = tr.rounds[i].at[0][queued] // another way
		tr.rounds[len(tr.rounds)-1-i].ends += time.Second      // interrupted
	}
	got, share, err := tr.steps()
	if err != nil || math.Round(got["trace-round"]/1e3) != 83 || math.Abs(share-5./6) > 1e-9 {
		t.Errorf("%v, %v, %v", got, share, err)
	}
	if _, _, err := tracedOf(fewest-1, overLoopback).steps(); err == nil {
		t.Error("too few are taken")
	}
}

// Whatever a line is, the tracer takes it.
func FuzzTracer(f *testing.F) {
	for _, text := range []string{overLoopback, overExn0, overUnix, "", ": ) [ (", "a-1 (1) [0] 1: sys_exit: "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tr := tracedOf(1, text)
		for _, r := range tr.rounds {
			_ = r.way()
		}
	})
}

// The steps of messages over TCP sum up to the round trip, and are longer than nothing; over
// a lane there are none.
func TestTraced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	t.Setenv("EXN_LIBRARY", built.Path(t, "libextds.so"))
	p := quick(t)
	p.CPUs = [2]int{0, 0}
	for _, name := range []string{reference, "ds-preload"} {
		c, err := wayOf(name).open(t.Context(), p)
		if err != nil {
			t.Skip(err)
		}
		defer c.Close()
		found, share, err := traced(t.Context(), c.(*pumped), p.load("rr"))
		var not untraceable
		switch {
		case errors.As(err, &not) && (strings.Contains(err.Error(), "no tracefs") || errors.Is(not.error, tracing.ErrCrowded)):
			t.Skip(err)
		case name != reference:
			if !errors.As(err, &not) || !errors.Is(not.error, errUntraced) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
		case err != nil || share < 0.1:
			t.Errorf("%v, %v", share, err)
		default:
			var sum float64
			for step, v := range found {
				if step != "trace-round" {
					sum += v
				}
			}
			if found["trace-send"] <= 0 || found["trace-receive"] <= 0 || found["trace-program"] <= 0 || math.Abs(sum-found["trace-round"]) > 1 {
				t.Errorf("%v", found)
			}
		}
	}
}
