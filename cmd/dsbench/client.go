package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// defaultPort is that of --port, here and at the server.
const defaultPort = 5210

// clientCommand is `dsbench client`.
type clientCommand struct {
	Host string `arg:"" help:"The host on which dsbench server runs, as HOST or HOST:PORT."`
	output
	Port    int     `short:"p" default:"5210" placeholder:"N" help:"The port of the server (default: 5210)."`
	Time    float64 `short:"t" default:"10" placeholder:"SECONDS" help:"How many seconds a run is measured (default: 10)."`
	Number  amount  `short:"n" placeholder:"N[KMG]" help:"Send this many bytes in each stream, or make this many round trips, instead of measuring for a time."`
	Length  amount  `short:"l" placeholder:"N[KMG]" help:"How many bytes a write, a message or a datagram has (defaults: 128K, 64 and 1400)."`
	Streams int     `short:"P" default:"1" placeholder:"N" help:"How many streams there are at a time (default: 1)."`
	Reverse bool    `short:"R" help:"The server sends."`
	Bidir   bool    `help:"Both send, with the same number of streams each way."`
	RR      bool    `name:"rr" xor:"load" help:"Measure round trips: messages and their echoes, one after the other."`
	CRR     bool    `name:"crr" xor:"load" help:"Measure round trips, each over a new connection."`
	UDP     bool    `name:"udp" xor:"load" help:"Measure UDP datagrams, sent as fast as possible."`
	DS      bool    `name:"ds" help:"Use EXT-DS (package directsockets), and report how many connections moved to shared memory."`
	Require bool    `help:"With --ds: fail, with exit code 1, if a connection stayed on TCP."`
	fabricFlag
	Verify bool `help:"Verify every byte that arrives, as a program that uses its data would touch it, and not only the ends of each read."`
	Runs   int  `default:"1" placeholder:"N" help:"How many runs to make (default: 1)."`
}

// Help is the long text of --help.
func (*clientCommand) Help() string {
	return "Measures TCP streams, unless --rr, --crr or --udp asks for something else. Client and server use plain sockets of the kernel, as iperf3 does, so that they can measure any two hosts and " +
		"any interface. Each second a line shows the rate, except with --json. With --runs above 1 the result is a median and a spread.\n\n" +
		"With --ds both use package directsockets: a busy connection moves to shared memory if server and client are on one host and use one fabric " +
		"directory. The report says how many connections moved, how many bytes went each way, and why the others stayed on TCP; standard error warns of those. If all stayed, the path in the report is " + onTCP + ". Connections of --crr are too short to move.\n\n" +
		"The server chooses the port that the measured data goes to; its --data fixes one. A run is noisy if the processor of either side was slower than it can be. It is then repeated once, and marked if that run is noisy, too.\n\n" + exitHelp
}

// fabricFlag is that of commands whose connections may be those of EXT-DS.
type fabricFlag struct {
	Fabric string `placeholder:"DIR" help:"The fabric directory for --ds (default: EXN_FABRIC, else that of the user)."`
}

// The paths of rows of --ds: where bytes went by lanes, and where none did, as they
// are not to be taken for each other in a comparison.
const (
	onLanes = "ds-go"
	onTCP   = "ds-go-on-tcp"
)

// An amount is a number with a unit of 1024: 128K.
type amount int64

