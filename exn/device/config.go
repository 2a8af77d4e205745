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

// TxQueueLen is how many packets the kernel queues for us to read (DRV-1). With less than half of
// it TCP loses packets (with 64: 119 retransmits in a second).
const TxQueueLen = 1000

// Config describes the interface to open. The zero value of each field is its default.
type Config struct {
	Name      string // default: DefaultName
	Namespace string // name or path of the network namespace; default: that of this process
	Kind      Kind   // default: TUN
	// of the node: a TAP has it, a TUN gets the link-local address derived from it
	MAC       arp.MAC
	MTU       int            // default: the largest possible, 65,535 for a TUN and 65,521 for a TAP
	Addresses []netip.Prefix // with the length of their subnet
	Routes    []Route        // routes of the kernel through this interface
	Offloads  exteth.Caps    // default: none; offloads that the kernel lacks stay off
	Owner     string         // who owns the interface; ip link shows it as part of the alias
}

// A Route says that a gateway on the link leads to a destination.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Check finds errors that do not depend on the addresses of the interface.
func (r Route) Check() error {
	if !r.Destination.IsValid() || !r.Gateway.IsValid() || r.Destination.Addr().Is4() != r.Gateway.Is4() {
		return fmt.Errorf("route %v via %v: give a prefix and a gateway of the same family: %w", r.Destination, r.Gateway, ErrConfig)
	}
	return nil
}

// Check returns the error that Open would return because of the Config alone, on any machine. It
// wraps ErrConfig.
func (c Config) Check() error { return c.complete() }

// complete fills in the defaults and checks the Config.
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
			return fmt.Errorf("address %v needs an MTU of %d or more, as all of IPv6 does; the MTU is %d: %w", a, mtu.MinIPv6, c.MTU, ErrConfig)
		}
		for _, b := range c.Addresses[:i] {
			if a.Addr() == b.Addr() {
				return fmt.Errorf("address %v is given twice; give each address once: %w", a.Addr(), ErrConfig)
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

// checkName checks that the kernel accepts a name for an interface.
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

// CheckAddress checks that an interface can have the address.
func CheckAddress(p netip.Prefix) error {
	a, remedy := p.Addr(), ""
	switch {
	case !p.IsValid():
		remedy = "is not valid; write it with the length of its subnet, like 10.2.0.8/24 or fd00::8/64"
	case a.Is4In6():
		remedy = "is an IPv4 address in IPv6 form; write it as IPv4"
	case a.Zone() != "":
		remedy = "has a zone, which is the interface itself; leave it out"
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
