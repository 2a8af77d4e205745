package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/test/leak"
)

// The tests start this binary again as other nodes. A role is a function that
// such a process runs; it talks to the test by lines on its standard streams.
var roles = map[string]func(args []string){
	"sleeper": sleeper,
	"attach":  attachOnce,
	"evil":    evil,
	"flood":   flood,
	"pokes":   pokes,
}

const roleEnv = "EXNET_SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		roles[role](os.Args[1:])
		os.Exit(0)
	}
	leak.Main(m)
}

// patience is how long a test waits for what should come at once. It ends a
// hang, it is no limit on speed.
const patience = 30 * time.Second

// A process is a node in a process of its own.
type process struct {
	tb    testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// start runs a role. prepare may change the command, and can be nil.
func start(tb testing.TB, prepare func(*exec.Cmd), role string, args ...string) *process {
	tb.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if prepare != nil {
		prepare(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, cmd: cmd, in: in, lines: make(chan string, 100)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	tb.Cleanup(p.kill)
	return p
}

// withFile gives the process a descriptor 3.
func withFile(f *os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.ExtraFiles = append(cmd.ExtraFiles, f) }
}

// line waits for the next line of the process.
func (p *process) line() string {
	p.tb.Helper()
	select {
	case s, ok := <-p.lines:
		if !ok {
			p.tb.Fatalf("the %s process ended early: %v", p.cmd.Env[len(p.cmd.Env)-1], p.cmd.Wait())
		}
		return s
	case <-time.After(patience):
		p.tb.Fatal("the other process says nothing")
	}
	return ""
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.in.Close()
	for range p.lines { // to its end, so that the reader is gone
	}
	p.cmd.Wait()
}

// stop returns when every thread of the process has stopped.
func (p *process) stop() {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.tb.Fatal(err)
	}
	eventually(p.tb, "the process stops", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, name := range threads {
			text, _ := os.ReadFile(name)
			if _, after, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(after, "T") {
				return false
			}
		}
		return len(threads) > 0
	})
}

// sleeper attaches and waits until its standard input ends, then leaves.
func sleeper(args []string) {
	n, err := Attach(Config{Dir: args[0], Node: fabric.NodeAny})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(n.ID())
	io.Copy(io.Discard, os.Stdin)
	n.Close()
}

// attachOnce attaches and says what came of it.
func attachOnce(args []string) {
	n, err := Attach(Config{Dir: args[0], Node: fabric.NodeAny})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(n.ID(), n.Peers())
	n.Close()
}

func attach(tb testing.TB, dir string, id fabric.NodeID) *Node {
	tb.Helper()
	n, err := Attach(Config{Dir: dir, Node: id})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

// fabricDir names a fabric directory that does not exist yet.
func fabricDir(tb testing.TB) string { return filepath.Join(tb.TempDir(), "fabric") }

// eventually waits for a condition.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// follow collects a node's events.
func follow(tb testing.TB, n *Node) func() fabric.Event {
	events := make(chan fabric.Event, 100)
	tb.Cleanup(n.Watch(func(e fabric.Event) { events <- e }))
	return func() fabric.Event {
		tb.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(patience):
			tb.Fatal("no event")
		}
		return fabric.Event{}
	}
}

// A node that dies is noticed, what belonged to it is released, and it can
// come back under its ID.
func TestCrashAndReturn(t *testing.T) {
	dir := fabricDir(t)
	n := attach(t, dir, 5)
	next := follow(t, n)
	v := openVELO(t, n, 1, fabric.PortInterrupts{})
	for range 3 {
		p := start(t, nil, "sleeper", dir)
		if id := p.line(); id != "0" {
			t.Fatalf("the second node says %q, want ID 0", id)
		}
		if e := next(); e != (fabric.Event{Node: 0, Joined: true}) {
			t.Fatalf("got %+v", e)
		}
		before := len(openFiles(t))
		// Make a channel, too: the peer's port is closed, which is told at once.
		if err := v.Send(fabric.VELODescriptor{To: fabric.Address{Node: 0, VPID: 1}}, []byte("x")); !errors.Is(err, fabric.ErrNoPort) {
			t.Fatalf("sending to a closed port: %v", err)
		}
		killed := time.Now()
		p.cmd.Process.Kill()
		if e := next(); e != (fabric.Event{Node: 0, Crashed: true}) {
			t.Fatalf("got %+v", e)
		}
		t.Logf("noticed after %v", time.Since(killed)) // 100 ms is the promise
		eventually(t, "descriptors of the dead peer are closed", func() bool { return len(openFiles(t)) < before })
		if err := v.Send(fabric.VELODescriptor{To: fabric.Address{Node: 0, VPID: 1}}, []byte("x")); !errors.Is(err, fabric.ErrNoNode) {
			t.Fatalf("sending to a dead node: %v", err)
		}
	}
	if lost := register(t, n, fabric.RegPeersLost); lost != 3 {
		t.Errorf("peers_lost is %d, want 3", lost)
	}
}

