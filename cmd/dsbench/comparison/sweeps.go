package comparison

import (
	"strconv"
	"time"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
)

// What the loads of a sweep go over where they do not bring ways of their own.
var swept = []string{"unix", "veth", "exn0", "ds-preload", "ds-go"}

// placed are those whose sides can be put on CPUs.
var placed = []string{"unix", "veth", "exn0", "ds-preload"}

// sweeps are the loads of `dsbench figures` that vary something else than the size: a setting
// of a path, or what goes on beside the messages.
func sweeps(half func(test, what string) []reading) (all []load) {
	bandwidth := func(test, what string) []reading {
		return []reading{{test: test, unit: report.BitsPerSecond, what: "what one connection carries, " + what, value: func(o outcome) float64 { return 8 * o.Rate }}}
	}
	stream := func(name, what string, ways []way) load {
		return load{name: name, mode: "stream", streams: 1, sizes: []int{block}, ways: ways, read: bandwidth(name, what)}
	}
	messages := func(name, what string, sizes []int, ways []way) load {
		return load{name: name, mode: "pingpong", streams: 1, sizes: sizes, cpus: apart, ways: ways, read: half(name, what)}
	}

	// Where the sides run: figure 5.27a.
	for _, c := range []struct {
		name, what string
		cpus       placing
	}{{"pinned-apart", "the sides on a CPU each", apart}, {"pinned-together", "both sides on one CPU", together}} {
		l := stream(c.name, c.what, named(placed))
		l.cpus = c.cpus
		all = append(all, l)
	}

	// Settings of paths.
	small := []int{8, 64, 120, 240, 400, 480, 960, 1920, 3840}
	all = append(all,
		messages("threshold-ds", "by VELO slots or by the window of a lane (BCopy), whatever the size", small, []way{
			{name: "ds-velo", what: "EXT-DS, all by VELO", carries: everything, open: preload("EXN_DS_VELO_MAX=4096")},
			{name: "ds-bcopy", what: "EXT-DS, all by BCopy", carries: everything, open: preload("EXN_DS_VELO_MAX=0")},
			wayOf("ds-preload")}),
		messages("threshold-exn0", "eagerly by VELO or by rendezvous (RMA GET), whatever the size", small, []way{
			{name: "exn0-eager", what: "exn0, all eager", carries: everything, open: exn("exn0-eager", "--eager=4096")},
			{name: "exn0-rendezvous", what: "exn0, all by rendezvous", carries: everything, open: exn("exn0-rendezvous", "--eager=1")},
			wayOf("exn0")}),
		stream("window", "over the window of a lane",
			varied("window of a lane", report.Bytes, []int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}, func(n int) way {
				size := strconv.Itoa(n)
				return way{name: "ds-preload", carries: everything, open: preload("EXN_DS_WINDOW="+size, "EXN_DS_WINDOW_LEAST="+size)}
			})),
		stream("mtu", "over the MTU", append(
			varied("MTU", "", []int{576, 1500, 4000, 9000, 16000, 32000, 65535}, func(n int) way {
				return way{name: "exn0", carries: everything, open: exn("exn0", "--mtu="+strconv.Itoa(n))}
			}),
			varied("MTU", "", []int{576, 1500, 4000, 9000, 16000, 32000, 65535}, func(n int) way {
				return way{name: "veth", carries: everything, open: between(func(*Plan) (*path.Path, error) { return path.Veth(n) })}
			})...)),
		stream("budget", "over the budget of a poll: packets of the interface, VELO messages and RMA notifications alike",
			varied("budget of a poll", "", []int{1, 4, 16, 64, 256}, func(n int) way {
				b := strconv.Itoa(n)
				return way{name: "exn0", carries: everything, open: exn("exn0", "--device-budget="+b, "--velo-budget="+b, "--rma-budget="+b)}
			})),
	)
	rates := append(
		varied("interrupts a second (ITR)", "", []int{1000, 4000, 8000, 20_000, 50_000, 100_000}, func(n int) way {
			return way{name: "exn0-static", carries: everything, open: exn("exn0-static", "--itr="+strconv.Itoa(n))}
		}),
		way{name: "exn0-dynamic", carries: everything, open: exn("exn0-dynamic", "--itr=dynamic")},
		way{name: "exn0-off", carries: everything, open: exn("exn0-off", "--itr=off")})
	all = append(all, stream("itr", "over the rate of interrupts", rates),
		messages("itr-rr", "one message after the other, over the rate of interrupts, median", []int{message}, rates))

	// The kernel's TCP as administrators tune it.
	all = append(all, stream("tuning", "the kernel's TCP tuned", tunings()), messages("tuning-rr", "the kernel's TCP tuned, median", []int{message}, tunings()))

	// What goes on beside the messages.
	for _, pause := range []time.Duration{10 * time.Microsecond, 30 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
		l := messages("sleep", "so long after the answer to the one before: polling turns into sleeping, median", []int{message}, named(swept))
		l.pause, l.setting = pause, &report.Setting{Of: "pause before a message", Unit: report.Nanoseconds, Value: float64(pause)}
		all = append(all, l)
	}
	for _, rounds := range []int{1, 2, 4, 8, 16, 64, 256, 1024} {
		all = append(all, load{name: "crr-rounds", mode: "connect", streams: 1, sizes: []int{message}, rounds: rounds, ways: named(swept),
			setting: &report.Setting{Of: "round trips of a connection", Value: float64(rounds)},
			read: []reading{{test: "crr-rounds", unit: report.MessagesPerSec, what: "round trips a second over connections made for so many, one after the other",
				value: func(o outcome) float64 { return o.Rate * float64(rounds) }}}})
	}
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		each := 1 / float64(n)
		all = append(all, load{name: "many", mode: "many", streams: n, longer: max(1, n/1000), // such that each has several turns
			sizes: []int{message}, ways: named(swept), setting: &report.Setting{Of: "connections", Value: float64(n)}, read: []reading{
				{test: "many", unit: report.MessagesPerSec, what: "round trips a second over so many connections in turn, at most 100 under way, a thread on each side (of Go, as many as it takes)",
					value: func(o outcome) float64 { return o.Rate }},
				{test: "many-cpu", unit: report.Nanoseconds, what: "the same, CPU time of both sides, and of the daemons of exn0, for each",
					value: func(o outcome) float64 { return float64(o.CPU) / (float64(o.Bytes) / message) }},
				{test: "idle", unit: report.PercentOfCPU, zero: true, what: "CPU time of both sides, and of the daemons of exn0, while so many connections are idle, of one CPU",
					value: func(o outcome) float64 { return 100 * float64(o.crowd.idle) / float64(idling) }},
				{test: "memory", unit: report.Bytes, zero: true, alone: true, what: "memory of both sides for each connection that was used and is idle, beside what the kernel has for its sockets",
					value: func(o outcome) float64 { return float64(max(0, o.crowd.memory)) * each }}}})
	}
	return all
}

