package comparison

import (
	"slices"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A load is a traffic that is sent over the paths in turn.
type load struct {
	name    string
	mode    string // of pump
	streams int
	rate    int   // messages a second; 0: one after the other
	sizes   []int // of one write, or of a message
	apart   bool  // the sides have a CPU each
	read    []reading
}

// An outcome is what one run gave.
type outcome struct {
	Rate  float64            `json:"rate"`      // bytes, messages or connections a second
	Bytes uint64             `json:"bytes"`     // of a stream, all
	CPU   time.Duration      `json:"cpu"`       // of both sides, and of what carries
	Times *measure.Histogram `json:"histogram"` // of whole round trips; nil: not known singly

	roundTrip float64 // the median, or what stands for it
}

// A reading is what becomes a row of the outcomes of a load.
type reading struct {
	test  string
	unit  report.Unit
	value func(outcome) float64 // 0: there is none
	what  string
	times float64 // what percentiles are of whole round trips; 0: they have no meaning
}

const (
	block   = 128 << 10 // what iperf3 writes at a time
	message = 64
	pace    = 1000
)

// loads are those of `dsbench`, or with sweep those of `dsbench figures`.
func loads(sweep bool) []load {
	writes, messages := []int{block}, []int{message}
	streams := []int{1}
	if sweep {
		writes = []int{1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
		messages = []int{1, 8, 64, 120, 256, 512, 1 << 10, 2 << 10, 8 << 10, 64 << 10, 1 << 20}
		streams = []int{1, 2, 4}
	}
	half := func(test, what string) []reading {
		return []reading{{test: test, unit: report.Nanoseconds, value: func(o outcome) float64 { return o.roundTrip / 2 }, what: "half of a round trip over one connection, " + what, times: 0.5}}
	}
	var all []load
	for _, n := range streams {
		name, sum := "stream", "one connection carries"
		if n > 1 {
			name, sum = "stream-"+string(rune('0'+n)), string(rune('0'+n))+" connections carry together"
		}
		l := load{name: name, mode: "stream", streams: n, sizes: writes, read: []reading{
			{test: name, unit: report.BitsPerSecond, value: func(o outcome) float64 { return 8 * o.Rate }, what: "what " + sum + ", written by blocking calls of the size, with TCP_NODELAY where there is TCP"}}}
		if n == 1 {
			l.read = append(l.read, reading{test: name + "-cpu", unit: report.Nanoseconds, what: "CPU time of both sides, and of the daemons of exn0, for each GB",
				value: func(o outcome) float64 {
					if o.CPU == 0 {
						return 0
					}
					return float64(o.CPU) / (float64(o.Bytes) / 1e9)
				}})
		}
		all = append(all, l)
	}
	return append(all,
		load{name: "rr", mode: "pingpong", streams: 1, sizes: messages, apart: true, read: half("rr", "one message after the other, median")},
		load{name: "rr-paced", mode: "pingpong", streams: 1, rate: pace, sizes: []int{message}, apart: true, read: half("rr-paced", "1000 messages a second, median")},
		load{name: "crr", mode: "connect", streams: 1, sizes: []int{message}, read: []reading{
			{test: "crr", unit: report.ConnectionsPS, value: func(o outcome) float64 { return o.Rate }, what: "connections a second, one after the other, each for one round trip"}}},
	)
}

// tests are the names of all rows.
func (l load) tests() (names []string) {
	for _, r := range l.read {
		names = append(names, r.test)
	}
	return names
}

// Tests are the names of the tests in the order of their rows.
func Tests(sweep bool) (names []string) {
	for _, l := range loads(sweep) {
		names = append(names, l.tests()...)
	}
	return names
}

// wanted are the loads that the plan's tests are read off.
func (p Plan) wanted() (wanted []load) {
	for _, l := range loads(p.Sweep) {
		l.read = slices.DeleteFunc(l.read, func(r reading) bool { return !measure.Chosen(p.Tests, r.test) })
		if len(l.read) > 0 {
			wanted = append(wanted, l)
		}
	}
	return wanted
}
