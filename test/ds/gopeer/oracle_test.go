package gopeer_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/test/ds"
	"exnet/test/netns"
)

const (
	progressSize = 512 // bytes: 64 words, one for each connection
	patience     = 2 * time.Minute
)

// A side is a process that plays an end.
type side struct {
	t        testing.TB
	name     string
	cmd      *exec.Cmd
	progress string
	port     chan string
	done     chan struct{} // its output is complete

	mu     sync.Mutex
	lines  []string
	errors strings.Builder
}

type language struct {
	name string
	cmd  func(ctx context.Context, args ...string) *exec.Cmd
	ns   *netns.NetNS // nil: that of the tests
}

// noLinger has the race detector not wait for a second when a program ends.
const noLinger = "GORACE=atexit_sleep_ms=10"

// golang is the Go end, c the C end under a library, poll the same without
// blocking calls, plain a C end without the library.
func golang(t testing.TB, env ...string) language {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return language{name: "go", cmd: func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(append(os.Environ(), env...), role+"=oracle", "LD_PRELOAD=", noLinger)
		return cmd
	}}
}

func c(t testing.TB, polls bool, env ...string) language {
	program := ds.Build(t, "oracle", nil, "oracle.c")
	return language{name: "c", cmd: func(ctx context.Context, args ...string) *exec.Cmd {
		if polls {
			args = append(args, "poll")
		}
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	}}
}

func start(t testing.TB, l language, what, port string, seed uint64, conns int) *side {
	t.Helper()
	s := &side{t: t, name: l.name + " " + what, progress: filepath.Join(t.TempDir(), "progress"), port: make(chan string, 1), done: make(chan struct{})}
	if err := os.WriteFile(s.progress, make([]byte, progressSize), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s.cmd = l.cmd(ctx, what, port, fmt.Sprint(seed), fmt.Sprint(conns), s.progress)
	s.cmd.WaitDelay = time.Second
	s.cmd.SysProcAttr = dieWithUs()
	s.cmd.Stderr = &s.errors
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if l.ns != nil {
		err = l.ns.Start(s.cmd)
	} else {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if number, ok := strings.CutPrefix(lines.Text(), "port "); ok {
				s.port <- number
				continue
			}
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			s.mu.Unlock()
		}
	}()
	return s
}

// dieWithUs has a process end when the tests do, however that is.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// wait returns what the side has read of each connection, and how it ended.
func (s *side) wait() map[int]reading {
	s.t.Helper()
	<-s.done
	err := s.cmd.Wait()
	if err != nil {
		s.t.Errorf("%s: %v\n%s\n%s", s.name, err, s.errors.String(), strings.Join(s.lines, "\n"))
	}
	all := make(map[int]reading)
	for _, line := range s.lines {
		var r reading
		var n int
		if _, err := fmt.Sscanf(line, "%d %d of %d %s", &n, &r.bytes, &r.total, &r.how); err == nil {
			all[n] = r
		}
	}
	return all
}

// lanes adds up what a Go side says of its connections.
func (s *side) lanes() (tcp, lane uint64) {
	for _, line := range s.lines {
		var n int
		var t, l uint64
		if _, err := fmt.Sscanf(line, "path %d tcp %d lane %d", &n, &t, &l); err == nil {
			tcp, lane = tcp+t, lane+l
		}
	}
	return tcp, lane
}

// zcopied are those of the lanes that were copied once.
func (s *side) zcopied() (sum uint64) {
	for _, line := range s.lines {
		var n int
		var tcp, lane, zcopy uint64
		if _, err := fmt.Sscanf(line, "path %d tcp %d lane %d zcopy %d", &n, &tcp, &lane, &zcopy); err == nil {
			sum += zcopy
		}
	}
	return sum
}

