// Command gopump is pump (directsockets/preload/pump) in Go: it moves bytes over
// connections of package directsockets, or of package net, and measures how fast.
// Dsbench sends it over the paths of Go programs, so that they can be compared with
// each other and with those of C programs. Both speak one protocol: the client of one
// works with the server of the other.
//
//	gopump serve ADDRESS PORT               says "ready PORT" and serves until it is killed
//	gopump stream ADDRESS PORT SECONDS      bytes as fast as they go
//	gopump pingpong ADDRESS PORT SECONDS    messages and their echoes, one after the other
//	gopump requests ADDRESS PORT SECONDS    the same on many connections at a time
//	gopump connect ADDRESS PORT SECONDS     connections, each for one round trip
//	gopump many ADDRESS PORT SECONDS        round trips on many connections in turn
//	gopump exchange ADDRESS PORT N          N round trips, and no more calls than they need
//
// After that there may be
//
//	net        by package net; "either": by directsockets, on a lane or not. Else
//	           nothing is counted before all bytes go by lanes, and it fails if they do not
//	size=N     bytes of a write, or of a message (131072, 64; of requests 1024)
//	streams=N  so many connections at a time (1; of requests 1000)
//	memory=N   bytes of memory, a multiple of size, that a stream comes out of and goes
//	           into, one write behind the other; else one place that is hot. Nothing of the
//	           first 256 MiB counts: they touch memory that is new
//	buffer     that memory is registered with the peer: a directsockets.Buffer
//	busy=N     so many of those of requests are used, the last ones; the others are open (all)
//	rate=N     messages a second; else one follows the other
//	pause=US   so long after each message
//	rounds=N   messages on each connection of connect (1)
//	check      compare every byte; else the first and the last of each read
//	split      of pingpong: also say how long writing takes, and waiting for the answer
//	json       ignored: what is known is always said as a JSON object
//
// A first tenth of the time does not count. A stream counts until its receiver has
// answered that it has read all. Bytes that are wrong, missing or too many end the
// program with 1.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/directsockets"
)

const (
	chunk   = 128 << 10 // what iperf3 writes at a time
	ping    = 64
	request = 1 << 10
	many    = 1000      // requests at a time
	largest = 16 << 20  // of a write, without memory of its own
	room    = 1 << 30   // of memory that a stream goes through
	warm    = 256 << 20 // bytes of such a stream before it counts
)

// A pump is what the command line asks for.
type pump struct {
	mode, address string
	amount        float64 // seconds, or round trips
	with          string  // "net", "either", or "" for lanes
	size, streams int
	memory        int // of a stream; 0: it begins anywhere in pattern
	buffer        bool
	busy          int // of streams; 0: all
	rate          float64
	pause         time.Duration // after each message
	rounds        int           // of each connection of connect
	check         bool
	split         bool
}

// A result is what a client prints. The CPU time is of both sides, in ns.
type result struct {
	Rate      float64            `json:"rate"` // bytes, messages or connections a second
	Bytes     int64              `json:"bytes"`
	CPU       time.Duration      `json:"cpu"`
	Histogram *measure.Histogram `json:"histogram"`

	// Of all messages, with split: the time in calls of Write, and from then to the answers.
	Writing time.Duration `json:"writing,omitempty"`
	Waiting time.Duration `json:"waiting,omitempty"`
}

var errUsage = errors.New("usage: gopump serve|stream|pingpong|requests|connect|many|exchange ADDRESS PORT [AMOUNT] [net|either] [size=N] [memory=N] [buffer] [streams=N] [busy=N] [rate=N] [pause=US] [rounds=N] [check] [split] [json]")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gopump:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	if p.mode == "serve" {
		return p.serve()
	}
	do := map[string]func(*pump) (result, error){
		"stream": (*pump).stream, "pingpong": (*pump).pingpong, "requests": (*pump).requests, "connect": (*pump).connect, "exchange": (*pump).exchanges,
		"many": (*pump).many,
	}[p.mode]
	if do == nil {
		return errUsage
	}
	r, err := do(p)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if p.mode == "many" {
		return step("done")
	}
	return nil
}

func parse(args []string) (*pump, error) {
	if len(args) < 3 {
		return nil, errUsage
	}
	p := &pump{mode: args[0], address: net.JoinHostPort(args[1], args[2]), amount: 1, size: ping, streams: 1, rounds: 1}
	switch p.mode {
	case "stream":
		p.size = chunk
	case "requests":
		p.size, p.streams = request, many
	}
	for i, arg := range args[3:] {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		switch {
		case name == "net" || name == "either":
			p.with = name
		case name == "size":
			p.size, err = strconv.Atoi(value)
		case name == "memory":
			p.memory, err = strconv.Atoi(value)
		case name == "streams":
			p.streams, err = strconv.Atoi(value)
		case name == "busy":
			p.busy, err = strconv.Atoi(value)
		case name == "rate":
			p.rate, err = strconv.ParseFloat(value, 64)
		case name == "pause":
			var us float64
			us, err = strconv.ParseFloat(value, 64)
			p.pause = time.Duration(us * 1e3)
		case name == "rounds":
			p.rounds, err = strconv.Atoi(value)
		case name == "buffer":
			p.buffer = true
		case name == "check":
			p.check = true
		case name == "split":
			p.split = true
		case name == "json":
		case i == 0:
			p.amount, err = strconv.ParseFloat(arg, 64)
		default:
			err = errUsage
		}
		if err != nil {
			return nil, errUsage
		}
	}
	if !fits(p.size, p.memory) || p.memory > 0 && p.mode != "stream" || p.buffer && (p.memory == 0 || p.with != "") || p.streams < 1 || p.amount <= 0 || p.rate < 0 || p.pause < 0 || p.rounds < 1 || p.busy < 0 || p.busy > p.streams {
		return nil, errUsage
	}
	return p, nil
}

// listen and dial are of the package that is asked for.
func (p *pump) listen() (net.Listener, error) {
	if p.with == "net" {
		return net.Listen("tcp", p.address)
	}
	return directsockets.Listen("tcp", p.address)
}

func (p *pump) dial() (net.Conn, error) {
	if p.with == "net" {
		return net.Dial("tcp", p.address)
	}
	return directsockets.Dial("tcp", p.address)
}

// used is the CPU time of this process.
func used() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // there is one
	return time.Duration(t.Nano())
}
