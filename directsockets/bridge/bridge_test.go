package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/test/leak"
	"exnet/test/netns"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience is how long the registrar may take: its pauses, on a busy machine.
const patience = time.Minute

// A host is a network namespace with a registrar.
type host struct {
	testing.TB
	ns     *netns.NetNS
	bridge netns.End
	fabric string
	mu     sync.Mutex
	log    strings.Builder
}

func (h *host) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

func (h *host) said(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.log.String(), what)
}

// newHost makes a host with a bridge.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{TB: t, ns: netns.New(t), fabric: t.TempDir()}
	h.bridge = netns.End{NS: h.ns, Link: "bridge0", Addr: []string{"10.9.0.1/24", "fd00:9::1/64"}}
	netns.Bridge(t, h.bridge)
	return h
}

// register starts a registrar, in mounts of its own after f, and waits until it is ready. end stops
// it.
func (h *host) register(f func() error, names ...string) (end func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, result := make(chan bool, 1), make(chan error, 1)
	var over sync.WaitGroup
	over.Go(func() {
		// not unlocked: the thread has left our mounts, and ends with the goroutine
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		if err == nil {
			err = f()
		}
		if err == nil {
			h.ns.Do(h, func() {
				var r *Registrar
				if r, err = Open(h.fabric, names, slog.New(slog.NewTextHandler(h, nil))); err == nil {
					err = r.Run(ctx, func() { ready <- true })
				}
			})
		}
		result <- err
	})
	end = sync.OnceFunc(func() {
		cancel()
		over.Wait()
		if err := <-result; err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(end)
	select {
	case <-ready:
	case err := <-result:
		result <- err
		h.Fatal(err)
	}
	return end
}

func nothing() error { return nil }

// container makes a network namespace on the bridge, with a process in it if inhabited.
func (h *host) container(port string, inhabited bool, addresses ...string) *netns.NetNS {
	h.Helper()
	ns := netns.New(h)
	if inhabited {
		h.inhabit(ns)
	}
	netns.Plug(h, h.bridge, port, netns.End{NS: ns, Link: "eth0", Addr: addresses})
	return ns
}

func (h *host) inhabit(ns *netns.NetNS) (leave func()) {
	h.Helper()
	cmd := exec.Command("sleep", "1000000")
	if err := ns.Start(cmd); err != nil {
		h.Fatal(err)
	}
	leave = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	h.Cleanup(leave)
	return leave
}

func (h *host) find(address string) uint64 {
	cookie, err := home.Find(h.fabric, netip.MustParseAddr(address))
	if err != nil && !errors.Is(err, home.ErrUnknown) {
		h.Error(err)
	}
	return cookie
}

// want waits until the addresses lead to these namespaces; nil means to none.
func (h *host) want(all map[string]*netns.NetNS) {
	h.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var wrong []string
		for a, ns := range all {
			want := uint64(0)
			if ns != nil {
				want = ns.Cookie(h)
			}
			if got := h.find(a); got != want {
				wrong = append(wrong, fmt.Sprintf("%s leads to %x, want %x", a, got, want))
			}
		}
		if wrong == nil {
			return
		}
		if time.Since(begin) > patience {
			h.Fatalf("%s\n%s", strings.Join(wrong, "; "), h.log.String())
		}
	}
}

func TestWhoIsOnABridge(t *testing.T) {
	h := newHost(t)
	other := netns.End{NS: h.ns, Link: "bridge1", Addr: []string{"10.10.0.1/24"}}
	netns.Bridge(t, other)
	elsewhere, outside := netns.New(t), netns.New(t)
	h.inhabit(elsewhere)
	h.inhabit(outside)
	netns.Plug(t, other, "port9", netns.End{NS: elsewhere, Link: "eth0", Addr: []string{"10.10.0.9/24"}})
	netns.Veth(t, netns.End{NS: outside, Link: "eth0", Addr: []string{"10.9.0.8/24"}}, netns.End{NS: h.ns, Link: "no-port"})
	a := h.container("port2", true, "10.9.0.2/24", "fd00:9::2/64", "10.77.0.2/24")
	b := h.container("port3", true, "10.9.0.3/32")
	netns.Veth(t, netns.End{NS: a, Link: "eth1", Addr: []string{"10.9.0.7/32"}}, netns.End{NS: b, Link: "eth1"})
	end := h.register(nothing, "bridge0", "bridge7")
	for address, want := range map[string]*netns.NetNS{
		"10.9.0.1": h.ns, "fd00:9::1": h.ns, "10.9.0.2": a, "fd00:9::2": a, "10.9.0.3": b,
		"10.10.0.1": nil, "10.10.0.9": nil, // on another bridge
		"10.9.0.8": nil, "10.9.0.7": nil, // of interfaces that are on no bridge
		"10.77.0.2": nil, // in none of the bridge's subnets
	} {
		h.want(map[string]*netns.NetNS{address: want})
	}
	if h.said("there is no such bridge") != 1 || h.said("bridge7") != 1 {
		t.Errorf("of a bridge that is not there it said %q", h.log.String())
	}
	end()
	if _, err := os.Stat(filepath.Join(h.fabric, "addresses")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the addresses were not taken back: %v", err)
	}
}

// veth joins a namespace with a process in it to the host, without a bridge.
func (h *host) veth(link string, own, theirs []string) *netns.NetNS {
	h.Helper()
	ns := netns.New(h)
	h.inhabit(ns)
	netns.Veth(h, netns.End{NS: ns, Link: "eth0", Addr: theirs}, netns.End{NS: h.ns, Link: link, Addr: own})
	return ns
}

func (h *host) route(change func(*netlink.Route) error, link, to, gateway string) {
	h.Helper()
	h.ns.Do(h, func() {
		changeLink(h, link, func(l netlink.Link) error {
			dst, err := netlink.ParseIPNet(to)
			if err != nil {
				return err
			}
			return change(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: net.ParseIP(gateway)})
		})
	})
}

