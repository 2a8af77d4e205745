package device

import (
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/exteth"
)

// checkOffloads refuses what the kernel would refuse without a reason.
func checkOffloads(o exteth.Caps) error {
	const tso = exteth.CapTSO4 | exteth.CapTSO6
	switch {
	case o&^exteth.CapAll != 0:
		return fmt.Errorf("offloads %v: there are only %v: %w", o, exteth.CapAll, ErrConfig)
	case o != 0 && o&exteth.CapChecksum == 0:
		return fmt.Errorf("offloads %v: super-packets come with partial checksums; add csum: %w", o, ErrConfig)
	case o&exteth.CapBig != 0 && o&exteth.CapTSO4 == 0:
		return fmt.Errorf("offloads %v: big is about TCP super-packets over IPv4; add tso4: %w", o, ErrConfig)
	case o&exteth.CapECN != 0 && o&tso == 0:
		return fmt.Errorf("offloads %v: ecn is about TCP super-packets; add tso4 or tso6: %w", o, ErrConfig)
	}
	return nil
}

// offloadFlags are the argument of TUNSETOFFLOAD. To Linux, USO4 and USO6 mean
// something together only.
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

// setOffloads asks the kernel for offloads and returns those that it has: before
// Linux 6.2 it has no USO.
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

// ParseOffloads reads a list such as "csum,tso": tso is tso4, tso6 and ecn, all
// is everything, none is nothing.
func ParseOffloads(s string) (o exteth.Caps, err error) {
	known := map[string]exteth.Caps{"all": exteth.CapAll, "none": 0, "tso": exteth.CapTSO4 | exteth.CapTSO6 | exteth.CapECN}
	for c := exteth.CapChecksum; c < exteth.CapAll; c <<= 1 {
		known[c.String()] = c
	}
	for name := range strings.SplitSeq(s, ",") {
		c, ok := known[strings.TrimSpace(name)]
		if !ok {
			return 0, fmt.Errorf("offload %q: there are csum, tso (tso4, tso6, ecn), uso and big, or all, or none: %w", name, ErrConfig)
		}
		o |= c
	}
	return o, checkOffloads(o)
}

// BigPacket is the length of the longest packet that a device with [exteth.CapBig] takes:
// what Linux calls BIG TCP, and shows as gro_ipv4_max_size (ip -d link).
const BigPacket = 4 << 16

// allowBig raises the kernel's limit. One before Linux 6.3 has none, and knows no such
// packets over IPv4. A TAP may be a port of a bridge, whose other ports need not know them.
func (d *TunTap) allowBig() error {
	if d.kind == TAP {
		return nil
	}
	link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	if d.handle.LinkSetGROIPv4MaxSize(link, BigPacket) != nil {
		return nil // it is slower without, no more
	}
	now, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	d.knowsBig = now.Attrs().GROIPv4MaxSize >= BigPacket
	d.lookForBig()
	return nil
}

// lookForBig finds out whether big packets can be taken now, and whether that is news. They
// are not while packets are passed on, for the next interface would have them cut by the
// CPU, which halves what a stream carries; Linux itself switches off LRO then.
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

// lookAgain has who watches look for big packets in a while: when one came, and while they
// are off for some time. Nobody looks for the sake of an interface that is idle.
func (d *TunTap) lookAgain() {
	if !d.due.Swap(true) {
		_ = d.events.SetReadDeadline(time.Now().Add(forwardingAgain)) // fails as the read will
	}
}
