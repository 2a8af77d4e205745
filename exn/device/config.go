package device

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/arp"
	"exnet/exteth"
	"exnet/mtu"
)

// DefaultName is the name of the interface when none is given.
const DefaultName = "exn0"

// TxQueueLen is how many packets the kernel keeps for us to read (DRV-1). Fewer
// than half of it makes TCP lose packets (64: 119 retransmits in a second).
const TxQueueLen = 1000

// Config says which interface to open. The zero value of each field is its default.
type Config struct {
	Name      string         // DefaultName
	Namespace string         // name or path of the network namespace; "": the one of this process
	Kind      Kind           // TUN
	MAC       arp.MAC        // of the node: a TAP has it, a TUN has the link-local address made of it
	MTU       int            // the largest there is: 65,535 for a TUN, 65,521 for a TAP
	Addresses []netip.Prefix // with the length of their subnet
	Routes    []Route        // of the kernel, through this interface
	Offloads  exteth.Caps    // none; those that the kernel does not have stay off
	Owner     string         // who we are, shown by ip link as part of the alias
}

// A Route says that a destination is reached by a gateway on the link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Check finds what makes no sense, whatever the addresses of the interface are.
func (r Route) Check() error {
	if !r.Destination.IsValid() || !r.Gateway.IsValid() || r.Destination.Addr().Is4() != r.Gateway.Is4() {
		return fmt.Errorf("route %v via %v: give a prefix and a gateway of the same family: %w", r.Destination, r.Gateway, ErrConfig)
	}
	return nil
}

// Check returns the error that Open would return because of the Config alone,
// whatever the machine is like. It wraps ErrConfig.
func (c Config) Check() error { return c.complete() }

// complete fills in the defaults and checks.
func (c *Config) complete() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if err := checkName(c.Name); err != nil {
		return err
	}
	if c.MTU == 0 {
		c.MTU = int(mtu.MaxTUN)
		if c.Kind == TAP {
			c.MTU = int(mtu.MaxTAP)
		}
	}
	var err error
	if c.Kind == TAP {
		_, err = mtu.CheckTAP(c.MTU)
	} else {
		_, err = mtu.CheckTUN(c.MTU)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrConfig)
	}
	if err := checkOffloads(c.Offloads); err != nil {
		return err
	}
	if c.MAC.Multicast() {
		return fmt.Errorf("%v is the MAC address of a group, not of a node: %w", c.MAC, ErrConfig)
	}
	for i, a := range c.Addresses {
		if err := CheckAddress(a); err != nil {
			return err
		}
		if a.Addr().Is6() && c.MTU < int(mtu.MinIPv6) {
			return fmt.Errorf("address %v needs an MTU of %d at least, and %d was asked for; IPv6 has no smaller one: %w", a, mtu.MinIPv6, c.MTU, ErrConfig)
		}
		for _, b := range c.Addresses[:i] {
			if a.Addr() == b.Addr() {
				return fmt.Errorf("address %v is there twice; give each once: %w", a.Addr(), ErrConfig)
			}
		}
	}
	for _, r := range c.Routes {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return nil
}

// checkName wants what the kernel accepts as the name of an interface.
func checkName(name string) error {
	remedy := ""
	switch {
	case len(name) >= unix.IFNAMSIZ:
		remedy = fmt.Sprintf("is %d bytes long; the kernel takes %d", len(name), unix.IFNAMSIZ-1)
	case name == "." || name == ".." || name == "all" || name == "default":
		remedy = "has another meaning below /proc/sys/net; choose another, like " + DefaultName
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%", r) }):
		remedy = "must be printable ASCII without space, slash, colon and percent sign"
	default:
		return nil
	}
	return fmt.Errorf("interface name %q %s: %w", name, remedy, ErrConfig)
}

// CheckAddress wants an address that an interface can have.
func CheckAddress(p netip.Prefix) error {
	a, remedy := p.Addr(), ""
	switch {
	case !p.IsValid():
		remedy = "is not one; write it with the length of its subnet, like 10.2.0.8/24 or fd00::8/64"
	case a.Is4In6():
		remedy = "is an IPv4 address in IPv6 form; write it as IPv4"
	case a.Zone() != "":
		remedy = "has a zone, which the interface itself is; leave it out"
	case a.IsUnspecified(), p.Bits() == 0:
		remedy = "is no address of a host"
	case a.IsMulticast():
		remedy = "is a multicast group; programs join groups themselves"
	case a.IsLoopback():
		remedy = "is a loopback address, which never leaves a host"
	case a.Is4() && p.Bits() < 31 && a == p.Masked().Addr():
		remedy = "is the address of the subnet itself; choose one of a host, like " + a.Next().String()
	case a.Is4() && p.Bits() < 31 && a == lastOf(p):
		remedy = "is the broadcast address of its subnet; choose one of a host, like " + a.Prev().String()
	default:
		return nil
	}
	return fmt.Errorf("address %v %s: %w", p, remedy, ErrConfig)
}

// lastOf returns the last address of an IPv4 prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}