// A veth that is on no bridge leads to the addresses that are routed to it.
func TestRoutes(t *testing.T) {
	h := newHost(t)
	h.ns.Do(t, func() { changeAddress(t, "lo", netlink.AddrAdd, "10.8.0.1/32") })
	one := h.veth("one", nil, []string{"10.20.0.2/32", "10.20.0.3/32", "10.9.0.1/24", "10.30.0.2/30", "fd00:20::2/128"})
	h.route(netlink.RouteAdd, "one", "10.20.0.2/32", "")
	h.route(netlink.RouteAdd, "one", "fd00:20::2/128", "")
	subnet := h.veth("subnet", []string{"10.30.0.1/30"}, []string{"10.30.0.2/30", "10.50.0.1/32"})
	h.route(netlink.RouteAdd, "subnet", "10.50.0.0/24", "10.30.0.2")
	h.veth("none", nil, []string{"10.60.0.2/24"})
	h.veth("outward", []string{"10.40.0.2/24"}, []string{"10.40.0.1/24"})
	h.route(netlink.RouteAdd, "outward", "0.0.0.0/0", "10.40.0.1")
	all := map[string]*netns.NetNS{
		"10.20.0.2": one, "fd00:20::2": one,
		"10.8.0.1":  h.ns, // the kernel's source address for them
		"10.30.0.1": h.ns, "10.30.0.2": subnet,
		"10.9.0.1":  h.ns,                  // although a container claims it
		"10.20.0.3": nil,                   // no route
		"10.50.0.1": nil,                   // through a gateway
		"10.40.0.1": nil, "10.40.0.2": nil, // the default route: others are behind it
		"10.60.0.2": nil,
	}
	h.register(nothing)
	h.want(all)
	h.quiet()
	h.route(netlink.RouteDel, "one", "10.20.0.2/32", "")
	all["10.20.0.2"], all["10.8.0.1"] = nil, nil
	h.want(all)
	h.quiet()
	h.route(netlink.RouteAdd, "one", "10.20.0.2/32", "")
	all["10.20.0.2"], all["10.8.0.1"] = one, h.ns
	h.want(all)
}

func TestRouteByName(t *testing.T) {
	h := newHost(t)
	h.veth("other", []string{"10.20.0.1/30"}, []string{"10.20.0.2/30"})
	named := h.veth("named", []string{"10.30.0.1/30"}, []string{"10.30.0.2/30"})
	h.register(nothing, "named")
	h.want(map[string]*netns.NetNS{"10.30.0.1": h.ns, "10.30.0.2": named, "10.20.0.1": nil, "10.20.0.2": nil, "10.9.0.1": nil})
}

// Without names the registrar covers all bridges, even later ones.
func TestComeAndGo(t *testing.T) {
	h := newHost(t)
	h.register(nothing)
	h.want(map[string]*netns.NetNS{"10.9.0.1": h.ns})
	a := h.container("port2", true, "10.9.0.2/24")
	h.want(map[string]*netns.NetNS{"10.9.0.2": a})
	netns.Bridge(t, netns.End{NS: h.ns, Link: "bridge1", Addr: []string{"10.10.0.1/24"}})
	h.want(map[string]*netns.NetNS{"10.10.0.1": h.ns, "10.9.0.2": a})
	// A change inside a container alone is noticed, too.
	h.quiet()
	a.Do(t, func() { changeAddress(t, "eth0", netlink.AddrAdd, "10.9.0.4/24") })
	h.want(map[string]*netns.NetNS{"10.9.0.4": a, "10.9.0.2": a})
	h.quiet()
	a.Do(t, func() { changeAddress(t, "eth0", netlink.AddrDel, "10.9.0.4/24") })
	h.want(map[string]*netns.NetNS{"10.9.0.4": nil, "10.9.0.2": a})
	h.unplug("port2")
	h.want(map[string]*netns.NetNS{"10.9.0.2": nil, "10.9.0.1": h.ns})
	// The next container with that address is another one.
	b := h.container("port3", true, "10.9.0.2/24")
	h.want(map[string]*netns.NetNS{"10.9.0.2": b})
}