// An orderly leave is no crash, and leaves nothing in the directory.
func TestLeave(t *testing.T) {
	dir := fabricDir(t)
	n := attach(t, dir, fabric.NodeAny)
	next := follow(t, n)
	p := start(t, nil, "sleeper", dir)
	p.line()
	next()
	p.in.Close()
	if e := next(); e != (fabric.Event{Node: 1}) {
		t.Fatalf("got %+v", e)
	}
	if lost := register(t, n, fabric.RegPeersLost); lost != 0 {
		t.Errorf("peers_lost is %d", lost)
	}
	n.Close()
	p.cmd.Wait()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := []string{markerFile, lockFile}; !slices.Equal(names, want) {
		t.Errorf("the directory holds %v, want %v", names, want)
	}
}

// What a crashed host leaves (here: a killed process, and files that nobody
// locks) is taken over.
func TestStaleDirectory(t *testing.T) {
	dir := fabricDir(t)
	p := start(t, nil, "sleeper", dir)
	p.line()
	p.kill()
	for _, name := range []string{"node-0.lock", "node-0.sock"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("the test wants what a crash leaves: %v", err)
		}
	}
	if live, err := List(dir); err != nil || len(live) != 0 {
		t.Errorf("List: %v, %v, want nobody", live, err)
	}
	a := attach(t, dir, fabric.NodeAny)
	b := attach(t, dir, fabric.NodeAny)
	if a.ID() != 0 || b.ID() != 1 || !slices.Equal(b.Peers(), []fabric.NodeID{0}) {
		t.Errorf("nodes %d and %d, the second sees %v", a.ID(), b.ID(), b.Peers())
	}
	live, err := List(dir)
	if err != nil || len(live) != 2 || live[1].Node != 1 || live[1].PID != os.Getpid() || live[1].UID != os.Getuid() {
		t.Errorf("List: %+v, %v", live, err)
	}
}

// Many processes that attach at once all get to know each other.
func TestAttachAtOnce(t *testing.T) {
	dir := fabricDir(t)
	const nodes = 12
	all := make(chan *Node, nodes)
	for range nodes {
		go func() {
			n, err := Attach(Config{Dir: dir, Node: fabric.NodeAny})
			if err != nil {
				t.Error(err)
			}
			all <- n
		}()
	}
	var list []*Node
	for range nodes {
		if n := <-all; n != nil {
			list = append(list, n)
			t.Cleanup(func() { n.Close() })
		}
	}
	for _, n := range list {
		eventually(t, "all see all", func() bool { return len(n.Peers()) == nodes-1 })
	}
}

// A node that is stopped while others attach meets them when it goes on.
func TestStoppedWhileOthersAttach(t *testing.T) {
	dir := fabricDir(t)
	p := start(t, nil, "sleeper", dir)
	p.line()
	p.stop()
	n := attach(t, dir, fabric.NodeAny)
	if len(n.Peers()) != 0 {
		t.Fatalf("met %v, who should be stopped", n.Peers())
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they meet", func() bool { return len(n.Peers()) == 1 })
	// And one that closes meanwhile does not wait for it.
	p.stop()
	attach(t, dir, fabric.NodeAny).Close()
}

func openVELO(tb testing.TB, n *Node, v fabric.VPID, irq fabric.PortInterrupts) fabric.VELO {
	tb.Helper()
	p, err := n.OpenVELO(v, irq)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func register(tb testing.TB, n *Node, r fabric.Register) uint64 {
	tb.Helper()
	v, err := n.ReadRegister(r)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// openFiles lists what the descriptors of this process refer to.
func openFiles(tb testing.TB) (files []string) {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files = append(files, target)
		}
	}
	return files
}

// wantError checks that an error is the right one and names the remedy.
func wantError(tb testing.TB, err, is error, words ...string) {
	tb.Helper()
	if err == nil {
		tb.Fatal("no error")
	}
	if is != nil && !errors.Is(err, is) {
		tb.Errorf("%v: is not %v", err, is)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			tb.Errorf("%q does not say %q", err, w)
		}
	}
}
