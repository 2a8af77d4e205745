package comparison

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/directsockets/launch"
	"exnet/test/built"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func quick(t *testing.T) *Plan {
	return &Plan{Quick: true, Runs: 5, Pump: built.Path(t, "pump"), GoPump: built.Path(t, "gopump"), CPUs: [2]int{measure.AnyCPU, measure.AnyCPU}}
}

func loadOf(t *testing.T, name string) load {
	t.Helper()
	for _, l := range loads(false) {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("no load %s", name)
	return load{}
}

// spoiled is loopback with a program in between that does something to what passes from
// the client to the server.
func spoiled(t *testing.T, p *Plan, spoil func(to io.Writer, chunk []byte, at int) error) *pumped {
	return &pumped{plan: p, address: loopback, between: func(port string) (string, func(), error) {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return "", nil, err
		}
		var pumps sync.WaitGroup
		pumps.Go(func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return // the test is over
				}
				server, err := net.Dial("tcp", net.JoinHostPort(loopback, port))
				if err != nil {
					t.Error(err)
					client.Close()
					return
				}
				pumps.Go(func() {
					defer server.(*net.TCPConn).CloseWrite()
					b := make([]byte, 64<<10)
					for at := 0; ; {
						n, err := client.Read(b)
						if n > 0 {
							err = errors.Join(err, spoil(server, b[:n], at))
							at += n
						}
						if err != nil {
							return
						}
					}
				})
				pumps.Go(func() {
					io.Copy(struct{ io.Writer }{client}, server) // not by splice, whose pipes Go keeps; it ends with one of them
					client.Close()
					server.Close()
				})
			}
		})
		_, ours, _ := net.SplitHostPort(l.Addr().String())
		return ours, func() { l.Close(); pumps.Wait() }, nil
	}}
}

func asItIs(to io.Writer, chunk []byte, _ int) error { _, err := to.Write(chunk); return err }

// Whatever is lost, doubled or changed on the way fails the run.
func TestSpoiledBytesFail(t *testing.T) {
	const somewhere = 3 << 20
	once := func(at, n int) bool { return at <= somewhere && somewhere < at+n }
	for name, spoil := range map[string]func(to io.Writer, chunk []byte, at int) error{
		"changed": func(to io.Writer, chunk []byte, at int) error {
			if once(at, len(chunk)) {
				chunk[somewhere-at] ^= 1
			}
			return asItIs(to, chunk, at)
		},
		"lost": func(to io.Writer, chunk []byte, at int) error {
			if once(at, len(chunk)) {
				chunk = chunk[:len(chunk)-1]
			}
			return asItIs(to, chunk, at)
		},
		"doubled": func(to io.Writer, chunk []byte, at int) error {
			if once(at, len(chunk)) {
				chunk = append(chunk[:len(chunk):len(chunk)], chunk[len(chunk)-1])
			}
			return asItIs(to, chunk, at)
		},
	} {
		p := quick(t)
		p.Verify = true // of what is changed in the middle of a read nothing else tells
		_, _, err := spoiled(t, p, spoil).run(t.Context(), loadOf(t, "stream"), block)
		if err == nil || !strings.Contains(err.Error(), "wrong data") {
			t.Errorf("%s: %v", name, err)
		}
	}
	mirror := func(to io.Writer, chunk []byte, at int) error {
		if at > message { // after the hello and the first
			chunk[len(chunk)-message] ^= 1 // its number
		}
		return asItIs(to, chunk, at)
	}
	if _, _, err := spoiled(t, quick(t), mirror).run(t.Context(), loadOf(t, "rr"), message); err == nil || !strings.Contains(err.Error(), "wrong data") {
		t.Errorf("an answer to another message: %v", err)
	}
	for _, l := range []string{"many", "crr-rounds", "sleep"} {
		if _, _, err := spoiled(t, quick(t), mirror).run(t.Context(), lastOf(t, l), message); err == nil || !strings.Contains(err.Error(), "wrong data") {
			t.Errorf("%s: an answer to another message: %v", l, err)
		}
	}
	for _, l := range []string{"stream", "rr", "rr-paced", "crr", "crr-rounds", "sleep", "many"} {
		o, _, err := spoiled(t, quick(t), asItIs).run(t.Context(), lastOf(t, l), message)
		if err != nil || o.Rate <= 0 {
			t.Errorf("%s that nobody spoils: %+v, %v", l, o, err)
		}
	}
}

