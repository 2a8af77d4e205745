package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"exnet/exn"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/napi"
)

// mostBudget is the largest budget of a poll. A larger one would keep the loop from everything else.
const mostBudget = 1 << 16

// upCommand is the daemon. Its flags are also the keys of its configuration file.
type upCommand struct {
	Config  configFile     `help:"Read flags from a TOML file, whose keys are their names. Flags on the command line win over it." placeholder:"FILE.toml"`
	Fabric  string         `help:"The fabric directory (default: EXN_FABRIC, else /run/exn for root)." placeholder:"DIR"`
	Node    *fabric.NodeID `help:"The node ID on the fabric (default: the lowest free one)." placeholder:"N"`
	Addr    []addressFlag  `help:"An address with the length of its subnet (as ip address add). Repeatable." placeholder:"ADDR/BITS"`
	Via     []routeFlag    `help:"A route through another node (as ip route add PREFIX via ADDR). Repeatable." placeholder:"PREFIX=ADDR"`
	Netns   string         `help:"Make the interface in this network namespace, which must exist: a name (as of ip netns add), or a path." placeholder:"NAME"`
	Name    string         `help:"The name of the interface." default:"${name}"`
	MTU     *int           `help:"The MTU: 68 to 65535, or to 65521 with --tap (default: the largest)." placeholder:"N"`
	TAP     bool           `name:"tap" help:"Make an Ethernet device (as ip tuntap add mode tap), for DHCP and protocols other than IP. It is slower."`
	Offload offloadFlag    `help:"The offloads: a list of csum, tso, uso and big, or all, or none. ethtool -K changes them later." default:"all" placeholder:"LIST"`

	Mode           string        `help:"How packets are received: napi polls while there are any, irq waits for an interrupt each time." enum:"napi,irq" default:"napi"`
	BusyPoll       time.Duration `help:"How long to go on polling after the last packet. 0s turns that off." default:"${busyPoll}"`
	VELOBudget     int           `help:"The most messages that one poll of VELO takes." default:"${veloBudget}"`
	RMABudget      int           `help:"The most notifications that one poll of RMA takes." default:"${budget}"`
	DeviceBudget   int           `help:"The most packets that one poll of the interface takes." default:"${budget}"`
	ITR            itrFlag       `name:"itr" help:"Interrupt throttling (as ethtool -C): off, dynamic, or a number of interrupts per second." default:"off" placeholder:"POLICY"`
	Eager          int           `help:"The longest frame, in bytes, that is sent eagerly, in VELO messages. The receiver fetches longer ones." default:"${eager}"`
	MulticastEager int           `help:"The longest frame, in bytes, that is sent eagerly to a multicast group." default:"${multicastEager}"`
	Copy           bool          `help:"Fetch frames by a copying GET even where the peer's memory is mapped."`
	Buffers        int           `help:"How many frames may wait until their receivers have fetched them." default:"${buffers}"`
	Follow         bool          `help:"Where CPUs are scarce, run the polling thread on the CPU of the programs that send most." default:"true" negatable:""`
	AllMulticast   bool          `help:"Receive the frames of all multicast groups, joined or not (as ip link set allmulticast on)."`
	MACPrefix      macPrefixFlag `name:"mac-prefix" help:"The first four octets of MAC addresses. They must be the same on all nodes." default:"${macPrefix}" placeholder:"OCTETS"`

	Metrics string          `help:"Serve Prometheus metrics by HTTP at this address, such as 127.0.0.1:9750 (default: no metrics)." placeholder:"ADDR"`
	Route   []routePortFlag `sep:";" help:"Make no interface but an IP router, between --fabric with --addr and this fabric. Repeatable." placeholder:"DIR,addr=ADDR/BITS[,node=N][,mtu=N][,via=PREFIX=ADDR]"`
	Verbose bool            `help:"Log normal events, too, not only warnings and errors."`
}

