package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/directsockets/status"
	"exnet/internal/debroot"
)

// A Group is the tests of one command.
type Group string

// The groups.
const (
	Library  Group = "ds"
	Go       Group = "ds-go"
	Programs Group = "apps"
	Peers    Group = "peers" // for [Plan.Once]
)

// A Plan is what to measure and how.
type Plan struct {
	Group   Group
	Library string   // path of libextds.so, unless the group is Go
	GoPump  string   // path of gopump, if it is
	Tests   []string // which; none: all
	Runs    int      // pairs of runs of a test, at least
	Quick   bool     // shorter runs
	CPUs    [2]int   // for what is pinned
	Daemon  string   // path of exn-tun; "": there is none
	Pump    string   // of pump
	Ways    []string // beside plain TCP; none: all
}

// A test is one row to come.
type test struct {
	name     string
	size     int
	unit     report.Unit
	what     string // what the value is
	target   *report.Target
	packages []string
	pairs    int  // at least so many, whatever the plan says
	upgrades bool // connections have to be on lanes, or the row says so
	abroad   bool // also between namespaces

	announces bool   // those with the library have to announce writes, or the row says so
	against   string // with what it is compared; "": as the group

	// prepare makes what all runs share, in the bench's directory.
	prepare func(ctx context.Context, b *bench) error

	// run does about n operations of a workload, or what takes a second if n is
	// 0, and gives the value. Counted says that it wants an n; stores, that the server
	// keeps more with each operation, so that all sides have to have the same n.
	run     func(ctx context.Context, a *arena, n int) (outcome, error)
	counted bool
	stores  bool
	most    int // that n is; 0: any

	// longer is how many times as long as others its runs take, if not once: a new server of PostgreSQL,
	// say, first reads its tables, and each of its processes maps them.
	longer int

	// alone measures what has no reference run: the whole row.
	alone func(ctx context.Context, b *bench, t *test, row *report.Row) error
}

// portsOfServer is fewer than the ports that connections to one server come from, of which each is
// kept for a second after its end: who needs more waits for that.
const portsOfServer = 25_000

// An outcome is the value of a run, how many operations it did a second, and the CPU
// time of its programs. A run that goes by time says how many it did.
type outcome struct {
	value, rate, done float64
	cpu               time.Duration
}

// path is the way that the rows are about, and against what it is compared with.
func (g Group) path() (path, against string) {
	if g == Go {
		return "go", "package net over loopback, the same program"
	}
	return preload, "kernel TCP over loopback, the same programs"
}

// A way is how the programs of a run reach each other.
type way struct {
	name    string
	library bool       // they have it
	path    *path.Path // between namespaces; nil: loopback
}

const loopback = "127.0.0.1"

// The names of the ways beside plain TCP over loopback.
const (
	reference     = ""
	preload       = "preload"
	exn0          = "exn0"         // plain TCP between namespaces
	exn0Preload   = "exn0-preload" // there with the library
	bridge        = "bridge"       // both, as containers have it
	bridgePreload = "bridge-preload"
)

// farWays are those between namespaces, in the order in which they are measured.
var farWays = []string{exn0, exn0Preload, bridge, bridgePreload}

func abroad(way string) bool { return slices.Contains(farWays, way) }

// asked are those that are measured only if they are named.
func asked(way string) bool { return abroad(way) && way != exn0 }

