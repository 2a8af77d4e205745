package faults

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"exnet/test/exn"
)

// The fabric directory is deleted under running nodes. Nodes that joined stay joined, no other node
// can join, and the nodes end in an orderly way.
func TestFabricDirectoryDeleted(t *testing.T) {
	f := exn.Up(t, exn.Options{})
	f.OnlyExn("there is no fabric directory")
	a, b := f.Nodes[0], f.Nodes[1]
	flow := a.Flow(b, b.IPv4)
	flow.Await(some)
	if err := os.RemoveAll(f.Fabric); err != nil {
		t.Fatal(err)
	}
	flow.Await(some)
	flow.Stop()
	if !a.Carrier() || !b.Carrier() {
		t.Error("no carrier, though the nodes are joined still")
	}
	connects(t, b, a, a.IPv6)
	b.Leave()
	a.Leave()
}

// The interface is removed from outside. Its daemon reports that and ends. The others go on, and
// the daemon can be started again.
func TestInterfaceRemoved(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 3})
	f.OnlyExn("there is no daemon to notice")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
	flow := a.Flow(c, c.IPv4)
	flow.Await(some)
	b.NS.Do(t, func() {
		link, err := netlink.LinkByName(exn.Link)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if state := b.Ended(); state.ExitCode() <= 0 {
		t.Errorf("exn-tun without its interface: %v", state)
	}
	if said := b.Said(); !strings.Contains(said, exn.Link) {
		t.Errorf("it does not name the interface that is gone:\n%s", said)
	}
	flow.Await(some)
	b.Restart()
	connects(t, a, b, b.IPv4)
	flow.Stop()
}

// The administrator sets the interface down and up again.
func TestInterfaceDownAndUp(t *testing.T) {
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	flow := a.Flow(b, b.IPv4)
	flow.Await(some)
	for _, set := range []func(netlink.Link) error{netlink.LinkSetDown, netlink.LinkSetUp} {
		b.NS.Do(t, func() {
			link, err := netlink.LinkByName(exn.Link)
			if err == nil {
				err = set(link)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	flow.Await(some)
	flow.Stop()
}