// If two containers have one address, one of them lies.
func TestDispute(t *testing.T) {
	h := newHost(t)
	h.register(nothing)
	a := h.container("port2", true, "10.9.0.2/24", "10.9.0.4/24")
	h.want(map[string]*netns.NetNS{"10.9.0.2": a})
	h.container("port3", true, "10.9.0.2/24", "10.9.0.1/24")
	h.want(map[string]*netns.NetNS{"10.9.0.2": nil, "10.9.0.1": nil, "10.9.0.4": a})
	h.unplug("port3")
	h.want(map[string]*netns.NetNS{"10.9.0.2": a, "10.9.0.1": h.ns, "10.9.0.4": a})
	if n := h.said("two network namespaces have one address"); n != 2 {
		t.Errorf("told %d times of 2 addresses:\n%s", n, h.log.String())
	}
}

// A namespace without processes is found where it is mounted, or when a process enters it.
func TestNobodyInIt(t *testing.T) {
	h := newHost(t)
	mounted, empty := h.container("port2", false, "10.9.0.2/24"), h.container("port3", false, "10.9.0.3/24")
	place := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(place, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.register(func() error { return unix.Mount(mounted.String(), place, "", unix.MS_BIND, "") })
	h.want(map[string]*netns.NetNS{"10.9.0.2": mounted, "10.9.0.3": nil})
	h.quiet()
	h.inhabit(empty)
	h.want(map[string]*netns.NetNS{"10.9.0.2": mounted, "10.9.0.3": empty})
}

// Other registrars in this directory may remove its subdirectory when they end.
func TestOthersEnd(t *testing.T) {
	h := newHost(t)
	h.ns.Do(t, func() { changeLink(t, "bridge0", netlink.LinkDel) })
	h.register(nothing)
	other, err := home.Register(h.fabric, 1)
	if err == nil {
		err = other.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	netns.Bridge(t, h.bridge)
	h.want(map[string]*netns.NetNS{"10.9.0.1": h.ns})
	// A failed registration is tried again, even if nothing changes.
	sub := filepath.Join(h.fabric, "addresses")
	if err := errors.Join(os.Rename(sub, sub+"-"), os.WriteFile(sub, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	a := h.container("port2", true, "10.9.0.2/24")
	h.quiet()
	if err := errors.Join(os.Remove(sub), os.Rename(sub+"-", sub)); err != nil {
		t.Fatal(err)
	}
	h.want(map[string]*netns.NetNS{"10.9.0.1": h.ns, "10.9.0.2": a})
}

// quiet waits until there has been no change that the registrar hears of for some time.
func (h *host) quiet() {
	h.Helper()
	var events *os.File
	h.ns.Do(h, func() {
		var err error
		if events, err = listen(); err != nil {
			h.Fatal(err)
		}
	})
	defer events.Close()
	for err := error(nil); err == nil; {
		if err = events.SetReadDeadline(time.Now().Add(2 * time.Second)); err == nil {
			_, err = events.Read(make([]byte, 1))
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			h.Fatal(err)
		}
	}
}

func (h *host) unplug(port string) {
	h.Helper()
	h.ns.Do(h, func() { changeLink(h, port, netlink.LinkDel) })
}

func changeLink(tb testing.TB, name string, change func(netlink.Link) error) {
	tb.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = change(link)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func changeAddress(tb testing.TB, link string, change func(netlink.Link, *netlink.Addr) error, prefix string) {
	tb.Helper()
	address, err := netlink.ParseAddr(prefix)
	if err != nil {
		tb.Fatal(err)
	}
	changeLink(tb, link, func(l netlink.Link) error { return change(l, address) })
}

// A container behind a wide route cannot take an address that a narrower route leads elsewhere, or
// the host's own.
func TestNarrowerRoute(t *testing.T) {
	h := newHost(t)
	h.veth("nic", []string{"10.70.5.1/24"}, nil)
	h.route(netlink.RouteAdd, "nic", "0.0.0.0/0", "10.70.5.254")
	elsewhere := []string{"10.70.5.9", "10.70.5.1", "10.70.6.7"}
	wide := h.veth("wide", nil, []string{"10.70.0.2/32", "10.70.5.9/32", "10.70.5.1/32", "10.70.6.7/32"})
	h.route(netlink.RouteAdd, "wide", "10.70.0.0/16", "")
	h.veth("narrow", nil, nil)
	h.route(netlink.RouteAdd, "narrow", "10.70.6.0/24", "")
	h.register(nothing)
	h.want(map[string]*netns.NetNS{"10.70.0.2": wide})
	for _, a := range elsewhere {
		if h.find(a) == wide.Cookie(t) {
			t.Errorf("%s leads to the namespace behind a wide route; the host sends it elsewhere", a)
		}
	}
}
