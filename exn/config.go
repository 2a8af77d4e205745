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

// DefaultVELOBudget is smaller than the budgets of other sources. A message may stand for a frame
// of 64 KiB, and 16 of those take the kernel and us 100 µs. With 64, the loop would keep its CPU
// for as long as everything under way takes, and the receiver's ACKs would not leave. One TCP
// stream was measured at 58 Gbit/s with 16, and at 49 with 64.
const DefaultVELOBudget = 16

// Config configures an interface. Every field except Node has a useful zero value. Name, MTU,
// offloads and the kind, TUN or TAP, are the device's and not set here.
type Config struct {
	// Node is the attachment to the fabric. Its owner keeps it, and closes it after the
	// interface.
	Node fabric.Node

	// Addresses are the interface's addresses with their prefix lengths. The kernel has them,
	// too: whoever opened the device sets them there. The node's IPv6 link-local address is
	// added. On a TAP they are only probed and announced, and may be left out (DHCP).
	Addresses []netip.Prefix

	// Routes name the next hop to networks behind another node. All other addresses are taken
	// to be on the link. On a TAP the kernel has the routes.
	Routes []Route

	Prefix arp.Prefix // of MAC addresses; the same on all nodes of a fabric

	Mode napi.Mode
	// how long to poll after the last work; 0: napi.DefaultBusyPoll, negative: not at all
	BusyPoll time.Duration

	// Budgets of one poll of each source; 0 means DefaultVELOBudget, or napi.DefaultBudget for
	// the others.
	VELOBudget, RMABudget, DeviceBudget int

	ITR napi.ITR // of the VELO interrupt and of the RMA interrupt

	Eager          int  // longest eager frame; 0: exteth.DefaultEager
	MulticastEager int  // the same for multicast; 0: exteth.DefaultMulticastEager
	Copy           bool // GET into a buffer even where the peer's memory is mapped
	Buffers        int  // 0: exteth.DefaultBuffers
	Stay           bool // do not follow the programs from CPU to CPU; see the package comment
	AllMulticast   bool // take all multicast, whatever groups are joined

	// Held, if set, is told our addresses whenever they change. The loop calls it. It must not
	// block and must not change the list.
	Held func([]netip.Addr)

	Log *slog.Logger // nil: none
}

// A Route says that a gateway on the link leads to a destination.
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

// A ConflictError says which node uses an address.
type ConflictError struct {
	Addr  netip.Addr
	Rival arp.MAC       // zero for IPv6: netstack does not report it
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
