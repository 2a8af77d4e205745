package exn

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"exnet/exn"
	"exnet/test/built"
)

// A Daemon is a process of exn-tun, or another program, in a node.
type Daemon struct {
	testing.TB
	cmd   *exec.Cmd
	log   string // file with its output
	ready *net.UnixConn
	ended chan struct{}
}

// start starts the node's daemon.
func (n *Node) start() {
	n.Helper()
	serial := strconv.Itoa(n.ID) + "-" + strconv.Itoa(len(n.dead))
	address := filepath.Join(n.fleet.dir, "ready-"+serial)
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		n.Fatal(err)
	}
	cmd := exec.Command(built.Path(n, "exn-tun"), n.flags()...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address)
	d := n.launch("exn-tun-"+serial, cmd)
	d.ready = ready
	n.mu.Lock()
	n.daemon = d
	n.mu.Unlock()
}

// launch starts a program in the node. Its output goes to a file of the fleet.
func (n *Node) launch(name string, cmd *exec.Cmd) *Daemon {
	n.Helper()
	log, err := os.Create(filepath.Join(n.fleet.dir, name+".log"))
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.NS.Start(cmd); err != nil {
		n.Fatalf("%v: start %s: %v", n, name, err)
	}
	d := &Daemon{TB: n.TB, cmd: cmd, log: log.Name(), ended: make(chan struct{})}
	go func() {
		cmd.Wait() // ProcessState says how it ended
		close(d.ended)
	}()
	return d
}

// awaitReady waits until the daemon reports, as it would to systemd, that its interface is usable.
func (d *Daemon) awaitReady() {
	d.Helper()
	buf := make([]byte, 4096)
	for begin := time.Now(); ; {
		d.ready.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := d.ready.Read(buf)
		if err == nil && bytes.Contains(buf[:n], []byte("READY=1")) {
			return
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			d.Fatal(err)
		}
		select {
		case <-d.ended:
			d.Fatalf("exn-tun ended: %v\n%s", d.cmd.ProcessState, d.Said())
		default:
		}
		if time.Since(begin) > patience {
			d.Fatalf("exn-tun is not ready after %v:\n%s", patience, d.Said())
		}
	}
}

// Said returns the end of the daemon's output.
func (d *Daemon) Said() []byte {
	text, _ := os.ReadFile(d.log) // it was created
	const most = 8 << 10
	return text[max(0, len(text)-most):]
}

// Signal sends the node's daemon a signal.
func (n *Node) Signal(sig syscall.Signal) {
	n.Helper()
	if err := n.daemon.cmd.Process.Signal(sig); err != nil {
		n.Fatalf("%v: signal %v: %v", n, sig, err)
	}
}

// Kill kills the node's daemon by SIGKILL, as a crash would, and waits until it has ended.
func (n *Node) Kill() {
	n.Helper()
	n.Signal(syscall.SIGKILL)
	n.Ended()
}

// Leave ends the node's daemon in an orderly way, by SIGTERM, and waits until it has ended. Its
// exit code must be 0.
func (n *Node) Leave() {
	n.Helper()
	n.Signal(syscall.SIGTERM)
	if state := n.Ended(); state.ExitCode() != 0 {
		n.Errorf("%v: exn-tun ended with %v after SIGTERM:\n%s", n, state, n.dead[len(n.dead)-1].Said())
	}
}

// Ended waits until the node's daemon has ended and returns its state.
func (n *Node) Ended() *os.ProcessState {
	n.Helper()
	d := n.daemon
	select {
	case <-d.ended:
	case <-time.After(patience):
		n.Fatalf("%v: exn-tun does not end:\n%s", n, d.Said())
	}
	n.mu.Lock()
	n.dead, n.daemon = append(n.dead, d), nil
	n.mu.Unlock()
	return d.cmd.ProcessState
}

// Restart starts the daemon again after it has ended, and waits until it is ready.
func (n *Node) Restart() {
	n.Helper()
	n.start()
	n.daemon.awaitReady()
}

// PID returns the process ID of the node's daemon.
func (n *Node) PID() int { return n.daemon.cmd.Process.Pid }

// Said returns the output of all daemons that the node has had.
func (n *Node) Said() string {
	var all []byte
	for _, d := range n.dead {
		all = append(all, d.Said()...)
	}
	if n.daemon != nil {
		all = append(all, n.daemon.Said()...)
	}
	return string(all)
}

// end ends the programs that run in the node.
func (n *Node) end() {
	defer func() {
		for _, d := range append(n.dead, n.daemon) {
			if d != nil {
				d.ready.Close() // keep it open until now: the daemon also reports that it stops
			}
		}
	}()
	for _, d := range []*Daemon{n.capture, n.daemon} {
		if d == nil {
			continue
		}
		d.cmd.Process.Signal(syscall.SIGCONT)
		d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(patience):
			d.cmd.Process.Kill()
			<-d.ended
			n.Errorf("%v: %v does not end:\n%s", n, line(d.cmd), d.Said())
		}
	}
}

// show asks the node's daemon for its state.
func (n *Node) show() ([]byte, error) {
	cmd := exec.Command(built.Path(n, "exn-tun"), "show", "interface", "--json", "--fabric", n.fleet.Fabric, "--node", strconv.Itoa(n.ID))
	return cmd.Output()
}

// Needs are the resources that a daemon uses.
type Needs struct {
	HeapBytes   uint64 `json:"heap_bytes"`
	Goroutines  uint64
	Descriptors int
}

// Needs asks the node's daemon which resources it uses.
func (n *Node) Needs() Needs {
	n.Helper()
	var s struct{ Process Needs }
	n.state(&s)
	return s.Process
}

// Snapshot returns the state of the node's interface.
func (n *Node) Snapshot() exn.Snapshot {
	n.Helper()
	var s struct{ Interface exn.Snapshot }
	n.state(&s)
	return s.Interface
}

// state asks the node's daemon for its state.
func (n *Node) state(to any) {
	n.Helper()
	out, err := n.show()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = exit.Stderr
		}
		n.Fatalf("%v: exn-tun show: %v: %s", n, err, out)
	}
	if err := json.Unmarshal(out, to); err != nil {
		n.Fatalf("%v: exn-tun show --json: %v in %s", n, err, out)
	}
}

// AwaitAddress waits until an address of the node's interface is in a state such as held. "" means
// that the daemon does not have the address.
func (n *Node) AwaitAddress(p netip.Prefix, state string) {
	n.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		is := ""
		for _, a := range n.Snapshot().Addresses {
			if a.Prefix == p {
				is = a.State
			}
		}
		if is == state {
			return
		}
		if time.Since(begin) > patience {
			n.Fatalf("%v: address %v is %q, not %q", n, p, is, state)
		}
	}
}