// Help is shown by exn-tun help up.
func (*upCommand) Help() string {
	return `The daemon of the interface. It runs in the foreground. When the interface is ready, a line with "ready:" on standard
error says so, and systemd is told (Type=notify). SIGTERM, SIGINT and SIGHUP end the daemon and remove the interface.
After a crash the interface stays, and the next exn-tun up with the same name adopts it.

With --route it is an IP router between fabrics and makes no interface. That needs no root. It connects the subnet of
--addr on --fabric with those of the other fabrics. exn-tun show, exn-tun capture and --metrics show each of its ports as
an interface. Nodes on either side need a route to the other: exn-tun up --via 10.2.0.0/24=10.1.0.1.

	exn-tun up --fabric /run/a --addr 10.1.0.1/24 --route /run/b,addr=10.2.0.1/24

Exit codes: 0 ended by a signal, 1 failed, 2 wrong flag or configuration, 3 the node ID, the name or an address is in use
elsewhere, 4 not possible here (no root, no /dev/net/tun, no such namespace), 5 the fabric is of another version.`
}

// Validate implements kong's check: what is wrong whatever the machine is like.
func (c *upCommand) Validate() error {
	if c.Node != nil && *c.Node > fabric.MaxNodeID {
		return fmt.Errorf("--node %d: IDs go up to %d", *c.Node, fabric.MaxNodeID)
	}
	for _, limited := range []struct {
		name           string
		n, least, most int
	}{
		{"velo-budget", c.VELOBudget, 1, mostBudget}, {"rma-budget", c.RMABudget, 1, mostBudget}, {"device-budget", c.DeviceBudget, 1, mostBudget},
		{"eager", c.Eager, 1, exteth.MaxEager}, {"multicast-eager", c.MulticastEager, 1, exteth.MaxMulticastEager},
		{"buffers", c.Buffers, exteth.MinBuffers, exteth.MaxBuffers},
	} {
		if limited.n < limited.least || limited.n > limited.most {
			return fmt.Errorf("--%s %d: choose %d to %d", limited.name, limited.n, limited.least, limited.most)
		}
	}
	if c.MTU != nil && *c.MTU == 0 { // to a device it means the largest
		return errors.New("--mtu 0: choose 68 or more, or leave it out for the largest")
	}
	if c.Metrics != "" {
		if err := checkListen("metrics", c.Metrics); err != nil {
			return err
		}
	}
	if c.BusyPoll < 0 {
		return fmt.Errorf("--busy-poll %v: it cannot be negative", c.BusyPoll)
	}
	if len(c.Route) > 0 {
		return c.checkRoute()
	}
	return c.device(0, "").Check()
}

// device is what to open for a node.
func (c *upCommand) device(node fabric.NodeID, fabricDir string) device.Config {
	d := device.Config{Name: c.Name, Namespace: c.Netns, MTU: c.mtu(), MAC: c.MACPrefix.MAC(node), Addresses: c.addresses(),
		Offloads: c.Offload.Caps, Owner: fmt.Sprintf("node %d of %s", node, fabricDir)}
	if c.TAP {
		d.Kind = device.TAP
	}
	for _, r := range c.Via {
		d.Routes = append(d.Routes, r.Route)
	}
	return d
}

// mtu is what was asked for, 0 for the largest.
func (c *upCommand) mtu() int {
	if c.MTU == nil {
		return 0
	}
	return *c.MTU
}

func (c *upCommand) addresses() (all []netip.Prefix) {
	for _, a := range c.Addr {
		all = append(all, a.Prefix)
	}
	return all
}

// exn is how the interface works.
func (c *upCommand) exn(node fabric.Node, log *slog.Logger) exn.Config {
	e := exn.Config{Node: node, Addresses: c.addresses(), Prefix: c.MACPrefix.Prefix, BusyPoll: c.BusyPoll,
		VELOBudget: c.VELOBudget, RMABudget: c.RMABudget, DeviceBudget: c.DeviceBudget, ITR: c.ITR.ITR,
		Eager: c.Eager, MulticastEager: c.MulticastEager, Copy: c.Copy, Buffers: c.Buffers, Stay: !c.Follow, AllMulticast: c.AllMulticast, Log: log}
	if c.Mode == "irq" {
		e.Mode = napi.InterruptDriven
	}
	if e.Mode == napi.InterruptDriven || c.BusyPoll == 0 {
		e.BusyPoll = -1 // none; the zero value is the default
	}
	for _, r := range c.Via {
		e.Routes = append(e.Routes, r.Route)
	}
	return e
}
