package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/arp"
	"exnet/exn"
	"exnet/exn/device"
)

type showInterfaceCommand struct{}

// Run implements the command.
func (*showInterfaceCommand) Run(c *showCommand, out output) error {
	return c.look(out, func(s *state) any { return s }, printInterface)
}

// printInterface prints the layout of Listing 5.1, which is ifconfig's, and below it
// what ifconfig does not know.
func printInterface(w io.Writer, s *state) {
	indented := func(format string, a ...any) { fmt.Fprintf(w, "        "+format+"\n", a...) }
	fmt.Fprintf(w, "%s: flags=%d<%s>  mtu %d\n", s.Link.Name, s.Link.Flags&0xffff, flagNames(s.Link.Flags), s.Link.MTU)
	for _, a := range s.Link.Addresses {
		indented("%s%s", addressLine(a), claim(s, a.Prefix.Addr()))
	}
	indented("ether %s  txqueuelen %d  (Ethernet)", s.Interface.MAC, s.Link.TxQueueLen)
	for line := range strings.Lines(s.Interface.Statistics.String()) {
		indented("%s", strings.TrimSuffix(line, "\n"))
	}
	c, n := s.Interface.Counters, s.Interface
	indented("RX eager %d (%d fragments)  rendezvous %d (%d adverts, %d GETs, %d in place, %d NACKs)",
		c["rx_eager"], c["rx_fragments"], c["rx_rendezvous"], c["rx_adverts"], c["rx_gets"], c["rx_gets_in_place"], c["rx_nacks"])
	indented("TX eager %d (%d fragments)  rendezvous %d (%d adverts, %d NACKs)",
		c["tx_eager"], c["tx_fragments"], c["tx_rendezvous"], c["tx_adverts"], c["tx_nacked"])
	where := ""
	if s.Namespace != "" {
		where = "  netns " + s.Namespace
	}
	how := n.Kind
	if n.Kind != exn.RouterKind {
		how += "  " + n.NAPI.Mode
	}
	indented("node %d of %s  peers %d  carrier %s  %s  offloads %s%s", n.Node, s.Fabric, len(n.Peers), onOff(n.Carrier),
		how, n.Settings.Offloads, where)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// addressLine is the line of one address, as ifconfig prints it.
func addressLine(a device.Address) string {
	p := a.Prefix
	if p.Addr().Is6() {
		return fmt.Sprintf("inet6 %s  prefixlen %d  scopeid %s", p.Addr(), p.Bits(), scope(p.Addr()))
	}
	line := fmt.Sprintf("inet %s  netmask %s", p.Addr(), net.IP(net.CIDRMask(p.Bits(), 32)))
	if a.Broadcast.IsValid() {
		line += fmt.Sprintf("  broadcast %s", a.Broadcast)
	}
	return line
}

// claim says what is wrong with an address of a TUN: the fabric finds only those that
// the daemon has claimed there.
func claim(s *state, a netip.Addr) string {
	if s.Interface.Kind == device.TAP.String() {
		return "" // the kernel itself answers for it
	}
	k := slices.IndexFunc(s.Interface.Addresses, func(known exn.AddressState) bool { return known.Prefix.Addr() == a })
	switch {
	case k < 0:
		return "  (unknown on the fabric)" // for the moment
	case s.Interface.Addresses[k].State == arp.Probing.String(), s.Interface.Addresses[k].State == arp.Lost.String():
		return "  (" + s.Interface.Addresses[k].State + ")"
	}
	return ""
}

// scope is what ifconfig says about an IPv6 address: the kernel's IPV6_ADDR_SCOPE_MASK.
func scope(a netip.Addr) string {
	if a.IsLinkLocalUnicast() {
		return "0x20<link>"
	}
	return "0x0<global>"
}

// flagNames are the flags in ifconfig's words and order.
func flagNames(flags uint32) string {
	var names []string
	for _, f := range []struct {
		flag uint32
		name string
	}{
		{unix.IFF_UP, "UP"}, {unix.IFF_BROADCAST, "BROADCAST"}, {unix.IFF_DEBUG, "DEBUG"}, {unix.IFF_LOOPBACK, "LOOPBACK"},
		{unix.IFF_POINTOPOINT, "POINTOPOINT"}, {unix.IFF_NOTRAILERS, "NOTRAILERS"}, {unix.IFF_RUNNING, "RUNNING"},
		{unix.IFF_NOARP, "NOARP"}, {unix.IFF_PROMISC, "PROMISC"}, {unix.IFF_ALLMULTI, "ALLMULTI"}, {unix.IFF_MULTICAST, "MULTICAST"},
	} {
		if flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ",")
}
