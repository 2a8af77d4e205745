package bridge

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/exn/netns"
)

// A member is an interface that is on a bridge, or at the end of a route.
type member struct {
	cookie    uint64 // of its namespace
	path      string // where that was found; "": ours
	addresses []netip.Addr
}

type membership struct {
	all     []member
	names   []string // of the interfaces considered
	missing bool     // the namespace of a port was not found
}

// A port leads to an interface of another namespace.
type port struct {
	index int // in the other namespace
	// our veth by which it is routed to; 0: it is on a bridge, where others find it themselves
	route   int
	subnets []netip.Prefix
}

// A way is an interface of this namespace that leads to others: a bridge, or a veth that is on
// none.
type way struct {
	subnets []netip.Prefix // that are reached through it
	own     []netip.Addr   // addresses of this namespace that the others see
}

// members returns the members at the bridges and veths with these names, or at all if there are no
// names. The interfaces themselves are in this namespace, which has the cookie mine.
func members(names []string, mine uint64) (membership, error) {
	var found membership
	links, err := whole(netlink.LinkList)
	if err != nil {
		return found, fmt.Errorf("list links: %w", err)
	}
	addresses, err := prefixesByLink()
	if err != nil {
		return found, err
	}
	routes, err := routesByLink()
	if err != nil {
		return found, err
	}
	ways := make(map[int]way) // by index
	for _, l := range links {
		a := l.Attrs()
		if len(names) > 0 && !slices.Contains(names, a.Name) || l.Type() != "bridge" && !(l.Type() == "veth" && a.MasterIndex == 0) {
			continue
		}
		w := wayBy(l, addresses[a.Index], routes[a.Index])
		ways[a.Index] = w
		found.names = append(found.names, a.Name)
		found.all = append(found.all, member{cookie: mine, addresses: w.own})
	}
	ports := make(map[int][]port) // by our number for the other namespace
	for _, l := range links {
		a := l.Attrs()
		w := ways[cmp.Or(a.MasterIndex, a.Index)]
		if l.Type() == "veth" && a.NetNsID >= 0 && len(w.subnets) > 0 {
			p := port{a.ParentIndex, 0, w.subnets}
			if a.MasterIndex == 0 {
				p.route = a.Index
			}
			ports[a.NetNsID] = append(ports[a.NetNsID], p)
		}
	}
	err = namespaces(func(path string, ns *netns.NS) error {
		nsid, err := netlink.GetNetNsIdByFd(ns.Fd()) // -1: it has none
		if err != nil || len(ports[nsid]) == 0 {
			return err
		}
		m, err := beyond(ns, ports[nsid])
		m.path = path
		found.all = append(found.all, m)
		delete(ports, nsid)
		return err
	}, func() bool { return len(ports) == 0 })
	found.missing = len(ports) > 0
	return found, err
}

// routesByLink returns the subnets that this namespace considers directly reachable. Links of the
// default route are left out: what is behind them is not below us.
func routesByLink() (map[int][]netip.Prefix, error) {
	all, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	subnets, outward := make(map[int][]netip.Prefix), make(map[int]bool)
	for _, r := range all {
		to, known := netip.Prefix{}, false
		if r.Dst != nil {
			a, is := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			to, known = netip.PrefixFrom(a, bits), is
		}
		switch {
		case !known || to.Bits() == 0:
			outward[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				outward[hop.LinkIndex] = true
			}
		case r.Type == unix.RTN_UNICAST && r.Gw == nil && r.Via == nil:
			subnets[r.LinkIndex] = append(subnets[r.LinkIndex], to)
		}
	}
	for link := range outward {
		delete(subnets, link)
	}
	return subnets, nil
}