// Tests are the names of a group's tests in the order they are run.
func Tests(g Group) []string {
	var names []string
	for _, t := range (Plan{Group: g}).tests() {
		if !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	for _, name := range p.Ways {
		if name != preload && !abroad(name) {
			return fmt.Errorf("no such path: %q; there are %s, %s", name, preload, strings.Join(farWays, ", "))
		}
	}
	return measure.CheckChoice(p.Tests, Tests(p.Group), p.Runs)
}

func (p Plan) tests() []test {
	all := map[Group]func(Plan) []test{Library: Plan.libraryTests, Go: Plan.goTests, Programs: Plan.programTests, Peers: Plan.peerTests, pumps: Plan.pumpTests}[p.Group](p)
	return slices.DeleteFunc(all, func(t test) bool { return !measure.Chosen(p.Tests, t.name) })
}

// seconds is how long a run takes, beside starting the programs.
func (p Plan) seconds() float64 {
	if p.Quick {
		return 0.3
	}
	return 1
}

func (p Plan) secondsOf(t test) float64 { return p.seconds() * float64(max(1, t.longer)) }

// pairs is how many pairs a test needs.
func (p Plan) pairs(t test) int {
	if p.Quick {
		return p.Runs
	}
	return max(p.Runs, t.pairs)
}

// starting is about how long it takes to start and end the programs of a run.
const starting = 700 * time.Millisecond

func (p Plan) takes(t test) time.Duration {
	if t.alone != nil {
		return 10 * time.Second
	}
	return time.Duration(len(p.over(t))*(p.pairs(t)+1)) * p.runTakes(t)
}

func (p Plan) runTakes(t test) time.Duration {
	return starting + time.Duration(p.secondsOf(t)*float64(time.Second))
}

// over are the names of the ways of a test; the reference is first.
func (p Plan) over(t test) []string {
	subject, _ := p.Group.path()
	names := []string{reference}
	for _, name := range append([]string{subject}, farWays...) {
		if (!abroad(name) || t.abroad) && (p.Ways == nil && !asked(name) || slices.Contains(p.Ways, name)) {
			names = append(names, name)
		}
	}
	return names
}

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	for _, t := range p.tests() {
		d += p.takes(t)
	}
	return d
}

// A bench carries a plan out.
type bench struct {
	Plan
	progress *report.Progress
	report   *report.Report
	quiet    measure.Quiet
	paths    map[string]*path.Path
	refused  map[string]bool // paths that cannot be made

	// Of the test that is measured:
	root *debroot.Root // nil: it needs no packages
	dir  string        // of what its runs share; "": nothing
}

// Run measures the plan and adds its rows to r, also those before an error. A
// test that fails is recorded and does not stop the others; the error is that
// of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	b := &bench{Plan: p, report: r, progress: progress, paths: map[string]*path.Path{}, refused: map[string]bool{}}
	defer b.close()
	for _, t := range p.tests() {
		name := strings.TrimSpace(t.name + " " + report.FormatSize(t.size))
		progress.Doing(name)
		apart := measure.CoreToCore(p.CPUs[0], p.CPUs[1])
		rows, err := b.measure(ctx, t)
		if ctx.Err() != nil {
			r.Partial = true
			return context.Cause(ctx)
		}
		if err != nil {
			r.Fail(name, err)
			continue
		}
		for _, row := range rows {
			if len(row.Runs) > 0 {
				row.CoreToCore = apart
				r.Rows = append(r.Rows, row.Finish())
			}
		}
	}
	return nil
}

func (b *bench) close() {
	for name, p := range b.paths {
		if err := p.Close(); err != nil {
			b.report.Fail("closing "+name, err)
		}
	}
}

func (b *bench) measure(ctx context.Context, t test) ([]report.Row, error) {
	var err error
	if b.root = nil; len(t.packages) > 0 {
		if b.root, err = debroot.Open(ctx, t.packages...); err != nil {
			return nil, err
		}
	}
	if t.prepare != nil {
		if b.dir, err = b.private(os.MkdirTemp("", "dsbench-")); err != nil {
			return nil, err
		}
		defer os.RemoveAll(b.dir)
		b.progress.Doing("preparing " + t.name)
		if err := t.prepare(ctx, b); err != nil {
			return nil, err
		}
	}
	if t.alone != nil {
		defer b.progress.Done(b.takes(t))
		path, _ := b.Group.path()
		row := t.row(path)
		err := t.alone(ctx, b, &t, &row)
		return []report.Row{row}, err
	}
	return b.compare(ctx, &t, b.ways(t))
}

