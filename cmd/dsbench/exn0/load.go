package exn0

import (
	"context"
	"slices"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
)

// A load is a traffic that is run over several paths in turn.
type load struct {
	name      string
	contender string
	params    measure.Params
	count     int           // of the contender's runs
	takes     time.Duration // one of them, about
	over      []string      // names of paths, in the order of the runs
	apart     bool          // sender and receiver each have a CPU of their own
}

// An outcome is what one run of a load over one path gave.
type outcome struct {
	measure.Result
	daemons time.Duration // CPU time of the path's daemons
}

// A point is a row to come: something read off the runs of a load over a
// subject and a reference.
type point struct {
	test      string
	load      string
	subject   string
	reference string // "" for none
	size      int
	unit      report.Unit
	value     func(outcome) float64
	what      string
	target    *report.Target
	// extra gives the value of a point without a load, once.
	extra func(*bench, context.Context, point) (float64, error)
}

// The names of the paths. Those of exn0 are variants by MTU and mode.
const (
	relay    = "relay"
	foreign  = "relay-foreign"
	veth     = "veth"
	whole    = "exn0"
	small    = "exn0-mtu1500"
	crowd    = "exn0-crowd"
	stalled  = "exn0-stalled"
	wholeMTU = 65535
	smallMTU = 1500
)

// against says what a reference is.
var against = map[string]string{
	relay: "a process with two blocking threads between two TUNs, MTU 65,535, checksum offload",
	veth:  "a veth pair, MTU 1500",
	whole: "exn0 with its defaults",

	foreign: "the program given by --relay, between two TUNs, MTU 65,535, checksum offload",
	crowd:   "the same with that node running",
}

// variants are settings of exn0 that are compared with the defaults.
var variants = []struct{ name, flag, what string }{
	{"irq", "--mode=irq", "handling each interrupt, no NAPI"},
	{"nospin", "--busy-poll=0s", "sleeping as soon as there is nothing to do"},
	{"budget-16", "--device-budget=16", "at most 16 packets of the interface in one poll"},
	{"budget-256", "--device-budget=256", "at most 256 packets of the interface in one poll"},
	{"copy", "--copy", "fetching by a GET that copies"},
}

// variant is the path of one of variants.
func variant(name string) string { return whole + "-" + name }

// A build makes a path.
type build func(Plan) (*path.Path, error)

// builds are the paths by name.
var builds = func() map[string]build {
	all := map[string]build{
		relay: func(Plan) (*path.Path, error) { return path.Relay(wholeMTU) },
		veth:  func(Plan) (*path.Path, error) { return path.Veth(smallMTU) },
		whole: func(p Plan) (*path.Path, error) { return path.Exn(p.Daemon, whole, "--mtu=65535") },
		small: func(p Plan) (*path.Path, error) { return path.Exn(p.Daemon, small, "--mtu=1500") },

		foreign: func(p Plan) (*path.Path, error) { return path.ForeignRelay(p.Relay) },
		crowd:   func(p Plan) (*path.Path, error) { return path.Crowd(p.Daemon, crowd, false, "--mtu=65535") },
		stalled: func(p Plan) (*path.Path, error) { return path.Crowd(p.Daemon, stalled, true, "--mtu=65535") },
	}
	for _, v := range variants {
		all[variant(v.name)] = func(p Plan) (*path.Path, error) {
			return path.Exn(p.Daemon, variant(v.name), "--mtu=65535", v.flag)
		}
	}
	return all
}()

// What is read off a run.
func throughput(o outcome) float64 { return 8 * (o.Lead.Rate + o.Follow.Rate) }
func half(q float64) func(outcome) float64 {
	return func(o outcome) float64 { return o.Lead.Times.Quantile(q) / 2 }
}
func cpuPerGB(o outcome) float64 {
	return float64(o.daemons) / (float64(o.Lead.Bytes+o.Follow.Bytes) / 1e9)
}

