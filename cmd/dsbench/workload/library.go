package workload

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"exnet/cmd/dsbench/report"
)

// libraryTests are those of `dsbench ds --preload`. The targets are the project's.
func (p Plan) libraryTests() []test {
	sockperf := []string{"sockperf"}
	exchange := []string{"redis-server", "perl"}
	tests := []test{
		{name: "stream", size: 128 << 10, unit: report.BytesPerSecond, what: "iperf3, one stream, what the receiver got",
			target: report.AtLeast(report.Ratio, 5), packages: []string{"iperf3"}, upgrades: true, run: stream},
		{name: "ping-polling", size: 64, unit: report.Nanoseconds, what: "sockperf, half of a round trip, median, the sides on two CPUs",
			target: report.AtMost(report.Value, 250), packages: sockperf, upgrades: true, run: p.ping(p.firstCPU(), p.secondCPU(), 0, halfRoundTrip)},
		{name: "ping-asleep", size: 64, unit: report.Nanoseconds, what: "the same, one request a millisecond and on any CPU, so that the server sleeps each time",
			target: report.AtMost(report.Ratio, 1), packages: sockperf, upgrades: true, run: p.ping("", "", 1000, halfRoundTrip)},
		{name: "ping-one-cpu", size: 64, unit: report.MessagesPerSec, what: "sockperf, round trips by the median, both sides on one CPU",
			target: report.AtLeast(report.Ratio, 1.3), packages: sockperf, upgrades: true, run: p.ping(p.firstCPU(), p.firstCPU(), 0, roundTrips)},

		{name: "short-calls", unit: report.CallsPerOp, what: "system calls per connection of one request, both sides with the library, beyond those without it",
			target: report.AtMost(report.Value, 0), packages: append(exchange, "strace"), alone: extraCalls(ofProgram(exchanged("connections", true)))},
		{name: "short-time", unit: report.Nanoseconds, what: "CPU time of both sides for a connection of one request, both with the library, all on one CPU",
			target: report.AtMost(report.RatioSurely, 1.03), packages: exchange, pairs: 30, counted: true, run: p.exchange("connections", true)},
		{name: "plain-calls", unit: report.CallsPerOp, what: "system calls per request of a long connection to a server without the library, beyond those without it; the rest are a few looks for the peer in the first seconds",
			target: report.AtMost(report.Value, 0.01), packages: append(exchange, "strace"), alone: extraCalls(ofProgram(exchanged("requests", false)))},
		{name: "plain-time", unit: report.Nanoseconds, what: "CPU time of both sides for a request on a long connection to a server without the library, all on one CPU",
			target: report.AtMost(report.RatioSurely, 1.03), packages: exchange, pairs: 30, counted: true, run: p.exchange("requests", false)},
	}
	for _, size := range []int{100, 128 << 10} {
		slow := "pump, one stream in writes of the size to a reader that takes 1,000 bytes at a time and works 20 µs for them"
		tests = append(tests,
			test{name: "slow-reader", size: size, unit: report.BytesPerSecond, what: slow, target: report.AtLeast(report.Ratio, 1), upgrades: true,
				run: p.slowReader(size, func(r pumped) float64 { return r.Rate })},
			test{name: "slow-reader-cpu", size: size, unit: report.Nanoseconds, what: "CPU time of both sides for each GB of that, the work included", target: report.AtMost(report.Ratio, 1), upgrades: true,
				run: p.slowReader(size, func(r pumped) float64 { return r.CPU / float64(r.Bytes) * 1e9 })})
	}
	for _, start := range []string{"ls /", "bash -c :", "python3 -c ''", "perl -e ''"} {
		program, _, _ := strings.Cut(start, " ")
		tests = append(tests, test{name: "start-" + program, unit: report.Nanoseconds, what: "CPU time that preloading adds to the start and end of a program",
			target: report.AtMost(report.Value, 1e6), packages: []string{"python3", "perl"}, alone: startUp(start)})
	}
	return append(tests, zcopyTests(p.libraryLarge)...)
}