// lastOf is the load of a name, of several the last: that of the largest setting.
func lastOf(t *testing.T, name string) (found load) {
	t.Helper()
	for _, l := range loads(true) {
		if l.name == name && l.streams < 1000 { // more take long, and descriptors of this process
			found = l
		}
	}
	if found.name == "" {
		t.Fatalf("no load %s", name)
	}
	return found
}

// A crowd has as many connections as it says, all of them answered, and its CPU time and
// memory are those of the connections.
func TestCrowd(t *testing.T) {
	p := quick(t)
	crowd := lastOf(t, "many")
	crowd.streams = 1000
	run := func(library bool) outcome {
		t.Helper()
		var c carrier = &pumped{plan: p, address: loopback}
		if library {
			var err error
			t.Setenv(launch.LibraryVariable, built.Path(t, "libextds.so"))
			if c, err = preload()(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		defer c.Close()
		o, _, err := c.run(t.Context(), crowd, message)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	plain, lanes := run(false), run(true)
	if plain.Bytes == 0 || plain.CPU == 0 || plain.crowd.idle > plain.CPU {
		t.Errorf("many: %d bytes; idle they use %v, busy %v", plain.Bytes, plain.crowd.idle, plain.CPU)
	}
	const slots = 2 * 64 * 128 // of a lane, both ways: they were written once
	if lanes.crowd.memory-plain.crowd.memory < int64(crowd.streams)*slots/2 {
		t.Errorf("%d idle connections on lanes took %d bytes, on TCP %d: lanes have slots", crowd.streams, lanes.crowd.memory, plain.crowd.memory)
	}
}

// Who is busy when it should be idle is seen.
func TestCrowdSeesWhoIsNotIdle(t *testing.T) {
	cmd := exec.Command("bash", "-c", `echo begun; read x; echo opened; SECONDS=0; while [ $SECONDS -lt 4 ]; do :; done; read x; echo done; read x`)
	crowd, err := newCrowd(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.close()
	if err := cmd.Start(); err != nil {
		t.Skipf("no bash, which is what is busy here: %v", err)
	}
	seen, err := crowd.look([]int{cmd.Process.Pid}, nil, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	crowd.close()
	cmd.Wait() // it has nothing more to read
	if seen.idle < idling/100 || seen.busy == 0 {
		t.Errorf("idle it used %v of %v, busy %v", seen.idle, idling, seen.busy)
	}
}

// A sweep makes a path for each value of a setting, compares them with the reference, and gives
// them back; those of one name differ in the setting only.
func TestSweepOfASetting(t *testing.T) {
	p := quick(t)
	p.Runs, p.Sweep = 2, true
	var made, closed []string
	fake := func(name string) func(context.Context, *Plan) (carrier, error) {
		return func(context.Context, *Plan) (carrier, error) {
			made = append(made, name)
			return closing{counting{new(int), func() {}}, func() { closed = append(closed, name) }}, nil
		}
	}
	brought := varied("MTU", "", []int{1500, 9000}, func(n int) way {
		return way{name: "veth", carries: everything, open: fake(fmt.Sprint("veth ", n))}
	})
	l := load{name: "mtu", sizes: []int{block}, ways: append(brought, way{name: "level", carries: everything, open: fake("level")}),
		read: []reading{{test: "mtu", unit: report.Nanoseconds, value: func(o outcome) float64 { return o.roundTrip }}}}
	b := &bench{Plan: *p, report: &report.Report{}, failed: map[string]bool{}, paths: map[string]carrier{reference: counting{new(int), func() {}}}}
	b.open(t.Context(), p.over(l))
	b.measure(t.Context(), l, block)
	var at []string
	for _, row := range b.report.Rows {
		at = append(at, row.Path+" "+row.At())
		if row.Path != reference && (row.Ratio == nil || *row.Ratio != 1) {
			t.Errorf("%+v is not compared", row)
		}
	}
	if want := "[tcp 128 KiB veth 1500 veth 9000 level 128 KiB]"; fmt.Sprint(at) != want {
		t.Errorf("rows %v instead of %v", at, want)
	}
	for _, w := range p.brought(l) {
		b.end(w.key())
	}
	if want := "[veth 1500 veth 9000 level]"; fmt.Sprint(made) != want || fmt.Sprint(closed) != want {
		t.Errorf("made %v, closed %v instead of %v", made, closed, want)
	}
	if len(b.paths) != 1 || len(b.report.Failures)+len(b.report.Skipped) != 0 {
		t.Errorf("%+v, %+v", b.paths, b.report)
	}
}

// closing is a path that says when it is closed.
type closing struct {
	counting
	f func()
}

func (c closing) Close() error { c.f(); return nil }

// Every load of the figures can run: its way is named, its test has one row for each way and place.
func TestSweepsHaveEachPointOnce(t *testing.T) {
	seen := map[string]bool{}
	p := Plan{Sweep: true}
	for _, l := range p.wanted() {
		for _, size := range l.sizes {
			for _, w := range p.over(l) {
				if w.name == "" || w.open == nil {
					t.Errorf("%s goes over a way that is not there", l.name)
				}
				for _, r := range l.read {
					row := report.Row{Test: r.test, Path: w.name, Size: size, Setting: cmp.Or(w.setting, l.setting)}
					key := fmt.Sprint(row.Test, row.Path, row.Size, row.At())
					if seen[key] {
						t.Errorf("%s is there twice", key)
					}
					seen[key] = true
				}
			}
		}
	}
}

// A side that dies in the middle of a run fails it, and says so; nobody waits for it.
func TestDeadPeerFails(t *testing.T) {
	gone := errors.New("gone")
	for _, name := range []string{"stream", "rr", "many"} {
		_, _, err := spoiled(t, quick(t), func(to io.Writer, chunk []byte, at int) error {
			if at > message {
				return gone
			}
			return asItIs(to, chunk, at)
		}).run(t.Context(), lastOf(t, name), message)
		if err == nil || !strings.Contains(err.Error(), "pump") {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := quick(t)
	broken.Pump = "/bin/false"
	if _, _, err := (&pumped{plan: broken, address: loopback}).run(t.Context(), lastOf(t, "rr"), message); err == nil || !strings.Contains(err.Error(), "before it was ready") {
		t.Errorf("a server that ends at once: %v", err)
	}
}

// Tools of others that measure what is measured here have to agree, or their row says by how
// much they do not; those that measure something else are said to.
func TestToolsHaveToAgree(t *testing.T) {
	l := loadOf(t, "stream")
	b := &bench{report: &report.Report{}, paths: map[string]carrier{}}
	note := func(check bool, theirs float64) string {
		b.paths["tcp-iperf3"] = &tool{check: check}
		both := func(rate float64) *series { return &series{outcomes: []outcome{{Rate: rate}, {Rate: rate}}} }
		row, ok := b.row(wayOf("tcp-iperf3"), l, l.read[0], block, both(theirs), both(100))
		if !ok {
			t.Fatal("no row")
		}
		return row.Note
	}
	for _, c := range []struct {
		check  bool
		theirs float64
		want   string
	}{{true, 100, "agrees within 10 %"}, {true, 91, "agrees"}, {true, 109, "agrees"}, {true, 80, "does not agree: it is 20 %"}, {true, 150, "does not agree: it is 50 %"},
		{false, 400, "not measured by dsbench"}} {
		if got := note(c.check, c.theirs); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v to 100: %q instead of %q", c.theirs, got, c.want)
		}
	}
}

// Medians of 296 and 30 µs do not agree, whatever the ratios run by run; runs that lie far apart say nothing.
func TestCrossCheck(t *testing.T) {
	for _, c := range []struct {
		theirs, ours []float64
		want         string
	}{
		{[]float64{30e3, 30e3, 296e3, 296e3, 296e3}, []float64{30e3, 30e3, 30e3, 296e3, 296e3}, "no cross-check"},
		{[]float64{100, 101, 102}, []float64{100, 100, 100}, "agrees within 10 %"},
		{[]float64{120, 121, 122}, []float64{100, 100, 100}, "does not agree: it is 21 %"},
		{[]float64{100, 100, 100, 116, 116}, []float64{91, 91, 115, 115, 115}, "does not agree"}, // run by run it would
	} {
		row := report.Row{Test: "rr", Path: "tcp-sockperf", Unit: report.Nanoseconds, Runs: c.theirs, ReferenceRuns: c.ours}.Finish()
		if got := crossCheck(row); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v beside %v: %q instead of %q", c.theirs, c.ours, got, c.want)
		}
	}
}

// No path is always the first of a round, and none is left out of one.
func TestRoundsAlternate(t *testing.T) {
	p := quick(t)
	p.Paths, p.Runs = []string{"unix"}, 3
	var order []string
	c := func(name string) carrier {
		return counting{new(int), func() { order = append(order, name) }}
	}
	b := &bench{Plan: *p, report: &report.Report{}, failed: map[string]bool{}, paths: map[string]carrier{reference: c(reference), "unix": c("unix")}}
	b.measure(t.Context(), loadOf(t, "rr"), message)
	// tcp unix, unix tcp, tcp unix; and each once more that was noisy.
	if order = slices.Compact(order); fmt.Sprint(order) != "[tcp unix tcp unix]" || len(b.report.Rows) != 2 || len(b.report.Rows[1].ReferenceRuns) != 3 {
		t.Errorf("%v, %+v", order, b.report.Rows)
	}
}

// rows measures a load over one path, as rows whose path is said to be tcp.
func rows(t *testing.T, p *Plan, c carrier, name string) (r report.Report) {
	t.Helper()
	b := &bench{Plan: *p, report: &r, paths: map[string]carrier{reference: c}, failed: map[string]bool{}}
	b.Paths = []string{reference}
	l := loadOf(t, name)
	b.measure(t.Context(), l, l.sizes[0])
	if len(r.Failures) > 0 || len(r.Rows) == 0 {
		t.Fatalf("%+v", r)
	}
	return r
}

// A path that is slowed down is reported as slower, and what compares reports says so; not
// where a run stood still, which is noticed.
func TestSlowPathIsSlower(t *testing.T) {
	p := quick(t)
	slowed := func(to io.Writer, chunk []byte, at int) error {
		if len(chunk) < 10*message {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Millisecond) // of a stream it has some 100 chunks under way
		return asItIs(to, chunk, at)
	}
	for _, name := range []string{"stream", "rr", "crr"} {
		t.Run(name, func(t *testing.T) {
			var there, back report.Change
			for range 10 {
				fast, slow := rows(t, p, spoiled(t, p, asItIs), name), rows(t, p, spoiled(t, p, slowed), name)
				there, back = report.Compare(&fast, &slow).Changes[0], report.Compare(&slow, &fast).Changes[0]
				if there.Verdict == report.Worse && back.Verdict == report.Better || !there.Noisy {
					break
				}
			}
			if there.Verdict != report.Worse {
				t.Errorf("over a path that waits some ms each time it is %s: %+v", there.Verdict, there)
			}
			if back.Verdict != report.Better {
				t.Errorf("without that wait it is %s", back.Verdict)
			}
		})
	}
}

// A stall is not hidden by the messages that it keeps from being sent: half of the run
// stands still, so half of the messages that were due in it are late.
func TestStallIsNotOmitted(t *testing.T) {
	p := quick(t)
	stalled := false
	c := spoiled(t, p, func(to io.Writer, chunk []byte, at int) error {
		if at > 30*message && !stalled {
			stalled = true
			time.Sleep(60 * time.Millisecond)
		}
		return asItIs(to, chunk, at)
	})
	o, _, err := c.run(t.Context(), loadOf(t, "rr-paced"), message)
	if err != nil {
		t.Fatal(err)
	}
	if p80 := o.Times.Quantile(0.8); p80 < 10e6 {
		t.Errorf("after a stall of more than half of the run 80 %% of the messages took up to %.0f µs", p80/1e3)
	}
}

// What cannot be made is left out with its reason, or fails when it was asked for.
func TestPathsThatAreNotThere(t *testing.T) {
	for asked, want := range map[string]int{"": 0, "exn0": 1} {
		p := quick(t)
		p.Runs, p.Tests = 1, []string{"crr"}
		if asked != "" {
			p.Paths = []string{asked}
		} else {
			p.Paths = []string{"unix"}
		}
		var r report.Report
		if err := p.Run(t.Context(), &r, nil); err != nil {
			t.Fatal(err)
		}
		if len(r.Failures) != want {
			t.Errorf("asked for %q: %+v", asked, r.Failures)
		}
		if i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return row.Path == reference }); i < 0 {
			t.Errorf("asked for %q: no reference in %+v", asked, r.Rows)
		}
	}
}

// Go programs carry all loads by package directsockets, and by lanes where one is worth it.
func TestGoCarriesAll(t *testing.T) {
	c, err := openGo(t.Context(), quick(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, l := range loads(false) {
		if o, _, err := c.run(t.Context(), l, l.sizes[0]); err != nil || o.Rate <= 0 {
			t.Errorf("%s: %+v, %v", l.name, o, err)
		}
	}
}

// Who may not make namespaces is told what would help.
func TestRootless(t *testing.T) {
	open := between(func(*Plan) (*path.Path, error) { return nil, fmt.Errorf("make a namespace: %w", fs.ErrPermission) })
	if _, err := open(t.Context(), &Plan{}); err == nil || !strings.Contains(err.Error(), "needs root") {
		t.Errorf("%v", err)
	}
	if _, err := exn("exn0")(t.Context(), &Plan{}); err == nil || !strings.Contains(err.Error(), "run make") {
		t.Errorf("without exn-tun: %v", err)
	}
}

// An interruption leaves what was measured, marked.
func TestInterrupted(t *testing.T) {
	p := quick(t)
	p.Paths, p.Tests = []string{"unix"}, []string{"rr"}
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	stop := errors.New("enough")
	b := &bench{Plan: *p, report: &report.Report{}, failed: map[string]bool{}, paths: map[string]carrier{
		reference: counting{&calls, func() {}},
		"unix": counting{&calls, func() {
			if calls >= 6 {
				cancel(stop)
			}
		}},
	}}
	b.measure(ctx, loadOf(t, "rr"), message)
	for _, row := range b.report.Rows { // three runs of each, or one where all were noisy and made twice
		if len(row.Runs) < 1 || len(row.Runs) > 3 || row.Path != reference && len(row.ReferenceRuns) != len(row.Runs) {
			t.Errorf("%+v", row)
		}
	}
	if len(b.report.Rows) != 2 || len(b.report.Failures) != 0 {
		t.Errorf("%+v", b.report)
	}
}

// counting is a path that counts its runs.
type counting struct {
	calls *int
	each  func()
}

func (counting) daemons() []int { return nil }
func (counting) Close() error   { return nil }
func (c counting) run(ctx context.Context, _ load, _ int) (outcome, spending, error) {
	*c.calls++
	c.each()
	return outcome{roundTrip: 100}, 0, ctx.Err()
}

func TestPlanChecks(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{Runs: 1, Tests: []string{"stream"}, Paths: []string{"exn0-irq"}}, ""},
		{Plan{Runs: 1, Tests: []string{"stream-4"}}, "no such test"},
		{Plan{Runs: 1, Tests: []string{"stream-4"}, Sweep: true}, ""},
		{Plan{Runs: 1, Paths: []string{"ds-velo"}, Sweep: true}, ""},
		{Plan{Runs: 1, Paths: []string{"ds-velo"}}, "no such path"},
		{Plan{Runs: 1, Paths: []string{"exn1"}}, "no such path: \"exn1\"; there are tcp, unix"},
		{Plan{}, "ask for 1 or more"},
	} {
		if err := c.plan.Check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v instead of %q", c.plan, err, c.want)
		}
	}
}
