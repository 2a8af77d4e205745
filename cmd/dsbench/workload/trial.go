package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/internal/debroot"
)

// The tests of which there are trials.
const (
	RedisRequests = "redis-get"     // requests a second of redis, 50 clients
	RedisLone     = "redis-get-one" // likewise, one client
	PumpRequests  = "pump-many"     // the same with our own program, which needs no package
	PumpLone      = "pump-one"
)

// A Trial is one test of a plan that is run one run at a time: for those who decide as they go
// how many they want, and over which way.
type Trial struct {
	bench *bench
	test  *test
	count map[Way]int // operations of a run
}

// A Way is how the two programs of a trial reach each other.
type Way struct {
	Library bool       // both have it
	Path    *path.Path // between namespaces; nil: over loopback
}

// A Figure is what one run of a trial gave.
type Figure struct {
	Rate  float64       // operations a second
	CPU   time.Duration // of all its programs, for one operation
	Lanes bool          // a connection was seen in shared memory

	measure.Disturbance
}

// Trial prepares one of the tests above. Its programs are those of PATH if all are there, else
// they come from packages; that may take until ctx ends.
func (p Plan) Trial(ctx context.Context, name string) (*Trial, error) {
	p.Tests, p.Group = []string{name}, Programs
	if name == PumpRequests || name == PumpLone {
		p.Group = pumps
	}
	for _, t := range p.tests() {
		if t.name != name {
			continue // of its family
		}
		tr := &Trial{bench: &bench{Plan: p}, test: &t, count: map[Way]int{}}
		if len(t.packages) == 0 || inPath("redis-server", "redis-benchmark") {
			return tr, nil
		}
		var err error
		tr.bench.root, err = debroot.Open(ctx, t.packages...)
		return tr, err
	}
	return nil, fmt.Errorf("workload: no trial of %q", name)
}

func inPath(programs ...string) bool {
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}

// Version is the version that the server says it has, "" if it does not say.
func (tr *Trial) Version(ctx context.Context) string {
	if tr.bench.Group != Programs {
		return ""
	}
	cmd := exec.CommandContext(ctx, "redis-server", "--version")
	if tr.bench.root != nil {
		cmd = tr.bench.root.Command(ctx, "redis-server", "--version")
	}
	out, _ := cmd.Output() // without a version the figures are as good
	if m := regexp.MustCompile(`v=(\S+)`).FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return ""
}

// Run makes one run of about length, with a new server and a new client. The first over a way is
// preceded by short ones, which find out how many operations that is.
func (tr *Trial) Run(ctx context.Context, over Way, length time.Duration) (f Figure, err error) {
	w := way{library: over.Library, path: over.Path}
	if tr.test.counted && tr.count[over] == 0 {
		if tr.count[over], err = tr.calibrate(ctx, w, length); err != nil {
			return f, err
		}
	}
	var daemons []int
	if over.Path != nil {
		daemons = over.Path.Daemons
	}
	n := tr.count[over]
	f.Disturbance, err = tr.bench.quiet.Once(daemons, func() (used time.Duration, err error) {
		o, seen, err := tr.bench.one(ctx, tr.test, w, n)
		if err != nil {
			return 0, err
		}
		f.Rate, f.Lanes = o.rate, seen
		done := float64(n)
		if o.done > 0 {
			done = o.done
		}
		f.CPU = time.Duration(float64(o.cpu) / max(1, done))
		return o.cpu, nil
	})
	if over.Path != nil && err != nil && ctx.Err() == nil {
		if broken := over.Path.Broken(); broken != nil {
			err = broken // which is why
		}
	}
	return f, err
}

// calibrate finds how many operations take about length.
func (tr *Trial) calibrate(ctx context.Context, w way, length time.Duration) (n int, err error) {
	const first, most = 2000, 3
	n = first
	for range most {
		o, _, err := tr.bench.one(ctx, tr.test, w, n)
		if err != nil {
			return 0, err
		}
		want := int(o.rate * length.Seconds())
		if want <= 2*n {
			return max(want, first), nil
		}
		n = want
	}
	return n, nil
}

// pumps is the group of the program pump, for trials only.
const pumps Group = "pump"

func (p Plan) pumpTests() []test {
	return []test{
		{name: PumpRequests, upgrades: true, run: pumpRequests(50)},
		{name: PumpLone, upgrades: true, run: pumpRequests(1)},
	}
}

// pumpRequests has connections ask a pump for echoes, each as soon as it has the one before.
func pumpRequests(connections int) func(context.Context, *arena, int) (outcome, error) {
	const size = 64
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		port := freePort()
		if _, err := a.serve(ctx, port, a.Pump, "serve", a.host, fmt.Sprint(port)); err != nil {
			return o, err
		}
		// At each stage it waits for a line, for those who look at it meanwhile.
		const goOn = `printf '\n\n\n\n' | "$0" "$@"`
		text, err := a.run(ctx, "sh", "-c", goOn, a.Pump, "many", a.host, fmt.Sprint(port), fmt.Sprint(a.seconds()),
			fmt.Sprint("streams=", connections), fmt.Sprint("size=", size), "json")
		if err != nil {
			return o, err
		}
		for line := range strings.Lines(string(text)) { // it also says how far it is
			var said struct{ Rate, Bytes float64 }
			if json.Unmarshal([]byte(line), &said) == nil && said.Rate > 0 {
				return outcome{value: said.Rate, rate: said.Rate, done: said.Bytes / size}, nil
			}
		}
		return o, errors.New("pump printed no result: " + last(text))
	}
}

// Recount has the trial find out anew how many operations a run is, after its ways have changed.
func (tr *Trial) Recount() { clear(tr.count) }