// written is how many bytes of a connection the side's writes have taken.
func (s *side) written(conn int) uint64 {
	b, err := os.ReadFile(s.progress)
	if err != nil {
		s.t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(b[8*conn:])
}

type reading struct {
	bytes, total uint64
	how          string
}

// pairings calls f with each pairing in which a Go end is.
func pairings(t *testing.T, n uint64, f func(t *testing.T, client, server language, seed uint64)) {
	library := ds.Library(t)
	for _, pair := range []string{"go-go", "go-c", "c-go"} {
		t.Run(pair, func(t *testing.T) {
			for seed := range ds.Seeds(t, n) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					env := ds.Preload(library, ds.Fabric(t), settings(seed)...)
					of := map[string]language{"go": golang(t, env...), "c": c(t, seed%2 == 1, env...)}
					client, server, _ := strings.Cut(pair, "-")
					f(t, of[client], of[server], seed)
				})
			}
		})
	}
}

// settings varies those of both ends by the seed.
func settings(seed uint64) []string {
	s := []string{fmt.Sprintf("EXN_DS_TEST_SEED=%d", seed)}
	switch seed % 4 {
	case 1: // everything small, so that all limits are met, and writes of the Go ends out of buffers
		s = append(s, "EXN_DS_CALLS=1", "EXN_DS_BYTES=1", "EXN_DS_SLOTS=16", "EXN_DS_WINDOW=16384", "EXN_DS_BUFFER=5000", "GOPEER_LENDS=yes")
	case 2:
		s = append(s, "EXN_DS_CALLS=1", "EXN_DS_BYTES=1", "EXN_DS_SPIN_US=0")
	case 3:
		s = append(s, "EXN_DS_CALLS=3", "EXN_DS_BYTES=1000000", "EXN_DS_VELO_MAX=4096")
	}
	return s
}

// DSS-1, BCP-1: bytes, order and the end, in all pairings with a Go end.
func TestOracle(t *testing.T) {
	var tcp, lane uint64
	pairings(t, 6, func(t *testing.T, client, server language, seed uint64) {
		conns := int(1 + seed%8)
		s := start(t, server, "server", "0", seed, conns)
		c := start(t, client, "client", <-s.port, seed, conns)
		for who, got := range map[*side]map[int]reading{c: c.wait(), s: s.wait()} {
			if len(got) != conns {
				t.Errorf("%s: %d of %d connections\n%s", who.name, len(got), conns, who.errors.String())
			}
			for n, r := range got {
				if r.bytes != r.total || r.how != "end" {
					t.Errorf("%s: connection %d: %+v", who.name, n, r)
				}
			}
			a, b := who.lanes()
			tcp, lane = tcp+a, lane+b
		}
	})
	t.Logf("of the Go ends %d bytes by lanes, %d by TCP", lane, tcp)
	if lane < tcp/10 { // who has half-closed gets the rest by TCP
		t.Error("most bytes went by TCP: this says little about lanes")
	}
}

// FBK-1: nothing is lost or reordered while directions go to TCP and back.
func TestSwitching(t *testing.T) {
	pairings(t, 4, func(t *testing.T, client, server language, seed uint64) {
		often := fmt.Sprintf("EXN_DS_TEST_SWITCH=%d", []int{2, 5, 20}[seed%3])
		for _, l := range []*language{&client, &server} {
			plain := l.cmd
			l.cmd = func(ctx context.Context, args ...string) *exec.Cmd {
				cmd := plain(ctx, args...)
				cmd.Env = append(cmd.Env, often)
				return cmd
			}
		}
		s := start(t, server, "server", "0", seed, 4)
		c := start(t, client, "client", <-s.port, seed, 4)
		for who, got := range map[*side]map[int]reading{c: c.wait(), s: s.wait()} {
			for n, r := range got {
				if r.bytes != r.total || r.how != "end" || len(got) != 4 {
					t.Errorf("%s: connection %d of %d: %+v", who.name, n, len(got), r)
				}
			}
		}
	})
}

