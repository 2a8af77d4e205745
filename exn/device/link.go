package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/arp"
	"exnet/mtu"
)

// genModeNone keeps the kernel from giving the interface a link-local address
// (IN6_ADDR_GEN_MODE_NONE). For a TUN it would be random, so no peer could derive it from the node
// (MAC-1).
const genModeNone = 1

// setUpLink configures everything of the interface but its addresses.
func (d *TunTap) setUpLink(link netlink.Link, c Config) error {
	const longest = 255 // IFALIASZ without the final NUL
	alias := aliasPrefix + c.Owner
	if err := d.handle.LinkSetAlias(link, alias[:min(len(alias), longest)]); err != nil {
		return fmt.Errorf("alias: %w", permission(err))
	}
	if c.Kind == TAP {
		if err := d.handle.LinkSetHardwareAddr(link, net.HardwareAddr(c.MAC[:])); err != nil {
			return fmt.Errorf("MAC address %v: %w", c.MAC, err)
		}
	} else if err := d.handle.LinkSetIP6AddrGenMode(link, genModeNone); err != nil && !noIPv6(err) {
		return fmt.Errorf("addr_gen_mode: %w", err)
	}
	if err := d.handle.LinkSetMTU(link, c.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", c.MTU, err)
	}
	if err := d.handle.LinkSetTxQLen(link, TxQueueLen); err != nil {
		return fmt.Errorf("txqueuelen %d: %w", TxQueueLen, err)
	}
	return nil
}

// noIPv6 reports whether an error means that the kernel has no IPv6.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
}

// setAddresses gives the interface the addresses of the Config, and a TUN its link-local address.
// An adopted interface keeps those of them that it has, so that connections go on, and loses the
// others. Addresses that expire stay: they belong to a DHCP client.
func (d *TunTap) setAddresses(link netlink.Link, c Config) error {
	linkLocal := netip.PrefixFrom(arp.LinkLocal(c.MAC), 64)
	present, err := d.addresses(link)
	if err != nil {
		return err
	}
	for _, a := range present {
		p := prefixOf(a.IPNet)
		if a.Flags&unix.IFA_F_PERMANENT == 0 || p == linkLocal || slices.Contains(c.Addresses, p) {
			continue
		}
		if err := d.handle.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing the address %v of a former node: %w", p, err)
		}
	}
	// When the first address of a subnet goes, the kernel may remove the others of that subnet,
	// too. So add all that are missing now.
	for _, p := range c.Addresses {
		if err := d.addAddress(link, p); err != nil {
			return err
		}
	}
	if c.Kind == TUN && c.MTU >= int(mtu.MinIPv6) {
		if err := d.addAddress(link, linkLocal); err != nil && !errors.Is(err, ErrMissing) {
			return err
		}
	}
	return nil
}

// addresses lists the addresses of the interface.
func (d *TunTap) addresses(link netlink.Link) (list []netlink.Addr, err error) {
	for range 5 {
		// Interrupted means that an address in the namespace changed during the listing.
		if list, err = d.handle.AddrList(link, netlink.FAMILY_ALL); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	return list, nil
}

func (d *TunTap) addAddress(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().IsLinkLocalUnicast() {
		a.Scope = unix.RT_SCOPE_LINK
	}
	switch err := d.handle.AddrAdd(link, a); {
	case err == nil, errors.Is(err, unix.EEXIST): // it may have been there before
		return nil
	case p.Addr().Is6() && noIPv6(err):
		return fmt.Errorf("address %v: %w; IPv6 is switched off here (sysctl net.ipv6.conf.all.disable_ipv6): %w", p, err, ErrMissing)
	default:
		return fmt.Errorf("address %v: %w", p, permission(err))
	}
}

// setRoutes adds routes through the interface, which is up. They disappear with it.
func (d *TunTap) setRoutes(c Config) error {
	for _, r := range c.Routes {
		route := netlink.Route{LinkIndex: d.index, Gw: r.Gateway.AsSlice(), Protocol: unix.RTPROT_STATIC,
			Dst: &net.IPNet{IP: r.Destination.Addr().AsSlice(), Mask: net.CIDRMask(r.Destination.Bits(), r.Destination.Addr().BitLen())}}
		err := d.handle.RouteReplace(&route)
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			return fmt.Errorf("route %v via %v: %w; the gateway must be in the subnet of one of the addresses: %w", r.Destination, r.Gateway, err, ErrConfig)
		}
		if err != nil {
			return fmt.Errorf("route %v via %v: %w", r.Destination, r.Gateway, permission(err))
		}
	}
	return nil
}

func prefixOf(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}

// Status is the state of the interface that the kernel reports (ip -s link, ip address).
type Status struct {
	Name       string    `json:"name"`
	Index      int       `json:"index"`
	Flags      uint32    `json:"flags"` // IFF_UP and so on
	MTU        int       `json:"mtu"`
	TxQueueLen int       `json:"txqueuelen"`
	MAC        string    `json:"mac,omitempty"` // of a TAP
	Addresses  []Address `json:"addresses"`
}

// An Address is one of the interface's addresses.
type Address struct {
	Prefix    netip.Prefix `json:"prefix"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Scope     uint8        `json:"scope"` // RT_SCOPE_*
}

// Status asks the kernel. It returns ErrGone when the interface no longer exists.
func (d *TunTap) Status() (Status, error) {
	link, err := d.handle.LinkByIndex(d.index)
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return Status{}, fmt.Errorf("interface %s: %w", d.name, ErrGone)
	}
	if err != nil {
		return Status{}, fmt.Errorf("interface %s: %w", d.name, err)
	}
	base := link.Attrs()
	s := Status{Name: base.Name, Index: base.Index, Flags: base.RawFlags, MTU: base.MTU, TxQueueLen: base.TxQLen, MAC: base.HardwareAddr.String()}
	list, err := d.addresses(link)
	if err != nil {
		return Status{}, fmt.Errorf("interface %s: %w", d.name, err)
	}
	for _, a := range list {
		broadcast, _ := netip.AddrFromSlice(a.Broadcast)
		s.Addresses = append(s.Addresses, Address{prefixOf(a.IPNet), broadcast.Unmap(), uint8(a.Scope)})
	}
	return s, nil
}

// WaitRunning waits until the kernel lets packets through the interface, some milliseconds after
// the carrier came up. Before that it drops them.
func (d *TunTap) WaitRunning(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		s, err := d.Status()
		if err != nil || s.Flags&unix.IFF_RUNNING != 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// closedError is the error of a call after Close.
func (d *TunTap) closedError() error { return fmt.Errorf("interface %s: %w", d.name, os.ErrClosed) }