// row is the one to come over a way. The targets are for the library.
func (t test) row(over string) report.Row {
	row := report.Row{Test: t.name, Path: over, Size: t.size, Unit: t.unit, What: t.what}
	if !abroad(over) {
		row.Target = t.target
	}
	return row
}

// sign is what its connections have to show.
func (t test) sign(s status.Socket) bool {
	if t.announces {
		return s.ZCopy.Read+s.ZCopy.Written > 0
	}
	return s.ReadsLane || s.WritesLane
}

// ways are those of a test that can be had here.
func (b *bench) ways(t test) (ways []way) {
	for _, name := range b.over(t) {
		w := way{name: name, library: name != reference && name != exn0 && name != bridge}
		if abroad(name) {
			if w.path = b.between(name); w.path == nil {
				continue
			}
		}
		ways = append(ways, w)
	}
	return ways
}

// between is the path between namespaces of a way, made when it is first wanted; nil if that is
// not possible.
func (b *bench) between(name string) *path.Path {
	name = strings.TrimSuffix(name, "-"+preload)
	if b.paths[name] == nil && !b.refused[name] {
		err := errors.New("no program exn-tun beside this one or in PATH: run make, or give its path with --daemon")
		var made *path.Path
		switch {
		case b.Daemon == "":
		case name == exn0:
			made, err = path.ExnFor(b.Daemon, name, nobody)
		default:
			made, err = path.Bridge(b.Daemon, nobody)
		}
		if err == nil {
			b.paths[name] = made
			return made
		}
		if errors.Is(err, fs.ErrPermission) && !errors.As(err, new(path.NoNamespace)) {
			err = fmt.Errorf("needs root, for network namespaces: run it with sudo (%w)", err)
		}
		b.refused[name] = true
		b.report.Skip(name, err)
	}
	return b.paths[name]
}

// private lets programs get at a new directory that run as another user.
func (b *bench) private(dir string, err error) (string, error) {
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		return "", fmt.Errorf("make a private directory: %w", err)
	}
	return dir, nil
}

// compare makes the rounds of runs, one over each way; the first is the reference. A way that fails
// fails the test, but for those abroad, which are left out with the reason.
func (b *bench) compare(ctx context.Context, t *test, ways []way) ([]report.Row, error) {
	rows := make([]report.Row, len(ways))
	n := make([]int, len(ways)) // operations of a run
	lost := make([]bool, len(ways))
	astray := make([]int, len(ways))
	for i, w := range ways {
		rows[i] = t.row(w.name)
		rows[i].Against = t.against
		if t.against == "" {
			_, rows[i].Against = b.Group.path()
		}
	}
	if t.counted {
		for i, w := range ways {
			var err error
			if n[i], err = b.count(ctx, t, w); err != nil {
				return nil, err
			}
			if t.stores {
				n[i] = n[0]
			}
			b.progress.Done(b.runTakes(*t))
		}
	}
	var reference, apart []float64
	for range b.pairs(*t) {
		apart = append(apart, measure.CoreToCore(b.CPUs[0], b.CPUs[1]))
		for i, w := range ways {
			if lost[i] {
				continue
			}
			o, seen, noisy, err := b.quietly(ctx, t, w, n[i])
			if err != nil && w.path != nil && ctx.Err() == nil {
				lost[i] = true
				b.report.Fail(t.name+" "+w.name, err)
				continue
			}
			if err != nil {
				return nil, err
			}
			if noisy {
				rows[i].Disturbed++
			}
			if i == 0 {
				reference = append(reference, o.value)
			} else {
				rows[i].Runs = append(rows[i].Runs, o.value)
			}
			if (t.upgrades || t.announces) && w.library && !seen {
				astray[i]++
			}
			b.progress.Done(b.runTakes(*t))
		}
	}
	for i := range rows {
		rows[i].ReferenceRuns = reference[:len(rows[i].Runs)]
		rows[i].CoresToCores = apart[:len(rows[i].Runs)]
		if astray[i] > 0 {
			what := "no connection was seen on a lane"
			if t.announces {
				what = "no byte was seen to be copied by its reader"
			}
			rows[i].Note = fmt.Sprintf("in %d of %d runs with the library %s", astray[i], len(rows[i].Runs), what)
		}
		rows[i].Disturbed = min(len(rows[i].Runs), max(rows[i].Disturbed, rows[0].Disturbed))
	}
	return rows[1:], nil
}