// UnmarshalText reads it.
func (a *amount) UnmarshalText(text []byte) error {
	number, shift := string(text), 0
	for i, unit := range []string{"K", "M", "G", "T"} {
		if n, found := strings.CutSuffix(strings.ToUpper(number), unit); found {
			number, shift = n, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is no amount; write one like 1500, 128K or 2M", text)
	}
	*a = amount(n << shift)
	return nil
}

// session is what a client does; it is a plan.
type session struct {
	clientCommand
	load   string // contender
	params measure.Params
	row    report.Row // what is known beforehand
	value  func(measure.Result) float64

	seconds    io.Writer // for a line each second; nil: none
	serverSays string    // of connections that stayed on TCP
}

// throughput is what both sides received, in bits per second.
func throughput(r measure.Result) float64 { return 8 * (r.Lead.Rate + r.Follow.Rate) }

// session checks the options and says what they come to.
func (c *clientCommand) session() (*session, error) {
	s := &session{clientCommand: *c}
	size := int(c.Length)
	other := c.RR || c.CRR || c.UDP
	fallback := func(n int) {
		if size == 0 {
			size = n
		}
	}
	if _, err := c.address(); err != nil {
		return nil, err
	}
	switch {
	case !(c.Time >= 0.01 && c.Time <= 86400):
		return nil, fmt.Errorf("-t %v: choose from 0.01 seconds to 86400, which is a day", c.Time)
	case c.Port < 1 || c.Port > 65535:
		return nil, fmt.Errorf("--port %d: choose 1 to 65535", c.Port)
	case c.Streams < 1 || c.Streams > mostStreams:
		return nil, fmt.Errorf("-P %d: choose 1 to %d streams", c.Streams, mostStreams)
	case c.Length > mostBytes:
		return nil, fmt.Errorf("-l %d: choose at most %d bytes", c.Length, mostBytes)
	case c.Runs < 1:
		return nil, fmt.Errorf("--runs %d: choose 1 or more", c.Runs)
	case c.Reverse && c.Bidir:
		return nil, errors.New("-R and --bidir exclude each other: with --bidir both sides send already")
	case other && (c.Streams > 1 || c.Reverse || c.Bidir):
		return nil, errors.New("-P, -R and --bidir are for streams: leave them out, or --rr, --crr or --udp")
	case c.UDP && c.DS:
		return nil, errors.New("--udp and --ds exclude each other: EXT-DS moves TCP connections only")
	case c.Require && !c.DS:
		return nil, errors.New("--require needs --ds: without it all connections are on TCP")
	case c.UDP && c.Number > 0:
		return nil, errors.New("-n does not work with --udp, because datagrams can be lost: use -t")
	}
	const numbered = 8 // bytes that begin with a number
	s.row = report.Row{Path: "tcp", Unit: report.BitsPerSecond}
	s.value = throughput
	switch {
	case c.RR:
		fallback(64)
		s.load = "traffic/pingpong"
		s.row.Test, s.row.Unit, s.row.What = "rr", report.Nanoseconds, "half of a round trip over one connection, one message after the other, median"
		s.value = func(r measure.Result) float64 { return r.Lead.Times.Quantile(0.5) / 2 }
	case c.CRR:
		fallback(64)
		s.load = "traffic/connect"
		s.row.Test, s.row.Unit, s.row.What = "crr", report.ConnectionsPS, "connections a second, one after the other, each for one round trip"
		s.value = func(r measure.Result) float64 { return r.Lead.Rate }
	case c.UDP:
		fallback(1400)
		s.load = "traffic/datagrams"
		s.row.Test, s.row.Path, s.row.What = "datagrams", "udp", "what arrives of datagrams that are sent as fast as possible"
	default:
		fallback(128 << 10)
		s.load = "traffic/stream"
		s.row.Test, s.row.What = "stream", "what is received of "+strconv.Itoa(c.Streams)+" TCP streams at a time"
		if c.Streams > 1 {
			s.row.Test += "-" + strconv.Itoa(c.Streams)
		}
		if c.Reverse {
			s.row.Test, s.row.What = s.row.Test+"-reverse", s.row.What+", sent by the server"
		}
		if c.Bidir {
			s.row.Test, s.row.What = s.row.Test+"-bidir", s.row.What+" each way, the sum of both"
		}
	}
	if (c.CRR || c.UDP) && size < numbered {
		return nil, fmt.Errorf("-l %d: choose at least %d bytes, for each message carries a number", size, numbered)
	}
	const longest = 65507 // of UDP over IPv4
	if c.UDP && size > longest {
		return nil, fmt.Errorf("-l %d: choose at most %d bytes, the longest datagram of UDP", size, longest)
	}
	if c.DS {
		s.row.Path, s.load = onTCP, strings.Replace(s.load, "/", "/ds-", 1) // until a byte goes by a lane
	}
	s.row.Size = size
	s.params = measure.Params{Size: size, Streams: c.Streams, Both: c.Bidir, Reverse: c.Reverse, Limit: int64(c.Number), Verify: c.Verify, Astray: true}
	return s, nil
}

// Run measures and prints.
func (c *clientCommand) Run(in *invocation) error {
	s, err := c.session()
	if err != nil {
		return usageError{err}
	}
	if !c.JSON {
		s.seconds = in.stdout
	}
	err = c.run(in, s, nil, false)
	if l := s.row.Lanes; l != nil && l.Upgraded < l.Connections {
		fmt.Fprintf(in.stderr, "dsbench: warning: not all connections left TCP: %v%s\n", l, s.serverSays)
	}
	return err
}

// length is that of a run. With a number of bytes it is as long as it takes.
func (s *session) length() time.Duration {
	if s.Number > 0 {
		return 24 * time.Hour
	}
	return time.Duration(s.Time * float64(time.Second))
}

// Takes is about how long the session takes.
func (s *session) Takes() time.Duration {
	return time.Duration(float64(s.Runs) * s.Time * 1.1 * float64(time.Second))
}

// Run makes the runs.
func (s *session) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	err := s.measure(ctx, progress)
	if len(s.row.Runs) > 0 {
		r.Rows = append(r.Rows, s.row.Finish())
	}
	if ctx.Err() != nil {
		r.Partial = true
		return context.Cause(ctx)
	}
	if err == nil && s.Require && s.row.Lanes.Upgraded < s.row.Lanes.Connections {
		err = fmt.Errorf("--require: %v", s.row.Lanes)
	}
	if err != nil {
		r.Fail(s.row.Test, err)
	}
	return nil
}

