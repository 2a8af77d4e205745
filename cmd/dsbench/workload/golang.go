package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// goTests are those of `dsbench ds --go`. The targets are the project's.
func (p Plan) goTests() []test {
	const clients, block, request, message = 1000, 128 << 10, 1 << 10, 64
	stream := goPump{mode: "stream", value: func(r pumped) float64 { return r.Rate }}
	ping := goPump{mode: "pingpong", value: pumped.half}
	exchange := goPump{mode: "pingpong", value: func(r pumped) float64 { return r.Rate }, cpus: p.firstCPU()}
	many := goPump{mode: "requests", args: []string{"streams=" + strconv.Itoa(clients)}}
	requests, cost := many, many
	requests.value = func(r pumped) float64 { return r.Rate }
	cost.value = func(r pumped) float64 { return r.CPU / float64(r.Bytes/request) }
	asleep, oneCPU := ping, stream
	asleep.args, oneCPU.cpus = []string{"rate=1000"}, p.firstCPU()
	all := strconv.Itoa(clients) + " connections, all in use"
	return append([]test{
		{name: "stream", size: block, unit: report.BytesPerSecond, what: "one stream, what the receiver got",
			target: report.AtLeast(report.Ratio, 4), upgrades: true, run: stream.run},
		{name: "ping-polling", size: message, unit: report.Nanoseconds, what: "half of a round trip, median, one message after the other",
			target: report.AtMost(report.Value, 350), upgrades: true, run: ping.run},
		{name: "ping-asleep", size: message, unit: report.Nanoseconds, what: "the same, 1000 messages a second, so that both sides sleep",
			target: report.AtMost(report.Ratio, 1), upgrades: true, run: asleep.run},
		{name: "ping-one-cpu", size: message, unit: report.MessagesPerSec, what: "round trips, both sides on one CPU",
			target: report.AtLeast(report.Ratio, 1), upgrades: true, run: exchange.run},
		{name: "stream-one-cpu", size: block, unit: report.BytesPerSecond, what: "one stream, both sides on one CPU",
			target: report.AtLeast(report.Ratio, 1), upgrades: true, run: oneCPU.run},
		{name: "requests", size: request, unit: report.MessagesPerSec, what: "requests and their echoes, " + all,
			target: report.AtLeast(report.Ratio, 3), upgrades: true, run: requests.run},
		{name: "requests-cpu", size: request, unit: report.Nanoseconds, what: "CPU time of both sides for a request, " + all,
			target: report.AtMost(report.Ratio, 1), upgrades: true, run: cost.run},
		{name: "plain-calls", size: message, unit: report.CallsPerOp, what: "system calls that succeed per request of a long connection to a server with package net, beyond those of a client with package net; without those by which Go's runtime sleeps",
			target: report.AtMost(report.Value, 0.01), packages: []string{"strace"}, alone: extraCalls(ofGo(plainPeer))},
	}, zcopyTests(goLarge)...)
}

// A goPump is a run of gopump, with package directsockets or, for reference, with net.
type goPump struct {
	mode  string
	cpus  string // both sides are pinned to; "": none
	env   []string
	args  []string
	value func(pumped) float64
}

// pumped is what gopump prints. Rate is of a second, CPU in ns.
type pumped struct {
	Rate, CPU float64
	Bytes     int64
	Histogram *measure.Histogram
}

func (r pumped) half() float64 { return r.Histogram.Quantile(0.5) / 2 }

func (g goPump) run(ctx context.Context, a *arena, _ int) (o outcome, err error) {
	var with []string
	if !a.client {
		with = []string{"net"}
	}
	a.serverCPUs, a.clientCPUs, a.env = g.cpus, g.cpus, g.env
	seconds := strconv.FormatFloat(a.seconds(), 'f', -1, 64)
	r, err := a.pump(ctx, with, with, append([]string{g.mode, seconds}, g.args...))
	if err != nil {
		return o, err
	}
	o.value = g.value(r)
	return o, nil
}

// pump has a gopump of its own serve another; args are its mode, how much, and more.
func (a *arena) pump(ctx context.Context, server, client, args []string) (r pumped, err error) {
	port := freePort()
	if _, err := a.serve(ctx, port, append([]string{a.GoPump, "serve", a.host, strconv.Itoa(port)}, server...)...); err != nil {
		return r, err
	}
	text, err := a.run(ctx, append(append([]string{a.GoPump, args[0], a.host, strconv.Itoa(port)}, args[1:]...), client...)...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("gopump printed what is no result: %w: %s", err, last(text))
	}
	return r, nil
}

// plainPeer does n round trips with a server that never takes a lane.
func plainPeer(ctx context.Context, a *arena, n int) error {
	client := "net"
	if a.client {
		client = "either"
	}
	_, err := a.pump(ctx, []string{"net"}, []string{client}, []string{"exchange", strconv.Itoa(n)})
	return err
}