// wayBy returns the way through a link; it is empty if the link leads nowhere.
func wayBy(l netlink.Link, addresses, routes []netip.Prefix) way {
	w := way{subnets: routes, own: inside(addresses, addresses)}
	if l.Type() == "bridge" {
		w.subnets = addresses
		return w
	}
	if len(routes) == 0 {
		return way{}
	}
	for _, to := range routes {
		// an interface that leads to one address needs no address of its own
		if !to.IsSingleIP() || to.Addr().IsLinkLocalUnicast() {
			continue
		}
		if chosen, is := leads(to.Addr(), l.Attrs().Index); is {
			if a, is := netip.AddrFromSlice(chosen.Src); is {
				w.own = append(w.own, a.Unmap())
			}
		}
	}
	return w
}

// beyond looks at the interfaces of another namespace that ports lead to.
func beyond(ns *netns.NS, ports []port) (m member, err error) {
	if m.cookie, err = ns.Cookie(); err != nil {
		return m, err
	}
	type candidate struct {
		address netip.Addr
		route   int
	}
	var candidates []candidate
	err = ns.Do(func() error {
		links, err := whole(netlink.LinkList)
		if err != nil {
			return err
		}
		addresses, err := prefixesByLink()
		if err != nil {
			return err
		}
		for _, l := range links {
			i := slices.IndexFunc(ports, func(p port) bool { return p.index == l.Attrs().Index })
			if i < 0 {
				continue
			}
			for _, a := range inside(addresses[l.Attrs().Index], ports[i].subnets) {
				candidates = append(candidates, candidate{a, ports[i].route})
			}
		}
		return nil
	})
	for _, c := range candidates {
		if c.route != 0 {
			if _, is := leads(c.address, c.route); !is {
				continue
			}
		}
		m.addresses = append(m.addresses, c.address)
	}
	return m, err
}

// leads reports whether this namespace sends to an address directly through that link, and with
// which route. A narrower route or a rule may lead elsewhere, or the address may be our own.
func leads(to netip.Addr, link int) (netlink.Route, bool) {
	chosen, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(chosen) == 0 || chosen[0].LinkIndex != link || chosen[0].Gw != nil || chosen[0].Via != nil {
		return netlink.Route{}, false
	}
	return chosen[0], true
}

// prefixesByLink returns the addresses of this namespace with the length of their subnets.
func prefixesByLink() (map[int][]netip.Prefix, error) {
	list, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	all := make(map[int][]netip.Prefix)
	for _, a := range list {
		addr, is := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		if is && !addr.IsLinkLocalUnicast() {
			all[a.LinkIndex] = append(all[a.LinkIndex], netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return all, nil
}

// inside returns the addresses that lie in the subnets.
func inside(all, subnets []netip.Prefix) (some []netip.Addr) {
	for _, a := range all {
		if slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a.Addr()) }) {
			some = append(some, a.Addr())
		}
	}
	return some
}

// whole repeats a list request until the kernel's list did not change meanwhile.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 100 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// namespaces calls f for each network namespace but this one, until enough returns true: first
// those of processes, then those that are mounted.
func namespaces(f func(path string, ns *netns.NS) error, enough func() bool) error {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("the network namespace of this process: %w", err)
	}
	seen := map[string]bool{own: true}
	visit := func(name, path string) error {
		if seen[name] || enough() {
			return nil
		}
		ns, err := netns.Open(path)
		if err != nil {
			return nil // it has ended, or is of another kind
		}
		defer ns.Close()
		seen[name] = true
		return f(path, ns)
	}
	var errs []error
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, process := range processes {
		path := filepath.Join(process, "ns/net")        // only its user may list the directory ns itself
		if name, err := os.Readlink(path); err == nil { // it may have ended
			errs = append(errs, visit(name, path))
		}
	}
	mounts, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		const root, at = 3, 4 // proc_pid_mountinfo(5)
		if field := strings.Fields(lines.Text()); len(field) > at && strings.HasPrefix(field[root], "net:[") {
			errs = append(errs, visit(field[root], field[at]))
		}
	}
	return errors.Join(errs...)
}
