package rawfabric

import (
	"context"
	"slices"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A point is one row to come: a test at a size.
type point struct {
	test   string
	size   int
	unit   report.Unit
	what   string // what the value is
	target *report.Target
	run    func(context.Context, *bench, *point, *report.Row) error
	takes  time.Duration // about, beside starting the processes

	subject string // contender, without the path
	params  measure.Params
	count   int // operations of a run; 0: as many as fit

	// For comparisons:
	reference string
	against   string
	sleeps    bool // both sides wait in the kernel
	value     func(r measure.Result, size int) float64
}

// Tests are the names of the tests in the order they are run.
func Tests() []string {
	var names []string
	for _, p := range (Plan{}).points() {
		if !slices.Contains(names, p.test) {
			names = append(names, p.test)
		}
	}
	return names
}

// The values of the comparisons.
func halfRoundTrip(r measure.Result, _ int) float64 { return r.Lead.PerOp / 2 }
func perSecond(r measure.Result, _ int) float64     { return 1e9 / r.Lead.PerOp }
func bandwidth(r measure.Result, size int) float64  { return float64(size) * 1e9 / r.Lead.PerOp }

// buffers is how many buffers of a size are under way: four cover the way
// there and back, and two of the largest are far beyond the caches already.
func buffers(size int) int {
	if size > 1<<20 {
		return 2
	}
	return 4
}

// points are the points of the plan in order. The targets are those of the
// project for its fabric/shm.
func (p Plan) points() []point {
	all := slices.Concat(p.velo(), p.rma(), p.wake(), p.costs())
	return slices.DeleteFunc(all, func(pt point) bool { return !measure.Chosen(p.Tests, pt.test) })
}

// comparison completes a point that is compared with a reference.
func (p Plan) comparison(pt point) point {
	pt.run, pt.params.Size = compare, pt.size
	pt.takes = time.Duration(2*p.Runs+2) * p.length() // two to find the counts
	if pt.count > 0 {
		pt.takes = time.Duration(2*p.Runs*pt.count) * pt.params.Pause
	}
	return pt
}

func (p Plan) velo() []point {
	latency := func(size int, most float64) point {
		return p.comparison(point{test: "velo-latency", size: size, unit: report.Nanoseconds,
			what: "half of a round trip, both sides polling", target: report.AtMost(report.Ratio, most),
			subject: "velo-ping", value: halfRoundTrip,
			reference: "bare/ping", against: "half of a round trip of one word between two cache lines"})
	}
	return []point{
		latency(8, 2.0),
		latency(120, 2.5),
		p.comparison(point{test: "velo-rate", size: 8, unit: report.MessagesPerSec,
			what: "one sender to a polling receiver that checks every number", target: report.AtLeast(report.Value, 30e6),
			subject: "velo-rate", value: perSecond,
			reference: "bare/ring", against: "ring of 128-byte slots, one atomic store per message"}),
	}
}

func (p Plan) rma() (out []point) {
	transfer := func(test, subject, what, reference, against string, target func(int) *report.Target) {
		for _, size := range []int{4 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20} {
			out = append(out, p.comparison(point{test: test, size: size, unit: report.BytesPerSecond, what: what,
				target: target(size), subject: subject, params: measure.Params{Buffers: buffers(size)},
				value: bandwidth, reference: reference, against: against}))
		}
	}
	target := func(size int) *report.Target {
		switch {
		case size <= 4<<10:
			return report.AtLeast(report.Ratio, 0.5)
		case size <= 1<<20:
			return report.AtLeast(report.Ratio, 0.9)
		}
		return nil // 8 MiB is shown as the longest operation
	}
	transfer("rma-put", "put", "PUT by one side, every byte read by the other",
		"bare/put", "copy into shared memory and a release flag, every byte read by the other side", target)
	transfer("rma-get", "get", "written by one side, GET by the other, which reads every byte",
		"bare/get", "written by one side and a release flag, copied out by the other, which reads every byte", target)
	transfer("rma-get-in-place", "read", "written by one side, every byte read where it lies by the other",
		"bare/read", "the same with a release flag", func(int) *report.Target { return nil })
	return out
}

func (p Plan) wake() []point {
	const against = "the same with two eventfds and read(2)"
	paced := 200 // requests of a run: a fifth of a second
	if p.Quick {
		paced = 50
	}
	return []point{
		p.comparison(point{test: "wake", size: 8, unit: report.Nanoseconds,
			what: "half of a round trip, both sides asleep each time", target: report.AtMost(report.Ratio, 1.3),
			subject: "velo-sleep", sleeps: true, value: halfRoundTrip, reference: "bare/wake", against: against}),
		p.comparison(point{test: "wake-paced", size: 8, unit: report.Nanoseconds, count: paced,
			what: "the same, one request a millisecond, median of the requests", params: measure.Params{Pause: time.Millisecond},
			subject: "velo-sleep", sleeps: true, value: halfRoundTrip, reference: "bare/wake", against: against}),
	}
}

// worn is how many messages and notifications each way have worn a channel in:
// more than any ring holds.
const worn = 4 << 10

// nap is how long the receiver sleeps before each poll meanwhile, so that the
// rings fill up to the end.
const nap = 500 * time.Microsecond

// idleChannel is what a channel that nobody uses may keep resident.
const idleChannel = 64 << 10

func (p Plan) costs() []point {
	watch := 10 * time.Second
	if p.Quick {
		watch = 2 * time.Second
	}
	wear := 4 * worn / pollBatch * nap
	out := []point{
		{test: "idle", unit: report.PercentOfCPU, run: idleCPU, takes: watch, count: int(watch.Milliseconds()),
			what:   "CPU time of both processes while all their ports are armed and wait, of one CPU",
			target: report.AtMost(report.Value, 0.1), subject: "idle"},
		{test: "memory-new", unit: report.Bytes, run: residentGrowth, count: 1, subject: "memory",
			what:   "resident shared memory of a channel after one message and one notification each way",
			target: report.AtMost(report.Value, idleChannel)},
		{test: "memory-worn", unit: report.Bytes, run: residentGrowth, count: worn, takes: wear, subject: "memory",
			what:   "the same after its rings were full in both directions",
			params: measure.Params{Pause: nap}, target: report.AtMost(report.Value, idleChannel)},
		{test: "memory-window", size: 1 << 20, unit: report.Bytes, run: residentGrowth, count: 1, subject: "window",
			what:   "resident shared memory of a window of 64 MiB after a PUT of 1 MiB, and of the channel for it",
			params: measure.Params{Size: 1 << 20}, target: report.AtMost(report.Value, 1<<20+idleChannel)},
	}
	for _, a := range []struct {
		test, subject string
		size, count   int
	}{
		{"alloc-velo", "velo-ping", 8, 5000},
		{"alloc-velo-rate", "velo-rate", 8, 20000},
		{"alloc-wake", "velo-sleep", 8, 5000},
		{"alloc-put", "put", 4096, 5000},
		{"alloc-get", "get", 4096, 5000},
		{"alloc-get-in-place", "read", 4096, 5000},
	} {
		out = append(out, point{test: a.test, size: a.size, unit: report.ObjectsPerOp, run: allocations,
			what: "heap objects of both processes per operation", target: report.AtMost(report.Value, 0),
			subject: a.subject, count: a.count, params: measure.Params{Size: a.size, Buffers: 4}})
	}
	return out
}
