package device

import (
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/exteth"
)

// checkOffloads refuses combinations that the kernel would refuse without a reason.
func checkOffloads(o exteth.Caps) error {
	const tso = exteth.CapTSO4 | exteth.CapTSO6
	switch {
	case o&^exteth.CapAll != 0:
		return fmt.Errorf("offloads %v: the possible ones are %v: %w", o, exteth.CapAll, ErrConfig)
	case o != 0 && o&exteth.CapChecksum == 0:
		return fmt.Errorf("offloads %v: super-packets come with partial checksums; add csum: %w", o, ErrConfig)
	case o&exteth.CapBig != 0 && o&exteth.CapTSO4 == 0:
		return fmt.Errorf("offloads %v: big concerns TCP super-packets over IPv4; add tso4: %w", o, ErrConfig)
	case o&exteth.CapECN != 0 && o&tso == 0:
		return fmt.Errorf("offloads %v: ecn concerns TCP super-packets; add tso4 or tso6: %w", o, ErrConfig)
	}
	return nil
}

// offloadFlags returns the argument of TUNSETOFFLOAD. Linux accepts USO4 and USO6 only together.
func offloadFlags(o exteth.Caps) (flags int) {
	for _, f := range []struct {
		cap   exteth.Caps
		flags int
	}{
		{exteth.CapChecksum, unix.TUN_F_CSUM},
		{exteth.CapTSO4, unix.TUN_F_TSO4},
		{exteth.CapTSO6, unix.TUN_F_TSO6},
		{exteth.CapECN, unix.TUN_F_TSO_ECN},
		{exteth.CapUSO, unix.TUN_F_USO4 | unix.TUN_F_USO6},
	} {
		if o&f.cap != 0 {
			flags |= f.flags
		}
	}
	return flags
}

// setOffloads asks the kernel for offloads and returns those that it has. Before Linux 6.2 it has
// no USO.
func setOffloads(fd int, o exteth.Caps) (exteth.Caps, error) {
	if err := checkOffloads(o); err != nil {
		return 0, err
	}
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloadFlags(o))
	if err == unix.EINVAL && o&exteth.CapUSO != 0 {
		o &^= exteth.CapUSO
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloadFlags(o))
	}
	if err != nil {
		return 0, fmt.Errorf("offloads %v: %w", o, err)
	}
	return o, nil
}

// ParseOffloads parses a list such as "csum,tso": tso means tso4, tso6 and ecn; all means
// everything; none means nothing.
func ParseOffloads(s string) (o exteth.Caps, err error) {
	known := map[string]exteth.Caps{"all": exteth.CapAll, "none": 0, "tso": exteth.CapTSO4 | exteth.CapTSO6 | exteth.CapECN}
	for c := exteth.CapChecksum; c < exteth.CapAll; c <<= 1 {
		known[c.String()] = c
	}
	for name := range strings.SplitSeq(s, ",") {
		c, ok := known[strings.TrimSpace(name)]
		if !ok {
			return 0, fmt.Errorf("offload %q: choose among csum, tso (tso4, tso6, ecn), uso and big, or all, or none: %w", name, ErrConfig)
		}
		o |= c
	}
	return o, checkOffloads(o)
}

// BigPacket is the length of the longest packet that a device with [exteth.CapBig] takes. Linux
// calls such packets BIG TCP, and shows the limit as gro_ipv4_max_size (ip -d link).
const BigPacket = 4 << 16

// allowBig raises the kernel's limit. Kernels before Linux 6.3 have none, and know no such packets
// over IPv4. A TAP may be a port of a bridge whose other ports do not know them.
func (d *TunTap) allowBig() error {
	if d.kind == TAP {
		return nil
	}
	link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	if d.handle.LinkSetGROIPv4MaxSize(link, BigPacket) != nil {
		return nil // only slower without
	}
	now, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	d.knowsBig = now.Attrs().GROIPv4MaxSize >= BigPacket
	d.lookForBig()
	return nil
}

// lookForBig finds out whether big packets can be taken now, and reports whether that has changed.
// They cannot while the kernel forwards packets: for the next interface the CPU would have to cut
// them, which halves the throughput of a stream. Linux itself switches off LRO then.
func (d *TunTap) lookForBig() (changed bool) {
	now := time.Now()
	big := d.knowsBig && !d.forwarding.passesOn(now)
	if now.Before(d.forwarding.until) {
		d.lookAgain()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = big != d.big && d.offloads&exteth.CapBig != 0
	d.big = big
	return changed
}

// lookAgain makes the watcher check for big packets in a while. It is called when a big packet
// came, and for some time while they are off. For an idle interface nothing is checked.
func (d *TunTap) lookAgain() {
	if !d.due.Swap(true) {
		// an error here also fails the read
		_ = d.events.SetReadDeadline(time.Now().Add(forwardingAgain))
	}
}