// zcopy has writes of some KiB copied by their readers, which the sizes of the window
// and of the oracle's calls leave room for.
func zcopy(seed uint64) []string {
	least := []int{1, 5000, 20000}[seed%3]
	s := []string{"EXN_DS_WINDOW=16384", fmt.Sprintf("EXN_DS_ZCOPY=%d", least)}
	if seed%4 == 3 {
		s = append(s, "EXN_DS_TEST_SWITCH=20")
	}
	return s
}

// buffers has them copied out of registered buffers.
func buffers(seed uint64) []string {
	s := zcopy(seed)
	s[1] = strings.Replace(s[1], "ZCOPY", "BUFFER", 1)
	return append(s, "GOPEER_LENDS=yes")
}

// ZCP-1: the same, with writes that are copied once.
func TestZCopy(t *testing.T) { copiedOnce(t, zcopy, "go-go", "go-c", "c-go") }

func TestBuffers(t *testing.T) { copiedOnce(t, buffers, "go-go", "go-c", "c-go") }

func copiedOnce(t *testing.T, how func(seed uint64) []string, where ...string) {
	once := map[string]uint64{} // by pairing
	pairings(t, 6, func(t *testing.T, client, server language, seed uint64) {
		for _, l := range []*language{&client, &server} {
			plain := l.cmd
			l.cmd = func(ctx context.Context, args ...string) *exec.Cmd {
				cmd := plain(ctx, args...)
				cmd.Env = append(cmd.Env, how(seed)...)
				return cmd
			}
		}
		s := start(t, server, "server", "0", seed, 4)
		c := start(t, client, "client", <-s.port, seed, 4)
		for who, got := range map[*side]map[int]reading{c: c.wait(), s: s.wait()} {
			for n, r := range got {
				if r.bytes != r.total || r.how != "end" || len(got) != 4 {
					t.Errorf("%s: connection %d of %d: %+v", who.name, n, len(got), r)
				}
			}
			once[client.name+"-"+server.name] += who.zcopied()
		}
	})
	t.Logf("of the Go ends so many bytes by ZCopy: %v", once)
	for _, pair := range where {
		if once[pair] < 1<<20 && !ds.Sampled() {
			t.Errorf("%s: %d bytes by ZCopy: this says little about it", pair, once[pair])
		}
	}
}

// PRC-1: who survives gets the first bytes of the stream, and then a
// reset, or the end and all bytes of all writes that had returned.
func TestDeath(t *testing.T) {
	pairings(t, 10, func(t *testing.T, client, server language, seed uint64) {
		conns := int(1 + seed%4)
		s := start(t, server, "server", "0", seed, conns)
		c := start(t, client, "client", <-s.port, seed, conns)
		dies, lives, side := c, s, 0
		if seed%2 == 0 {
			dies, lives, side = s, c, 1
		}
		r := rand.New(rand.NewPCG(seed, 0))
		bytes := r.Uint64N(3000000) // where of its first connection it dies, when all are made
		due := func() bool {
			for n := range conns {
				want := uint64(1)
				if n == 0 {
					want = bytes
				}
				if dies.written(n) < min(want, flowOf(seed, n, side).total()) {
					return false
				}
			}
			return true
		}
		for ended := false; !ended && !due(); {
			select {
			case <-dies.done:
				ended = true
			case <-time.After(time.Duration(r.IntN(2000)) * time.Microsecond):
			}
		}
		dies.cmd.Process.Kill()
		<-dies.done
		dies.cmd.Wait()
		got := lives.wait()
		for n, r := range got {
			if wrote := dies.written(n); r.how == "end" && r.bytes < wrote {
				t.Errorf("%s: connection %d ends after %d bytes, %d were written", lives.name, n, r.bytes, wrote)
			}
		}
		if len(got) == 0 && conns > 0 && !t.Failed() {
			t.Logf("%s had no connection yet", lives.name)
		}
	})
}