// tunings are paths as they are, and tuned.
func tunings() []way {
	const buffers = "4096 4194304 33554432"
	tuned := func(name, what string, mtu int, t path.Tuning) way {
		return way{name: name, what: what, carries: everything, open: between(func(*Plan) (*path.Path, error) {
			made, err := path.Veth(mtu)
			if err != nil {
				return nil, err
			}
			if err := made.Tune(t); err != nil {
				made.Close()
				return nil, err
			}
			return made, nil
		})}
	}
	large := map[string]string{"tcp_rmem": buffers, "tcp_wmem": buffers}
	return []way{
		wayOf("veth"), wayOf("exn0"),
		tuned("veth-nogso", "veth, each packet by itself", vethMTU, path.Tuning{Segments: 1}),
		tuned("veth-mtu9000", "veth, jumbo frames", 9000, path.Tuning{}),
		tuned("veth-buffers", "veth, socket buffers of 4 to 32 MiB", vethMTU, path.Tuning{Sysctl: large}),
		tuned("veth-bigtcp", "veth, super-packets of 180 KiB", vethMTU, path.Tuning{Bytes: 180 << 10}),
		tuned("veth-all", "veth, MTU 65,535, the large buffers and super-packets", 65535, path.Tuning{Sysctl: large, Bytes: 180 << 10}),
	}
}

// named are ways by their names.
func named(names []string) (found []way) {
	for _, name := range names {
		found = append(found, wayOf(name))
	}
	return found
}

// varied makes a way for each value of a setting.
func varied(of string, unit report.Unit, values []int, each func(int) way) (ways []way) {
	for _, v := range values {
		w := each(v)
		w.setting = &report.Setting{Of: of, Unit: unit, Value: float64(v)}
		ways = append(ways, w)
	}
	return ways
}
