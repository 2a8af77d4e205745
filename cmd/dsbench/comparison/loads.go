package comparison

import (
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// A load is a traffic that is sent over the paths in turn.
type load struct {
	name    string
	mode    string // of pump
	streams int
	rate    int           // messages a second; 0: one after the other
	pause   time.Duration // after each message
	split   bool          // how long writing takes and waiting is wanted, too
	rounds  int           // of messages on each connection of connect; 0: one
	longer  int           // so many times as long as others; 0: as long
	sizes   []int         // of one write, or of a message
	cpus    placing       // of the sides
	read    []reading

	setting *report.Setting // what the loads of a test differ in beside the size
	ways    []way           // over which; nil: those of the plan
}

// A placing is where the two sides run.
type placing int

const (
	anywhere placing = iota
	apart            // a CPU each
	together         // on one
)

// on are the CPUs of client and server.
func (p placing) on(cpus [2]int) [2]int {
	switch p {
	case apart:
		return cpus
	case together:
		return [2]int{cpus[0], cpus[0]}
	}
	return [2]int{measure.AnyCPU, measure.AnyCPU}
}

// takes is how long a run of it counts, of those that the plan makes so long.
func (l load) takes(length time.Duration) time.Duration {
	return time.Duration(max(1, l.longer)) * length
}

// at names the load at a size.
func (l load) at(size int) string {
	at := report.FormatSize(size)
	if l.setting != nil {
		at = l.setting.Of + " " + l.setting.String()
	}
	return strings.TrimSpace(l.name + " " + at)
}

// opening is about how long it takes to make the connections of a crowd, each for the round
// trips after which it is no longer new, and to look at them while they are idle.
func (l load) opening() time.Duration {
	if l.crowds() {
		return time.Duration(l.streams)*time.Millisecond + settling + idling
	}
	return 0
}

// crowds says whether it is of connections that are made before it begins.
func (l load) crowds() bool { return l.mode == "many" }

// An outcome is what one run gave.
type outcome struct {
	Rate  float64            `json:"rate"`      // bytes, messages or connections a second
	Bytes uint64             `json:"bytes"`     // of a stream, all
	CPU   time.Duration      `json:"cpu"`       // of both sides, and of what carries
	Times *measure.Histogram `json:"histogram"` // of whole round trips; nil: not known singly

	Writing time.Duration `json:"writing"` // of all messages, if wanted: in the call that writes
	Waiting time.Duration `json:"waiting"` // and from then to the answer

	roundTrip float64       // the median, or what stands for it
	length    time.Duration // of the run, with its warm-up
	size      int           // of its messages, or of its writes
	crowd     crowdCosts    // of many connections
}

// A reading is what becomes a row of the outcomes of a load.
type reading struct {
	test  string
	unit  report.Unit
	value func(outcome) float64 // 0: there is none
	what  string
	zero  bool    // 0 is a value, too
	alone bool    // a ratio to the reference says nothing
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
	cpuPerGB := reading{test: "stream-cpu", unit: report.Nanoseconds, what: "CPU time of both sides, and of the daemons of exn0, for each GB",
		value: func(o outcome) float64 {
			if o.CPU == 0 {
				return 0
			}
			return float64(o.CPU) / (float64(o.Bytes) / 1e9)
		}}
	messageRate := reading{test: "message-rate", unit: report.MessagesPerSec, what: "messages of the size a second on one connection, one way, each written by a call",
		value: func(o outcome) float64 { return o.Rate / float64(o.size) }}
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
			l.read = append(l.read, cpuPerGB)
			if sweep {
				l.read = append(l.read, messageRate)
			}
		}
		all = append(all, l)
	}
	all = append(all,
		load{name: "rr", mode: "pingpong", streams: 1, sizes: messages, cpus: apart, read: half("rr", "one message after the other, median")},
		load{name: "rr-paced", mode: "pingpong", streams: 1, rate: pace, sizes: []int{message}, cpus: apart, read: half("rr-paced", "1000 messages a second, median")},
		load{name: "crr", mode: "connect", streams: 1, sizes: []int{message}, read: []reading{
			{test: "crr", unit: report.ConnectionsPS, value: func(o outcome) float64 { return o.Rate }, what: "connections a second, one after the other, each for one round trip"}}},
	)
	if sweep {
		all = append(all, sweeps(half)...)
	}
	return all
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
		for _, name := range l.tests() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
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