const (
	messageSize  = 64
	datagramSize = 1400
	datagramsGSO = 44 // as many as fit a packet of 64 KiB
	silence      = 20 * time.Millisecond
)

// loads are all there are.
func (p Plan) loads() []load {
	second, firsts := time.Second, 50
	if p.Quick {
		second, firsts = 200*time.Millisecond, 10
	}
	timed := func(name, contender string, params measure.Params, over ...string) load {
		return load{name, contender, params, int(second.Milliseconds()), second * 5 / 4, over, false}
	}
	tcp := func(name string, streams int, both bool, over ...string) load {
		return timed(name, "traffic/stream", measure.Params{Streams: streams, Both: both}, over...)
	}
	udp := func(name string, batch int, over ...string) load {
		return timed(name, "traffic/datagrams", measure.Params{Size: datagramSize, Batch: batch}, over...)
	}
	// One that sleeps while the other works could share its CPU: then there is
	// no wake-up between them, and the result depends on what else runs.
	apart := func(l load) load { l.apart = true; return l }
	probed, pinged := []string{relay, foreign, veth, whole}, []string{relay, veth, whole}
	for _, v := range variants {
		probed, pinged = append(probed, variant(v.name)), append(pinged, variant(v.name))
	}
	return []load{
		tcp(probe, 1, false, probed...),
		tcp("tcp-1500", 1, false, veth, small),
		tcp("tcp-2", 2, false, relay, veth, whole),
		tcp("tcp-4", 4, false, relay, veth, whole),
		tcp("tcp-bidir", 1, true, relay, veth, whole),
		apart(timed("rtt", "traffic/pingpong", measure.Params{Size: messageSize}, pinged...)),
		{"first-packet", "traffic/pingpong", measure.Params{Size: messageSize, Pause: silence},
			firsts, time.Duration(firsts) * silence, []string{relay, veth, whole}, true},
		udp("udp", 1, relay, veth, whole),
		udp("udp-gso", datagramsGSO, veth, small),
		timed(joined, "traffic/joined", measure.Params{Streams: 1}, whole),
		tcp("stalled", 1, false, crowd, stalled),
	}
}

// joined is the load whose sender is a node of the fabric itself.
const joined = "node"

// probe is the load that tells whether a run is valid.
const probe = "tcp-1"

