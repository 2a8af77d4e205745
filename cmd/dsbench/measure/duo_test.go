package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// coordinatorCommand makes the test binary a coordinator that hangs.
const coordinatorCommand = "coordinator"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == PeerCommand {
		cpu, _ := strconv.Atoi(os.Args[3]) // we wrote it ourselves
		if err := Serve(Role(os.Args[2]), cpu, testContenders); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == coordinatorCommand {
		hang()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the peers need not linger under -race
	goleak.VerifyTestMain(m)
}

// A bounce is a half that bounces a number through shared memory; odd is what
// follow does before it answers.
type bounce struct {
	role         Role
	site         *Site
	mine, theirs *atomic.Uint64
	words        []uint64
	seq          uint64
	odd          func() error
}

func newBounce(odd func() error) Contender {
	return func(role Role, site *Site, p Params) (Half, error) {
		b := &bounce{role: role, site: site, odd: odd, words: []uint64{uint64(p.Size), uint64(len(role))}}
		b.mine, b.theirs = Word(site.Shared, 0), Word(site.Shared, CacheLinePair)
		if role == Follow {
			b.mine, b.theirs = b.theirs, b.mine
		}
		return b, nil
	}
}

func (b *bounce) Words() []uint64 { return b.words }
func (b *bounce) Close() error    { return nil }

func (b *bounce) Meet(words []uint64) error {
	other := map[Role]Role{Lead: Follow, Follow: Lead}[b.role]
	if len(words) != 2 || words[0] != b.words[0] || words[1] != uint64(len(other)) {
		return fmt.Errorf("met %v", words)
	}
	return nil
}

func (b *bounce) Run(n int) (Sample, error) {
	start := time.Now()
	for range n {
		b.seq++
		if b.role == Lead {
			b.mine.Store(b.seq)
		}
		for b.theirs.Load() != b.seq {
			if b.site.Stopped() {
				return Sample{}, ErrStopped
			}
		}
		if b.role == Follow {
			if err := b.odd(); err != nil {
				return Sample{}, err
			}
			b.mine.Store(b.seq)
		}
	}
	return Each(time.Since(start), n), nil
}

var testContenders = map[string]Contender{
	"bounce": newBounce(func() error { return nil }),
	"slowed": newBounce(func() error { time.Sleep(time.Millisecond); return nil }),
	"wrong":  newBounce(func() error { return errors.New("wrong data: seven is not eight") }),
	"crash":  newBounce(func() error { panic("as asked") }),
	"deaf":   newBounce(func() error { time.Sleep(time.Hour); return nil }),
	"broken": func(Role, *Site, Params) (Half, error) { return nil, errors.New("cannot be made") },
}

// start starts a Duo on the CPUs there are; on one only, both halves share it.
func start(t *testing.T) *Duo {
	t.Helper()
	cpus, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(cpus[0], cpus[len(cpus)-1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func prepare(t *testing.T, d *Duo, contender string) *Entry {
	t.Helper()
	e, err := d.Prepare(t.Context(), contender, Params{Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// children lists the processes that pid has started.
func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may end meanwhile
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

func TestDuoMeasures(t *testing.T) {
	r, err := prepare(t, start(t), "bounce").Run(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if r.N != 10 || r.Lead.PerOp <= 0 || r.Lead.Elapsed <= 0 || r.Follow.Elapsed <= 0 || r.Lead.OnCPU <= 0 {
		t.Errorf("incomplete result %+v", r)
	}
}

func TestEntriesAreHalvesOfTheirOwn(t *testing.T) {
	d := start(t)
	a, b := prepare(t, d, "bounce"), prepare(t, d, "wrong")
	if _, err := a.Run(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(t.Context(), 1); err == nil {
		t.Error("the second entry ran the first one's half")
	}
}

// A slowed path must be reported slower. The delay is ten
// thousand times what is delayed, so that no load on the machine hides it.
func TestSlowedPathIsReportedSlower(t *testing.T) {
	fast, err := prepare(t, start(t), "bounce").Run(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := prepare(t, start(t), "slowed").Run(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	if slow.Lead.PerOp < 1e6 || slow.Lead.PerOp < fast.Lead.PerOp {
		t.Errorf("slowed by 1 ms: %.0f ns per operation, without: %.0f ns", slow.Lead.PerOp, fast.Lead.PerOp)
	}
	if slow.Undisturbed() {
		t.Error("a side that slept most of the time counts as one that had its CPU to itself")
	}
}

func TestWrongDataFailsTheRun(t *testing.T) {
	_, err := prepare(t, start(t), "wrong").Run(t.Context(), 10)
	if err == nil || !strings.Contains(err.Error(), "follow process: wrong data: seven is not eight") {
		t.Errorf("got %v", err)
	}
}

func TestPrepareErrorIsReported(t *testing.T) {
	for _, contender := range []string{"broken", "no such thing"} {
		_, err := start(t).Prepare(t.Context(), contender, Params{})
		if err == nil || !strings.Contains(err.Error(), contender) {
			t.Errorf("%s: got %v", contender, err)
		}
	}
}

func TestPeerDeathIsReportedAndCleansUp(t *testing.T) {
	d := start(t)
	_, err := prepare(t, d, "crash").Run(t.Context(), 10)
	if err == nil || !strings.Contains(err.Error(), "the follow process died") || !strings.Contains(err.Error(), "panic: as asked") {
		t.Errorf("got %v", err)
	}
	d.Close() // ends lead, which waits for an answer
	if left := children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestCancelEndsARunUnderWay(t *testing.T) {
	d := start(t)
	e := prepare(t, d, "deaf")
	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if _, err := e.Run(ctx, 1); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	d.Close()
	d.Close() // idempotent
	if left := children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

// hang is the life of a coordinator: it prints its peers and waits for ever.
func hang() {
	d, err := Start(0, 0)
	if err == nil {
		var e *Entry
		if e, err = d.Prepare(context.Background(), "bounce", Params{}); err == nil {
			fmt.Println("ready")
			_, err = e.Run(context.Background(), 1<<40)
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestPeersDieWithTheCoordinator(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", coordinatorCommand)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the coordinator says %q", line)
	}
	peers := children(t, cmd.Process.Pid)
	if len(peers) != 2 {
		t.Fatalf("the coordinator has processes %v", peers)
	}
	cmd.Process.Kill()
	cmd.Wait() // killed
	for _, pid := range peers {
		for alive(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}

// alive reports whether a process exists and is not a zombie: orphans wait for
// an init that need not hurry.
func alive(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestServeByHandIsRefused(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", PeerCommand, "lead", "0")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "not by hand") {
		t.Errorf("got %v: %s", err, out)
	}
	if err := Serve("boss", 0, nil); err == nil {
		t.Error("an unknown role was accepted")
	}
}
