package path

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"exnet/exn/netns"
)

// namespaces is where a foreign relay looks for those that it is told.
const namespaces = "/run/netns"

// ForeignRelay is Relay by another program, which shows what our own is worth. It is
// started as
//
//	program 1 0 A B
//
// and makes two TUNs, tunA in the network namespace /var/run/netns/A and tunB in
// the other, with virtio header and checksum offload (1), reads them blocking (0),
// and copies between them.
func ForeignRelay(program string) (*Path, error) {
	p, err := newPath("foreign relay", 2)
	if err != nil {
		return nil, err
	}
	// Our namespaces have no names, but paths, which only work from a directory that exists.
	args := []string{"1", "0"}
	if _, err = os.Stat(namespaces); err != nil {
		err = fmt.Errorf("%w; the program looks for network namespaces there: make the directory", err)
	}
	for _, ns := range p.ns {
		if err != nil {
			break
		}
		var name string
		name, err = filepath.Rel(namespaces, ns.String())
		args = append(args, "../"+name) // once more, where /var/run is a directory of its own
	}
	if err == nil {
		err = p.start(0, exec.Command(program, args...))
	}
	for i, tun := range []string{"tunA", "tunB"} {
		if err != nil {
			break
		}
		if err = p.appears(i, tun); err == nil {
			err = netns.Configure(netns.End{NS: p.ns[i], Link: tun, MTU: wholeMTU, Addr: []string{address(i).String()}})
		}
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	return p, nil
}

// appears waits for an interface that a program makes.
func (p *Path) appears(i int, name string) error {
	for deadline := time.Now().Add(ready); ; time.Sleep(time.Millisecond) {
		err := p.ns[i].Do(func() error { _, err := net.InterfaceByName(name); return err })
		if err == nil {
			return nil
		}
		if broken := p.Broken(); broken != nil {
			return broken
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no interface %s after %v: %w", name, ready, err)
		}
	}
}
