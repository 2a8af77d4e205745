package comparison

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/test/built"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func quick(t *testing.T) *Plan {
	return &Plan{Quick: true, Runs: 5, Pump: built.Path(t, "pump"), CPUs: [2]int{measure.AnyCPU, measure.AnyCPU}}
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
		if at > 10*message {
			chunk[len(chunk)-message] ^= 1 // its number
		}
		return asItIs(to, chunk, at)
	}
	if _, _, err := spoiled(t, quick(t), mirror).run(t.Context(), loadOf(t, "rr"), message); err == nil || !strings.Contains(err.Error(), "wrong data") {
		t.Errorf("an answer to another message: %v", err)
	}
	for _, l := range []string{"stream", "rr", "rr-paced", "crr"} {
		o, _, err := spoiled(t, quick(t), asItIs).run(t.Context(), loadOf(t, l), message)
		if err != nil || o.Rate <= 0 {
			t.Errorf("%s that nobody spoils: %+v, %v", l, o, err)
		}
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

// A path that is slowed down is reported as slower, and what compares reports says so.
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
			fast, slow := rows(t, p, spoiled(t, p, asItIs), name), rows(t, p, spoiled(t, p, slowed), name)
			c := report.Compare(&fast, &slow)
			if ch := c.Changes[0]; ch.Verdict != report.Worse {
				t.Errorf("over a path that waits some ms each time it is %s: %+v", ch.Verdict, ch)
			}
			if c := report.Compare(&slow, &fast); c.Changes[0].Verdict != report.Better {
				t.Errorf("without that wait it is %s", c.Changes[0].Verdict)
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
	for _, row := range b.report.Rows {
		if len(row.Runs) < 2 || len(row.Runs) > 3 || row.Path != reference && len(row.ReferenceRuns) != len(row.Runs) {
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
		{Plan{Runs: 1, Paths: []string{"exn1"}}, "no such path: \"exn1\"; there are tcp, unix"},
		{Plan{}, "ask for 1 or more"},
	} {
		if err := c.plan.Check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v instead of %q", c.plan, err, c.want)
		}
	}
}