// address is where the server answers. Whoever writes HOST:PORT, as for other programs, means that port.
func (c *clientCommand) address() (string, error) {
	host, port, err := net.SplitHostPort(c.Host)
	if err != nil { // a host alone, or an address of IPv6
		return net.JoinHostPort(strings.Trim(c.Host, "[]"), strconv.Itoa(c.Port)), nil
	}
	if c.Port != defaultPort && port != strconv.Itoa(c.Port) {
		return "", fmt.Errorf("%s and --port %d name two ports: leave one out", c.Host, c.Port)
	}
	return net.JoinHostPort(host, port), nil
}

func (s *session) measure(ctx context.Context, progress *report.Progress) error {
	address, err := s.address()
	if err != nil {
		return err
	}
	progress.Doing("connecting to " + address)
	dialer := net.Dialer{Timeout: 10 * time.Second}
	control, err := dialer.DialContext(ctx, "tcp", address)
	if dns := new(net.DNSError); errors.As(err, &dns) {
		return fmt.Errorf("no such host: %w; check the name, or give an address", err)
	}
	if err != nil {
		return fmt.Errorf("%w; is dsbench server running there?", err)
	}
	if err := keepAlive(control); err != nil {
		control.Close()
		return err
	}
	contenders, err := sessionContenders(measure.Lead, control, 0, s.Fabric)
	if err != nil {
		control.Close()
		return err
	}
	duo := measure.Remote(control, contenders)
	defer duo.Close()
	defer context.AfterFunc(ctx, duo.Close)()
	duo.Patience = s.length() + s.length()/10 + time.Minute // the warm-up, and what is under way
	entry, err := duo.Prepare(ctx, s.load, s.params)
	if err != nil {
		return err
	}
	var times measure.Histogram
	for range s.Runs {
		progress.Doing(s.row.Test + " to " + s.Host)
		if s.seconds != nil {
			progress.End() // its line is where ours come
		}
		result, err := quietly(func() (measure.Result, error) {
			defer s.tell(ctx, s.seconds, duo.Lead, interval)()
			return entry.Run(ctx, int(s.length().Milliseconds()))
		})
		if err != nil {
			return err
		}
		if result.Noisy() {
			s.row.Disturbed++
		}
		s.row.Runs = append(s.row.Runs, s.value(result))
		if t := result.Lead.Times; t != nil && s.RR {
			times.Merge(t)
			s.row.Percentiles = report.PercentilesOf(&times, 0.5)
		}
		if l := result.Lead.Lanes; l != nil {
			if s.row.Lanes == nil {
				s.row.Lanes = new(measure.Lanes)
			}
			s.row.Lanes.Merge(l)
			if f := result.Follow.Lanes; f != nil && f.Reason() != "" && f.Reason() != l.Reason() {
				s.serverSays = "; the server says: " + f.Reason()
			}
			if s.row.Lanes.LaneBytes > 0 {
				s.row.Path = onLanes
			}
		}
		s.row.Note = note(result)
		if s.row.Lanes != nil {
			s.row.Note += "; " + s.row.Lanes.String()
		}
		progress.Done(s.Takes() / time.Duration(s.Runs))
	}
	return nil
}

// quietly makes a run, and once more if it was noisy.
func quietly(run func() (measure.Result, error)) (measure.Result, error) {
	r, err := run()
	if err == nil && r.Noisy() {
		r, err = run()
	}
	return r, err
}

// note is what else there is to know of a run.
func note(r measure.Result) string {
	busy := func(s measure.Sample) float64 {
		if s.CPU > 0 { // of all its threads
			return 100 * s.CPU
		}
		return 100 * float64(s.OnCPU) / float64(max(1, s.Elapsed))
	}
	text := fmt.Sprintf("of one CPU %.0f %% here, %.0f %% at the server", busy(r.Lead), busy(r.Follow))
	if f := r.Follow; f.Count > 0 {
		text += fmt.Sprintf("; %d of %d datagrams lost (%.2f %%)", f.Lost, f.Lost+f.Count, 100*float64(f.Lost)/float64(f.Lost+f.Count))
	}
	return text
}
