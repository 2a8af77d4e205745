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
	Config  configFile     `help:"Read flags from a TOML file: names are keys, those given here win." placeholder:"FILE.toml"`
	Fabric  string         `help:"The fabric directory (default: EXN_FABRIC, else /run/exn for root)." placeholder:"DIR"`
	Node    *fabric.NodeID `help:"The node ID on the fabric (default: the lowest free one)." placeholder:"N"`
	Addr    []addressFlag  `help:"An address with the length of its subnet; repeatable (as ip address add)." placeholder:"ADDR/BITS"`
	Via     []routeFlag    `help:"A route through another node; repeatable (as ip route add PREFIX via ADDR)." placeholder:"PREFIX=ADDR"`
	Netns   string         `help:"The network namespace of the interface, which must exist: a name (ip netns), or a path." placeholder:"NAME"`
	Name    string         `help:"The name of the interface." default:"${name}"`
	MTU     *int           `help:"The MTU: 68 to 65535, or to 65521 with --tap (default: the largest)." placeholder:"N"`
	TAP     bool           `name:"tap" help:"An Ethernet device, for DHCP and other protocols than IP; slower."`
	Offload offloadFlag    `help:"What packets may leave undone: csum, tso, uso, big; all or none (later: ethtool -K)." default:"all" placeholder:"LIST"`

	Mode           string        `help:"How packets are received: napi (poll while there are some) or irq." enum:"napi,irq" default:"napi"`
	BusyPoll       time.Duration `help:"How long to poll on after the last packet; 0s: not at all." default:"${busyPoll}"`
	VELOBudget     int           `help:"The most messages of one VELO poll." default:"${veloBudget}"`
	RMABudget      int           `help:"The most notifications of one RMA poll." default:"${budget}"`
	DeviceBudget   int           `help:"The most packets of one poll of the interface." default:"${budget}"`
	ITR            itrFlag       `name:"itr" help:"Interrupt throttling: off, dynamic, or interrupts per second (as ethtool -C)." default:"off" placeholder:"POLICY"`
	Eager          int           `help:"The longest frame sent in VELO messages, in bytes." default:"${eager}"`
	MulticastEager int           `help:"The same to a group." default:"${multicastEager}"`
	Copy           bool          `help:"Fetch by a copying GET, also where the peer's memory is mapped."`
	Buffers        int           `help:"How many frames may wait to be fetched." default:"${buffers}"`
	Follow         bool          `help:"Keep the polling thread on the CPU of the programs whose bulk it takes, where CPUs are scarce." default:"true" negatable:""`
	AllMulticast   bool          `help:"Receive all multicast, whatever was joined (as ip link set allmulticast on)."`
	MACPrefix      macPrefixFlag `name:"mac-prefix" help:"The first four octets of MAC addresses, the same on all nodes." default:"${macPrefix}" placeholder:"OCTETS"`

	Metrics string          `help:"Serve Prometheus metrics by HTTP at this address, such as 127.0.0.1:9750 (default: not)." placeholder:"ADDR"`
	Route   []routePortFlag `sep:";" help:"Be an IP router instead of an interface: between --fabric with --addr, and this fabric; repeatable." placeholder:"DIR,addr=ADDR/BITS[,node=N][,mtu=N][,via=PREFIX=ADDR]"`
	Verbose bool            `help:"Log what is normal, too."`
}

// Help is shown by exn-tun help up.
func (*upCommand) Help() string {
	return `Runs in the foreground. That it is ready is said on standard error, by a line with
"ready:", and to systemd (Type=notify). SIGTERM, SIGINT and SIGHUP end it; the interface goes with it. After a crash the
interface stays, and the next up of the same name adopts it.

With --route it is no interface but an IP router, which needs no root: it joins the subnet of --addr on --fabric with
those of other fabrics; show, capture and --metrics have each port as an interface. Nodes on either side need a route:
exn-tun up --via 10.2.0.0/24=10.1.0.1.

	exn-tun up --fabric /run/a --addr 10.1.0.1/24 --route /run/b,addr=10.2.0.1/24

Exit codes: 0 ended by a signal, 1 failed, 2 wrong flag or configuration, 3 the node ID, the name or an address belongs
to somebody else, 4 not possible here (no root, no /dev/net/tun, no such namespace), 5 the fabric is of another version.`
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