// points are all rows, with the targets of the project for exn0.
func points() []point {
	const (
		stream   = "what one TCP stream carries (cubic)"
		message  = "half of a round trip of 64 bytes over TCP, one after the other, "
		received = "what arrives of UDP datagrams of 1400 bytes sent as fast as possible"
	)
	speed := func(test, load, subject, reference, what string, target *report.Target) point {
		return point{test, load, subject, reference, 0, report.BitsPerSecond, throughput, what, target, nil}
	}
	delay := func(test, load, subject, reference string, q float64, what string, target *report.Target) point {
		return point{test, load, subject, reference, messageSize, report.Nanoseconds, half(q), what, target, nil}
	}
	least := func(bound float64) *report.Target { return report.AtLeast(report.Ratio, bound) }
	most := func(bound float64) *report.Target { return report.AtMost(report.Ratio, bound) }
	all := []point{
		speed("tcp-1", probe, whole, relay, stream, least(1.0)),
		speed("tcp-1-veth", probe, relay, veth, stream, nil),
		speed("tcp-1-veth", probe, whole, veth, stream, least(0.8)),
		speed("relay", probe, relay, foreign, stream, least(0.95)),
		speed("tcp-1-mtu1500", "tcp-1500", small, veth, stream, least(0.65)),
		speed("tcp-2", "tcp-2", relay, veth, "two streams at a time, their sum", nil),
		speed("tcp-2", "tcp-2", whole, veth, "two streams at a time, their sum", least(0.6)),
		speed("tcp-4", "tcp-4", relay, veth, "four streams at a time, their sum", nil),
		speed("tcp-4", "tcp-4", whole, veth, "four streams at a time, their sum", least(0.6)),
		speed("tcp-bidir", "tcp-bidir", whole, relay, "a stream each way at the same time, their sum", least(0.9)),
		speed("tcp-bidir-veth", "tcp-bidir", whole, veth, "a stream each way at the same time, their sum", nil),
		{"cpu-per-gb", probe, whole, relay, 0, report.Nanoseconds, cpuPerGB, "CPU time of the daemons for each GB of tcp-1", most(1.1), nil},
		delay("rtt-p50", "rtt", whole, veth, 0.5, message+"median", most(0.5)),
		delay("rtt-p50-relay", "rtt", whole, relay, 0.5, message+"median", nil),
		delay("rtt-p99", "rtt", whole, veth, 0.99, message+"99 % take no longer", most(1.0)),
		delay("first-packet", "first-packet", whole, relay, 0.5, message+"each after 20 ms of silence, median", most(2.0)),
		delay("first-packet-veth", "first-packet", whole, veth, 0.5, message+"each after 20 ms of silence, median", nil),
		{"udp", "udp", whole, relay, datagramSize, report.BitsPerSecond, throughput, received, least(1.0), nil},
		{"udp-veth", "udp", whole, veth, datagramSize, report.BitsPerSecond, throughput, received, nil, nil},
		{"udp-gso", "udp-gso", small, veth, datagramSize, report.BitsPerSecond, throughput,
			received + ", 44 handed over at a time (UDP_SEGMENT, UDP_GRO), MTU 1500", least(0.4), nil},
		{test: "node", load: joined, subject: whole, unit: report.BitsPerSecond, value: throughput, target: report.AtLeast(report.Value, 10e9),
			what: "what one TCP stream carries from a program that is a node itself (exn.Node) to a kernel behind exn0"},
		speed("stalled", "stalled", stalled, crowd,
			stream+", to one of four nodes, while the sender also sends 2000 datagrams/s to each of two more, of which one is stopped", least(0.9)),
		{test: "alloc", subject: whole, unit: report.ObjectsPerOp, extra: (*bench).allocations, target: report.AtMost(report.Value, 0),
			what: "heap objects that the daemons allocate for each packet of tcp-1"},
		{test: "idle", subject: whole, unit: report.PercentOfCPU, extra: (*bench).idle, target: report.AtMost(report.Value, 0.1),
			what: "CPU time of both daemons without traffic, of one CPU"},
	}
	for _, v := range variants {
		all = append(all, speed("variant-"+v.name, probe, variant(v.name), whole, stream+", "+v.what, nil),
			delay("variant-"+v.name+"-rtt", "rtt", variant(v.name), whole, 0.5, message+"median, "+v.what, nil))
	}
	return all
}

// Tests are the names of the tests in the order of their rows.
func Tests() []string {
	var names []string
	for _, p := range points() {
		if !slices.Contains(names, p.test) {
			names = append(names, p.test)
		}
	}
	return names
}

// points are those of the plan.
func (p Plan) points() []point {
	return slices.DeleteFunc(points(), func(pt point) bool {
		return pt.reference == foreign && p.Relay == "" || !measure.Chosen(p.Tests, pt.test)
	})
}

// needed are the loads that the plan's points are read off, each over the
// paths that they want; the probe is first and always there.
func (p Plan) needed() (loads []load) {
	for _, l := range p.loads() {
		wanted := map[string]bool{relay: l.name == probe, veth: l.name == probe}
		for _, pt := range p.points() {
			if pt.load == l.name {
				wanted[pt.subject] = true
				wanted[pt.reference] = true
			}
		}
		l.over = slices.DeleteFunc(l.over, func(name string) bool { return !wanted[name] })
		if len(l.over) > 0 {
			loads = append(loads, l)
		}
	}
	return loads
}
