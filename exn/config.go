package exn

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/napi"
)

// DefaultVELOBudget is less than other sources have: a message may stand for a frame of
// 64 KiB, and 16 of those take the kernel and us 100 µs. With 64 nobody else has this CPU
// for as long as all that may be under way takes, nor do the receiver's ACKs leave
// (measured: one TCP stream 58 Gbit/s, and 49 with 64).
const DefaultVELOBudget = 16

// Config says how an interface works. The zero value of everything but Node is the
// default. What the device decides (name, MTU, offloads, TUN or TAP) is not here.
type Config struct {
	// Node is the attachment to the fabric. It stays its owner's, who closes it
	// after the interface.
	Node fabric.Node

	// Addresses are the interface's addresses with their prefix lengths. The kernel
	// has them, too: setting them there is the business of who opened the device.
	// The IPv6 link-local address of the node is added. On a TAP they are only
	// probed and announced, and may be left out (DHCP).
	Addresses []netip.Prefix

	// Routes tell the next hop of what is behind another node. Everything else is
	// taken to be on the link. On a TAP they are the kernel's own business.
	Routes []Route

	Prefix arp.Prefix // of MAC addresses; all nodes of a fabric have the same

	Mode     napi.Mode
	BusyPoll time.Duration // after the last work; 0: napi.DefaultBusyPoll, negative: none

	// Budgets of one poll of each source; 0: DefaultVELOBudget, of the others napi.DefaultBudget.
	VELOBudget, RMABudget, DeviceBudget int

	ITR napi.ITR // of the VELO and the RMA interrupt, each

	Eager          int  // longest eager frame; 0: exteth.DefaultEager
	MulticastEager int  // the same to groups; 0: exteth.DefaultMulticastEager
	Copy           bool // GET into a buffer also where the peer's memory is mapped
	Buffers        int  // 0: exteth.DefaultBuffers
	Stay           bool // do not follow the programs from CPU to CPU; see the package comment
	AllMulticast   bool // take all multicast, whatever was joined

	// Held, if it is there, is told the addresses that are ours, whenever they change.
	// It is called by the loop, must not block, and keeps the list as it is.
	Held func([]netip.Addr)

	Log *slog.Logger // nil: none
}

// A Route says that a destination is reached by a gateway on the link.
type Route = device.Route

// Errors of Open and Run.
var (
	// ErrConfig is wrapped by every error about a setting.
	ErrConfig = errors.New("exn: bad configuration")
	// ErrConflict means that another node uses one of the addresses; see [ConflictError].
	ErrConflict = errors.New("exn: address in use by another node")
	// ErrFabric means that the attachment to the fabric ended.
	ErrFabric = errors.New("exn: the fabric is gone")
	// ErrClosed means that the interface was closed.
	ErrClosed = errors.New("exn: the interface is closed")
)

// A ConflictError says who uses an address.
type ConflictError struct {
	Addr  netip.Addr
	Rival arp.MAC       // zero for IPv6, of which netstack does not tell it
	Node  fabric.NodeID // of the rival, if Known
	Known bool
}

func (e *ConflictError) Error() string {
	who := e.Rival.String()
	switch {
	case e.Known:
		who = fmt.Sprintf("node %d (%s)", e.Node, who)
	case e.Rival == arp.MAC{}:
		who = "another node"
	}
	return fmt.Sprintf("exn: address %s is in use by %s: choose another, or stop that node", e.Addr, who)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

func (c *Config) setDefaults() error {
	if c.Node == nil {
		return fmt.Errorf("%w: no node: attach to a fabric first", ErrConfig)
	}
	if c.Prefix == (arp.Prefix{}) {
		c.Prefix = arp.DefaultPrefix
	}
	switch {
	case c.BusyPoll == 0:
		c.BusyPoll = napi.DefaultBusyPoll
	case c.BusyPoll < 0:
		c.BusyPoll = 0
	}
	c.VELOBudget = cmp.Or(c.VELOBudget, DefaultVELOBudget)
	c.RMABudget = cmp.Or(c.RMABudget, napi.DefaultBudget)
	c.DeviceBudget = cmp.Or(c.DeviceBudget, napi.DefaultBudget)
	if c.Eager == 0 {
		c.Eager = exteth.DefaultEager
	}
	if c.MulticastEager == 0 {
		c.MulticastEager = exteth.DefaultMulticastEager
	}
	if c.Buffers == 0 {
		c.Buffers = exteth.DefaultBuffers
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, a := range c.Addresses {
		if err := checkAddress(a); err != nil {
			return err
		}
	}
	for _, r := range c.Routes {
		if err := r.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return nil
}

func checkAddress(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
		return fmt.Errorf("%w: address %v: want a unicast address with its prefix length, such as 10.2.0.8/24", ErrConfig, p)
	}
	return nil
}
