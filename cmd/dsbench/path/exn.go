package path

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/exn/control"
	"exnet/fabric"
	"exnet/fabric/dir"
)

// ready is how long a daemon may take to bring its interface up, most of which
// is waiting whether somebody else has its addresses.
const ready = 30 * time.Second

// Exn joins the two ends by exn0: a daemon in each, on a fabric of their own.
// daemon is the program exn-tun, args are further flags of its command up.
func Exn(daemon, name string, args ...string) (*Path, error) {
	return exnOf(2, (*Path).private, daemon, name, args...)
}

// ExnFor is Exn with a fabric directory that programs of the group, and root's, may use.
func ExnFor(daemon, name string, group int) (*Path, error) {
	return exnOf(2, func(p *Path) error { return p.share(group) }, daemon, name)
}

// private makes a directory in which the daemons make that of the fabric for themselves.
func (p *Path) private() (err error) {
	p.dir, err = Runtime()
	return err
}

// exnOf is Exn for any number of nodes.
func exnOf(nodes int, makeDir func(*Path) error, daemon, name string, args ...string) (*Path, error) {
	p, err := newPath(name, nodes)
	if err != nil {
		return nil, err
	}
	if err := makeDir(p); err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", name, err)
	}
	for i := range p.ns {
		flags := append([]string{"up", "--fabric", p.Fabric(), "--node", strconv.Itoa(i + 1),
			"--addr", address(i).String(), "--name", link(i)}, args...)
		if err := p.up(i, exec.Command(daemon, flags...)); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// Fabric is the fabric directory of exn0 and bridge, "" for other paths.
func (p *Path) Fabric() string {
	if p.dir == "" {
		return ""
	}
	return filepath.Join(p.dir, "fabric")
}

// Joined are the ends for a lead that joins the fabric by itself.
func (p *Path) Joined() [2]measure.NetEnd {
	return [2]measure.NetEnd{{Addr: address(len(p.ns)).Addr()}, p.Ends[1]}
}

// A Tally is what the daemons of exn0 have counted, both together.
type Tally struct {
	Packets float64 // sent and received
	Objects float64 // allocated on their heaps
}

// Tally asks the daemons.
func (p *Path) Tally(ctx context.Context) (sum Tally, err error) {
	for i := range p.ns {
		var s struct {
			Interface struct{ Counters map[string]float64 }
			Process   struct {
				Objects float64 `json:"allocated_objects"`
			}
		}
		answer, err := control.Ask(ctx, p.Fabric(), fabric.NodeID(i+1), "state", nil, &s)
		if err != nil {
			return sum, fmt.Errorf("path %s: %w", p.Name, err)
		}
		answer.Close()
		sum.Packets += s.Interface.Counters["tx_packets"] + s.Interface.Counters["rx_packets"]
		sum.Objects += s.Process.Objects
	}
	return sum, nil
}

// up starts a daemon and returns when it says that it is ready, as it would
// tell systemd: see sd_notify(3).
func (p *Path) up(i int, cmd *exec.Cmd) error {
	address := filepath.Join(p.dir, "ready-"+strconv.Itoa(i)) // not in the namespace: a file
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("path %s: %w", p.Name, err)
	}
	p.ready = append(p.ready, l) // to the end: it will say that it stops, too
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address, dir.PeersVariable+"="+p.peers.String())
	if err := p.start(i, cmd); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for deadline := time.Now().Add(ready); time.Now().Before(deadline); {
		const lookAgain = 100 * time.Millisecond
		l.SetReadDeadline(time.Now().Add(lookAgain))
		n, err := l.Read(buf)
		if err == nil && bytes.Contains(buf[:n], []byte("READY=1")) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("path %s: %w", p.Name, err)
		}
		if err := p.Broken(); err != nil {
			return err
		}
	}
	return fmt.Errorf("path %s: %s is not ready after %v", p.Name, cmd, ready)
}
