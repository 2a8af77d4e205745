package path

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// A Tuning is what an administrator changes of the kernel's TCP. It is of the namespaces of a
// path and of its interfaces: what is of the whole machine (net.core.busy_poll,
// net.core.rmem_max) is left alone.
type Tuning struct {
	Sysctl map[string]string // below net.ipv4: "tcp_rmem"

	// The most that the kernel gives an interface at once, and that it puts together
	// of what came; 0: as it is. Above 65536 it is called BIG TCP.
	Segments uint32 // packets
	Bytes    uint32
}

// Tune tunes both ends.
func (p *Path) Tune(t Tuning) error {
	for i := range p.Ends {
		if err := p.ns[i].Do(func() error { return t.apply(link(i)) }); err != nil {
			return fmt.Errorf("path %s: %w", p.Name, err)
		}
	}
	return nil
}

func (t Tuning) apply(name string) error {
	for key, value := range t.Sysctl {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4", key), []byte(value), 0); err != nil {
			return fmt.Errorf("set net.ipv4.%s: %w", key, err)
		}
	}
	if t.Segments == 0 && t.Bytes == 0 {
		return nil
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the interface %s: %w", name, err)
	}
	if t.Segments > 0 {
		if err := netlink.LinkSetGSOMaxSegs(l, int(t.Segments)); err != nil {
			return fmt.Errorf("have %s take %d segments at a time: %w", name, t.Segments, err)
		}
	}
	if t.Bytes > 0 {
		for _, set := range []func(netlink.Link, int) error{netlink.LinkSetGSOIPv4MaxSize, netlink.LinkSetGROIPv4MaxSize} {
			if err := set(l, int(t.Bytes)); err != nil {
				return fmt.Errorf("have %s take %d bytes at a time, which needs Linux 6.3: %w", name, t.Bytes, err)
			}
		}
	}
	return nil
}
