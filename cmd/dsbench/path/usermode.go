package path

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/internal/debroot"
)

// Usermode is a network that a program of its own makes for a namespace without privileges on
// the host: the lead is in the namespace, the follow on the host's loopback, and between them
// the program carries TCP from a TAP to a socket.
type Usermode struct {
	Name    string
	Package string     // Debian's
	command []string   // it finds the namespace as its descriptor 3
	gateway netip.Addr // what the lead takes for the host's loopback
}

// target is the namespace as a file. It is not named by our process, into which a program that drops its
// capabilities may not look.
const target = "/proc/self/fd/3"

// The programs.
var (
	Slirp4netns = Usermode{"slirp4netns", "slirp4netns", []string{"slirp4netns", "--configure", "--mtu=65520", "--netns-type=path", target, link(0)},
		netip.MustParseAddr("10.0.2.2")}
	Pasta = Usermode{"pasta", "passt", []string{"pasta", "--foreground", "--quiet", "--config-net", "--runas", "0", "-m", "65520", "-I", link(0),
		"-a", "10.0.2.15", "-n", "24", "-g", "10.0.2.2", "--netns-only", "--netns", target},
		netip.MustParseAddr("10.0.2.2")}
)

// Open starts the program and returns when the namespace can reach the host.
func (u Usermode) Open(ctx context.Context) (*Path, error) {
	root, err := debroot.Open(ctx, u.Package)
	if err != nil {
		return nil, err
	}
	p, err := newPath(u.Name, 1)
	if err != nil {
		return nil, err
	}
	p.Ends[1] = measure.NetEnd{Addr: u.gateway}
	fd, err := unix.FcntlInt(uintptr(p.ns[0].Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	namespace := os.NewFile(uintptr(fd), p.Ends[0].NetNS)
	defer namespace.Close()
	cmd := root.Command(context.WithoutCancel(ctx), u.command[0], u.command[1:]...)
	cmd.ExtraFiles = []*os.File{namespace}
	if err := p.startOn(nil, cmd); err != nil {
		p.Close()
		return nil, err
	}
	for deadline := time.Now().Add(ready); ; time.Sleep(10 * time.Millisecond) {
		if err := p.Broken(); err != nil {
			p.Close()
			return nil, err
		}
		var routed bool
		err := p.ns[0].Do(func() error {
			out, err := exec.Command("ip", "-4", "route", "show", "default").Output()
			routed = len(out) > 0
			return err
		})
		if err != nil || routed {
			if err != nil {
				p.Close()
			}
			return p, err
		}
		if time.Now().After(deadline) {
			p.Close()
			return nil, fmt.Errorf("path %s: no route in the namespace after %v", p.Name, ready)
		}
	}
}