// count finds how many operations take about as long as a run is to take.
func (b *bench) count(ctx context.Context, t *test, w way) (n int, err error) {
	n = 1000
	for range 5 { // each time nearer to the length of a run; a slow one does not make it shorter
		o, _, err := b.one(ctx, t, w, n)
		if err != nil {
			return 0, err
		}
		want := min(int(o.rate*b.secondsOf(*t)), cmp.Or(t.most, math.MaxInt))
		done := want <= 2*n
		n = max(want, n)
		if done {
			break
		}
	}
	return n, nil
}

// quietly makes one run, and once more if it was noisy.
func (b *bench) quietly(ctx context.Context, t *test, w way, n int) (o outcome, seen, noisy bool, err error) {
	daemons := func() []int {
		if w.path == nil {
			return nil
		}
		return w.path.Daemons
	}
	noisy, err = b.quiet.Run(daemons, func() (used time.Duration, err error) {
		o, seen, err = b.one(ctx, t, w, n)
		return o.cpu, err
	})
	return o, seen, noisy, err
}

// one makes one run, in new processes and mostly a new fabric directory. seen says
// whether a connection was seen to do what the test is about.
func (b *bench) one(ctx context.Context, t *test, w way, n int) (o outcome, seen bool, err error) {
	a, err := b.newArena(w.library)
	if err != nil {
		return o, false, err
	}
	defer a.close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.path != nil {
		a.host = w.path.Ends[1].Addr.String()
		a.abroad = w.path
	}
	if w.path != nil && w.library {
		a.fabric, a.peers = w.path.Fabric(), w.path.Peers() // where it is told who is on the path
	}
	watched := func() bool { return false }
	if t.upgrades || t.announces { // to watch costs CPU time that is measured
		watched = a.watch(t.sign)
	}
	o, err = t.run(ctx, a, n)
	seen = watched()
	a.close()
	o.cpu = a.cpu
	return o, seen, err
}

// The tests that others use to check their own results by.
const (
	Stream = "stream"       // bytes per second of one stream, by iperf3
	Ping   = "ping-polling" // half of a round trip in ns, the sides on two CPUs, by sockperf
)

// Fetch fetches the programs of a test.
func (p Plan) Fetch(ctx context.Context, name string) error {
	_, err := p.alone(ctx, name)
	return err
}

// Once makes one run of a test without the library, and returns also the CPU time
// of its programs.
func (p Plan) Once(ctx context.Context, name string) (value float64, used time.Duration, err error) {
	t, err := p.alone(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	root, err := debroot.Open(ctx, t.packages...) // is there
	if err != nil {
		return 0, 0, err
	}
	o, _, err := (&bench{Plan: p, root: root}).one(ctx, t, way{}, 0)
	return o.value, o.cpu, err
}

// alone is a test of the group by its name, with its programs at hand.
func (p Plan) alone(ctx context.Context, name string) (*test, error) {
	p.Tests = []string{name}
	t := p.tests()[0]
	_, err := debroot.Open(ctx, t.packages...)
	return &t, err
}

// patience is for one run, which takes a second or two.
const patience = time.Minute

// The CPUs, for taskset.
func (p Plan) firstCPU() string  { return measure.FormatCPUs(p.CPUs[:1]) }
func (p Plan) secondCPU() string { return measure.FormatCPUs(p.CPUs[1:]) }
