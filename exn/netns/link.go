package netns

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End is one end of a link.
type End struct {
	NS   *NS
	Link string   // the name of the interface
	MTU  int      // 0: the kernel's default, 1500
	Addr []string // addresses with their prefix lengths
}

// Veth joins two namespaces by a pair of virtual Ethernet interfaces, both up. Their addresses are
// usable at once, because there is no duplicate address detection.
func Veth(a, b End) error {
	err := a.NS.Do(func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: a.Link, MTU: a.MTU})
		pair.PeerName = b.Link
		pair.PeerMTU = uint32(b.MTU)
		pair.PeerNamespace = netlink.NsFd(b.NS.Fd())
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("cannot join %q and %q: %w", a.Link, b.Link, err)
		}
		return nil
	})
	for _, end := range []End{a, b} {
		if err == nil {
			err = end.NS.Do(end.setUp)
		}
	}
	return err
}

// Bridge makes an Ethernet bridge and brings it up.
func Bridge(e End) error {
	err := e.NS.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: e.Link}}); err != nil {
			return fmt.Errorf("cannot make the bridge %q: %w", e.Link, err)
		}
		return nil
	})
	if err == nil {
		err = Configure(e)
	}
	return err
}

// Plug joins a namespace to a bridge by a veth pair. port is the name of the end at the bridge.
func Plug(bridge End, port string, e End) error {
	err := Veth(e, End{NS: bridge.NS, Link: port, MTU: e.MTU})
	if err == nil {
		err = bridge.NS.Do(func() error {
			b, err := find(bridge.Link)
			if err != nil {
				return err
			}
			link, err := find(port)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMasterByIndex(link, b.Attrs().Index); err != nil {
				return fmt.Errorf("cannot put %q into the bridge %q: %w", port, bridge.Link, err)
			}
			return nil
		})
	}
	return err
}

func (e End) setUp() error {
	if err := up(e.Link); err != nil {
		return err
	}
	for _, addr := range e.Addr {
		if err := address(e.Link, addr); err != nil {
			return err
		}
	}
	return nil
}

// Configure brings up an interface that exists in its namespace, and gives it its MTU and
// addresses.
func Configure(e End) error {
	return e.NS.Do(func() error {
		if e.MTU > 0 {
			link, err := find(e.Link)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMTU(link, e.MTU); err != nil {
				return fmt.Errorf("cannot give %q the MTU %d: %w", e.Link, e.MTU, err)
			}
		}
		return e.setUp()
	})
}

// up brings up an interface in the calling thread's namespace.
func up(name string) error {
	link, err := find(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("cannot bring %q up: %w", name, err)
	}
	return nil
}

// address gives an interface an address that is usable at once.
func address(name, prefix string) error {
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		return fmt.Errorf("address %q of %q: %w", prefix, name, err)
	}
	link, err := find(name)
	if err != nil {
		return err
	}
	addr.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("cannot give %q the address %s: %w", name, prefix, err)
	}
	return nil
}

func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("no interface %q: %w", name, err)
	}
	return link, nil
}