func stream(ctx context.Context, a *arena, _ int) (o outcome, err error) {
	port := freePort()
	if _, err := a.serve(ctx, port, "iperf3", "-s", "-p", strconv.Itoa(port)); err != nil {
		return o, err
	}
	seconds := 2
	if a.Quick {
		seconds = 1
	}
	text, err := a.run(ctx, "iperf3", "-c", a.host, "-p", strconv.Itoa(port), "-J", "-t", strconv.Itoa(seconds))
	if err != nil {
		return o, err
	}
	var result struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return o, fmt.Errorf("iperf3 printed what is no result: %w", err)
	}
	o.value = result.End.SumReceived.BitsPerSecond / 8
	return o, nil
}

// slowReader is a stream of pump's whose reader is slower than its writer.
func (p Plan) slowReader(size int, value func(pumped) float64) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		a.serverCPUs, a.clientCPUs = p.firstCPU(), p.secondCPU()
		port := freePort()
		if _, err := a.serve(ctx, port, a.Pump, "serve", a.host, strconv.Itoa(port), "1", "part=1000", "think=20"); err != nil {
			return o, err
		}
		text, err := a.run(ctx, a.Pump, "stream", a.host, strconv.Itoa(port), strconv.FormatFloat(p.seconds(), 'f', -1, 64), "size="+strconv.Itoa(size), "json")
		if err != nil {
			return o, err
		}
		var r pumped
		if err := json.Unmarshal(text, &r); err != nil || r.Bytes == 0 || r.CPU == 0 {
			return o, fmt.Errorf("pump printed what is no result: %w: %s", err, last(text))
		}
		o.value = value(r)
		return o, nil
	}
}

// What is made of sockperf's median, half of a round trip in µs.
func halfRoundTrip(us float64) float64 { return us * 1000 }
func roundTrips(us float64) float64    { return 1e6 / (2 * us) }

// ping is sockperf's ping-pong at a rate, 0 being as fast as it goes.
func (p Plan) ping(server, client string, rate int, value func(us float64) float64) func(context.Context, *arena, int) (outcome, error) {
	if rate == 0 {
		rate = 6_000_000 // more than ever was seen; without it sockperf ends by itself when it is faster than it expects
	}
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		a.serverCPUs, a.clientCPUs = server, client
		port := freePort()
		if _, err := a.serve(ctx, port, "sockperf", "server", "--tcp", "-i", a.host, "-p", strconv.Itoa(port)); err != nil {
			return o, err
		}
		text, err := a.run(ctx, "sockperf", "ping-pong", "--tcp", "-i", a.host, "-p", strconv.Itoa(port), "-m", "64", "-t", "1", "--mps="+strconv.Itoa(rate))
		if err != nil {
			return o, err
		}
		us, err := number(text, `percentile 50\.000 =\s*([\d.]+)`)
		o.value = value(us)
		return o, err
	}
}

// exchangeProgram has N requests of one connection answered, or N connections of
// one request each, by calls that block, and prints how many seconds that took
// and how many of CPU time it used.
//
//go:embed exchange.pl
var exchangeProgram string

func (p Plan) exchange(what string, both bool) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		a.serverCPUs, a.clientCPUs = p.firstCPU(), p.firstCPU()
		took, used, err := a.exchange(ctx, what, both, n)
		if err != nil {
			return o, err
		}
		return outcome{value: used * 1e9 / float64(n), rate: float64(n) / took}, nil
	}
}

func exchanged(what string, both bool) func(context.Context, *arena, int) error {
	return func(ctx context.Context, a *arena, n int) error {
		_, _, err := a.exchange(ctx, what, both, n)
		return err
	}
}

// exchange is one run of the program, with redis as its server: the seconds that
// it took, and the CPU time of both without that of their start and end.
func (a *arena) exchange(ctx context.Context, what string, both bool, n int) (took, used float64, err error) {
	a.server = a.server && both
	port, err := a.redis(ctx)
	if err != nil {
		return 0, 0, err
	}
	server := []int{a.running[0].cmd.Process.Pid}
	before, err := scheduled(server)
	if err != nil {
		return 0, 0, err
	}
	text, err := a.run(ctx, "perl", "-e", exchangeProgram, what, strconv.Itoa(port), strconv.Itoa(n))
	if err != nil {
		return 0, 0, err
	}
	after, err := scheduled(server)
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(string(text), &took, &used); err != nil {
		return 0, 0, fmt.Errorf("what took how long is not in %q: %w", text, err)
	}
	return took, used + (after - before).Seconds(), nil
}

// number finds the number that a pattern has in parentheses.
func number(text []byte, pattern string) (float64, error) {
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no result (%s) in: %s", pattern, last(text))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
