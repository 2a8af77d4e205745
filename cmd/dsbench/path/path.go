// Package path builds the networks that dsbench compares: two namespaces each
// with an interface, joined by one of
//
//	veth    the kernel's own pair, the reference V
//	relay   two TUNs and a process that copies between them, the reference R:
//	        the least that any program behind a TUN can do
//	exn0    exnet: two TUNs, two daemons, and shared memory between them
//	bridge  the kernel's bridge, which containers are on
//
// and one namespace with the host by a program that needs no privileges there, such as slirp4netns.
//
// Every path has namespaces of its own, so that all can stand side by side,
// and costs nothing while no traffic runs on it.
//
// # The relay
//
// It is one process with two threads, one for each direction, that block in
// read and then write, with buffers for the longest packets. The TUNs have the
// virtio header with checksum offload and an MTU of 65,535, so that a packet
// carries as much as a super-packet would; below that MTU also segmentation
// offload, without which it would not be comparable.
package path

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/exn/netns"
	"exnet/fabric/dir"
)

// A Path is a network of two nodes, and sometimes of more that are not measured.
type Path struct {
	Name    string
	Ends    [2]measure.NetEnd
	Daemons []int // processes that carry the packets; none for veth

	// Accompany starts what goes on beside each load, and returns how to end it;
	// nil: nothing.
	Accompany func() (end func() error, err error)

	dir      string     // of exn0 and bridge, for the fabric and for what daemons say
	peers    dir.Peers  // whose programs meet there
	ready    []net.Conn // where daemons say what they are up to
	ns       []*netns.NS
	programs []*program
}

// address is that of a node, the same on every path.
func address(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 87, 4, byte(i + 1)}), 24)
}

// link is the name of a node's interface. They differ because a pair of veths is
// made in one namespace.
func link(i int) string { return fmt.Sprintf("bench%d", i) }

// newPath makes the namespaces of a path; the first two are its ends.
func newPath(name string, nodes int) (*Path, error) {
	p := &Path{Name: name}
	for i := range nodes {
		ns, err := newNamespace()
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("path %s: %w", name, explained(err))
		}
		p.ns = append(p.ns, ns)
		if i < len(p.Ends) {
			p.Ends[i] = measure.NetEnd{NetNS: ns.String(), Addr: address(i).Addr()}
		}
	}
	return p, nil
}

// end describes an end to package netns.
func (p *Path) end(i, mtu int) netns.End {
	return netns.End{NS: p.ns[i], Link: link(i), MTU: mtu, Addr: []string{address(i).String()}}
}

// Veth joins the two ends by a pair of virtual Ethernet interfaces.
func Veth(mtu int) (*Path, error) {
	p, err := newPath("veth", 2)
	if err != nil {
		return nil, err
	}
	if err := netns.Veth(p.end(0, mtu), p.end(1, mtu)); err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	return p, nil
}

// Close ends the daemons and lets the namespaces go.
func (p *Path) Close() error {
	var errs []error
	for _, d := range p.programs {
		errs = append(errs, d.end())
	}
	for _, l := range p.ready {
		errs = append(errs, l.Close())
	}
	for _, ns := range p.ns {
		errs = append(errs, ns.Close())
	}
	if p.dir != "" {
		errs = append(errs, os.RemoveAll(p.dir)) // after the daemons have ended
	}
	return errors.Join(errs...)
}

// Broken says how a daemon has ended, nil while all run.
func (p *Path) Broken() error {
	for _, d := range p.programs {
		select {
		case <-d.ended:
			return fmt.Errorf("path %s: %s", p.Name, d.how())
		default:
		}
	}
	return nil
}

// A program is a daemon of a path.
type program struct {
	cmd    *exec.Cmd
	stderr *tail
	ended  chan struct{}
}

// start starts a daemon in the namespace of an end.
func (p *Path) start(i int, cmd *exec.Cmd) error { return p.startOn(p.ns[i], cmd) }

// startOn starts a daemon in a namespace, or with nil in that of the host.
func (p *Path) startOn(ns *netns.NS, cmd *exec.Cmd) error {
	d := &program{cmd: cmd, stderr: &tail{}, ended: make(chan struct{})}
	cmd.Stderr = d.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // Ctrl-C is for dsbench, which then ends us in order
	}
	started := make(chan error, 1)
	go func() {
		// The death signal comes when the thread ends that started the process.
		// Inside Do this goroutine owns its thread until the process is gone.
		run := func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started <- nil
			cmd.Wait() // how it ended is in ProcessState
			close(d.ended)
			return nil
		}
		inside := func(f func() error) error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			return f()
		}
		if ns != nil {
			inside = ns.Do
		}
		err := inside(run)
		if err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("path %s: start %s: %w", p.Name, cmd.Path, err)
	}
	p.programs, p.Daemons = append(p.programs, d), append(p.Daemons, cmd.Process.Pid)
	return nil
}

// patience is how long a daemon may take to end in order.
const patience = 5 * time.Second

func (d *program) end() error {
	select {
	case <-d.ended:
		return nil
	default:
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-time.After(patience):
		d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("%s did not end within %v", d.cmd.Path, patience)
	}
}

func (d *program) how() string {
	return fmt.Sprintf("%s (pid %d) ended: %v; it said: %s", d.cmd.Path, d.cmd.Process.Pid, d.cmd.ProcessState, d.stderr)
}
