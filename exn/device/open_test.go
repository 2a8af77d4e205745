package device

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/arp"
	"exnet/exteth"
	"exnet/test/netns"
)

var node7 = arp.DefaultPrefix.MAC(7)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func open(t *testing.T, c Config) *TunTap {
	t.Helper()
	c.MAC = node7
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// linkIn looks up an interface in a namespace; nil means that there is none.
func linkIn(t *testing.T, ns *netns.NetNS, name string) (link netlink.Link) {
	t.Helper()
	ns.Do(t, func() {
		var err error
		if link, err = netlink.LinkByName(name); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
			t.Fatal(err)
		}
	})
	return link
}

func hasAddresses(t *testing.T, d *TunTap, want ...string) {
	t.Helper()
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range s.Addresses {
		got = append(got, a.Prefix.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
}

const linkLocal7 = "fe80::2c87:4ff:fe07:7/64"

func TestTUN(t *testing.T) {
	ns := netns.New(t)
	d := open(t, Config{Namespace: ns.String(), Addresses: prefixes("10.2.0.8/24", "10.3.0.8/16", "fd00::8/64"), Owner: "node 7"})
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.Flags&unix.IFF_LOWER_UP != 0 {
		t.Error("there is a carrier before there is one")
	}
	const flags = unix.IFF_UP | unix.IFF_POINTOPOINT | unix.IFF_NOARP | unix.IFF_MULTICAST
	if s.Name != "exn0" || s.MTU != 65535 || s.TxQueueLen != 1000 || s.Flags&flags != flags || s.MAC != "" {
		t.Errorf("got %+v", s)
	}
	if d.Name() != "exn0" || d.MTU() != 65535 || d.Kind() != TUN || d.Adopted() {
		t.Errorf("got %s, %d, %v, %v", d.Name(), d.MTU(), d.Kind(), d.Adopted())
	}
	if i := slices.IndexFunc(s.Addresses, func(a Address) bool { return a.Prefix.String() == "10.3.0.8/16" }); i < 0 ||
		s.Addresses[i].Broadcast.String() != "10.3.255.255" {
		t.Errorf("addresses %+v", s.Addresses)
	}
	hasAddresses(t, d, "10.2.0.8/24", "10.3.0.8/16", "fd00::8/64", linkLocal7)
	if alias := linkIn(t, ns, "exn0").Attrs().Alias; alias != "exnet: node 7" {
		t.Errorf("alias %q", alias)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if linkIn(t, ns, "exn0") != nil {
		t.Error("the interface is still there after Close")
	}
	if err := errors.Join(d.SetCarrier(true), d.SetOffloads(0)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestTAP(t *testing.T) {
	ns := netns.New(t)
	d := open(t, Config{Kind: TAP, Name: "tap7", Namespace: ns.String(), Addresses: prefixes("10.2.0.8/24"), MTU: 9000})
	if err := errors.Join(d.SetCarrier(true), d.WaitRunning(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	if s.MAC != "2e:87:04:07:00:07" || s.MTU != 9000 || s.Flags&unix.IFF_BROADCAST == 0 {
		t.Errorf("got %+v", s)
	}
	hasAddresses(t, d, "10.2.0.8/24", linkLocal7)
}

// Without IPv6 there is no link-local address, and an IPv6 address is refused.
func TestWithoutIPv6(t *testing.T) {
	ns := netns.New(t)
	ns.Do(t, func() { // /proc/sys/net shows the thread's namespace
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			t.Skip("cannot switch IPv6 off in a namespace: ", err)
		}
	})
	d := open(t, Config{Namespace: ns.String(), Addresses: prefixes("10.2.0.8/24")})
	hasAddresses(t, d, "10.2.0.8/24")
	_, err := Open(Config{Name: "exn1", Namespace: ns.String(), MAC: node7, Addresses: prefixes("fd00::8/64")})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "disable_ipv6") {
		t.Errorf("got %v", err)
	}
	if linkIn(t, ns, "exn1") != nil {
		t.Error("a failed Open has left its interface")
	}
}

func TestRoutes(t *testing.T) {
	ns := netns.New(t)
	near, far := netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.4.0.1")
	c := Config{Namespace: ns.String(), Addresses: prefixes("10.2.0.8/24", "fd00::8/64"), Routes: []Route{
		{prefixes("10.3.0.0/16")[0], near}, {prefixes("fd01::/64")[0], netip.MustParseAddr("fd00::1")}}}
	d := open(t, c)
	ns.Do(t, func() {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: d.index, Protocol: unix.RTPROT_STATIC},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
		if err != nil || len(routes) != 2 || routes[0].Dst.String() != "10.3.0.0/16" || !routes[0].Gw.Equal(near.AsSlice()) {
			t.Errorf("got %v, %v", routes, err)
		}
	})
	c.Name, c.Routes = "exn1", []Route{{prefixes("10.5.0.0/16")[0], far}}
	if _, err := Open(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "in the subnet") {
		t.Errorf("a gateway that is not on the link: %v", err)
	}
	c.Routes[0].Gateway = netip.MustParseAddr("fd00::1")
	if _, err := Open(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "same family") {
		t.Errorf("a gateway of another family: %v", err)
	}
}

func TestCarrier(t *testing.T) {
	ns := netns.New(t)
	d := open(t, Config{Namespace: ns.String()})
	for _, on := range []bool{false, true} {
		if err := d.SetCarrier(on); err != nil {
			t.Fatal(err)
		}
		s, err := d.Status()
		if err != nil || s.Flags&unix.IFF_LOWER_UP != 0 != on {
			t.Errorf("carrier %v: flags %#x, %v", on, s.Flags, err)
		}
	}
}

func crashing(ns string) Config {
	return Config{Namespace: ns, MAC: arp.DefaultPrefix.MAC(3), Addresses: prefixes("10.2.0.3/24", "10.2.0.8/24")}
}

// A killed process leaves its interface without a carrier. The next Open adopts it, with the
// addresses that both have.
func TestAdoption(t *testing.T) {
	ns := netns.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderNamespace+"="+ns.String())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line == "open\n" {
		if _, err := Open(Config{Namespace: ns.String(), MAC: node7}); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("the interface of a living process: %v", err)
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if line != "open\n" {
		t.Fatal(line)
	}
	left := linkIn(t, ns, "exn0")
	if left == nil || left.Attrs().RawFlags&(unix.IFF_LOWER_UP|unix.IFF_UP) != unix.IFF_UP {
		t.Fatalf("left behind: %+v", left)
	}
	ns.Do(t, func() { // as a DHCP client does
		lease := &netlink.Addr{IPNet: &netip4.lease, ValidLft: 600, PreferedLft: 600}
		if err := netlink.AddrAdd(left, lease); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Open(Config{Namespace: ns.String(), Kind: TAP, MAC: node7}); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "of another kind") {
		t.Errorf("a TUN as TAP: %v", err)
	}
	d := open(t, Config{Namespace: ns.String(), Addresses: prefixes("10.2.0.8/24", "fd00::8/64")})
	if !d.Adopted() {
		t.Error("not adopted")
	}
	if got := linkIn(t, ns, "exn0"); got.Attrs().Index != left.Attrs().Index || got.Attrs().RawFlags&unix.IFF_UP == 0 {
		t.Errorf("adopted: %+v", got)
	}
	hasAddresses(t, d, "10.2.0.8/24", "10.9.0.9/24", "fd00::8/64", linkLocal7)
	if d.Close(); linkIn(t, ns, "exn0") != nil {
		t.Error("an adopted interface is not removed")
	}
}

func TestNameTaken(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	netns.Veth(t, netns.End{NS: a, Link: "exn0"}, netns.End{NS: b, Link: "exn0"})
	a.Do(t, func() {
		foreign := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "exn1"}, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI}
		if err := netlink.LinkAdd(foreign); err != nil {
			t.Fatal(err)
		}
	})
	for name, says := range map[string]string{"exn0": "a veth", "exn1": "a tuntap"} {
		_, err := Open(Config{Name: name, Namespace: a.String(), MAC: node7})
		if !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", name, err, says)
		}
		if linkIn(t, a, name) == nil {
			t.Errorf("%s of somebody else is gone", name)
		}
	}
}

func TestNoSuchNamespace(t *testing.T) {
	for ns, says := range map[string]string{
		"exnet-no-such": "ip netns add", "/no/such": "ip netns add",
		"/proc/self/ns/uts": "is not a network namespace", "/dev/null": "is not a network namespace",
	} {
		if _, err := Open(Config{Namespace: ns}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", ns, err, says)
		}
	}
}

// onThread calls f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func TestNotPermitted(t *testing.T) {
	ns := netns.New(t)
	onThread(func() {
		head, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&head, &none[0]); err != nil {
			t.Error(err)
			return
		}
		for _, c := range []Config{{Name: "exnet-test"}, {Namespace: ns.String()}} {
			if _, err := Open(c); !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "run as root") {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}

func TestNoTunDevice(t *testing.T) {
	netns.New(t) // skips without the permission
	onThread(func() {
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS|unix.CLONE_NEWNET),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/dev/net", "tmpfs", 0, ""))
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := Open(Config{}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "modprobe tun") {
			t.Errorf("got %v", err)
		}
	})
}

func TestOffloadsAreShown(t *testing.T) {
	ns := netns.New(t)
	d := open(t, Config{Namespace: ns.String(), Offloads: exteth.CapAll})
	if d.Offloads() != exteth.CapAll {
		t.Errorf("got %v", d.Offloads())
	}
	if err := d.SetOffloads(exteth.CapTSO4); !errors.Is(err, ErrConfig) || d.Offloads() != exteth.CapAll {
		t.Errorf("got %v, %v", d.Offloads(), err)
	}
	if err := d.SetOffloads(0); err != nil || d.Offloads() != 0 {
		t.Errorf("got %v, %v", d.Offloads(), err)
	}
}

// Big packets can be taken while nothing is forwarded. A watcher hears when that changes.
func TestBigPackets(t *testing.T) {
	ns := netns.New(t)
	d := open(t, Config{Namespace: ns.String(), Offloads: exteth.CapAll, Addresses: []netip.Prefix{netip.MustParsePrefix("10.7.1.1/24")}})
	if linkIn(t, ns, "exn0").Attrs().GROIPv4MaxSize == 0 {
		t.Skip("this kernel has no BIG TCP over IPv4 (Linux 6.3)")
	}
	netns.Veth(t, netns.End{NS: ns, Link: "on", Addr: []string{"10.7.2.1/24"}}, netns.End{NS: netns.New(t), Link: "end", Addr: []string{"10.7.2.2/24"}})
	d.forwarding.lasts = 3 * time.Second
	heard := make(chan struct{}, 100)
	stop, err := d.WatchAddresses(func([]netip.Prefix) { heard <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	<-heard // the first report comes in any case
	want := func(what string, big bool) {
		t.Helper()
		if got := d.Offloads(); got&exteth.CapBig != 0 != big || got|exteth.CapBig != exteth.CapAll {
			t.Errorf("%s: %v", what, got)
		}
	}
	want("at first", true)
	forwarding := func(name, value string) {
		ns.Do(t, func() {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
				t.Skip("cannot write to /proc/sys to enable forwarding, as in a container: ", err)
			}
		})
	}
	foreign := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x63, 0xc0, 10, 7, 1, 2, 10, 7, 2, 2, 0, 9, 0, 9, 0, 8, 0, 0}
	big := make([]byte, BigPacket) // which the kernel drops
	big[0] = 0x45
	for _, p := range [][]byte{foreign, big} {
		if err := d.Write(p, exteth.VNet{}); err != nil || d.due.Load() != (len(p) == BigPacket) {
			t.Errorf("after %d bytes it is %v that it looks again; %v", len(p), d.due.Load(), err)
		}
	}
	for name, after := range map[string]func(){
		"ip_forward":           func() { forwarding("ip_forward", "0") },
		"conf/exn0/forwarding": func() { forwarding("conf/exn0/forwarding", "0") },
		"conf/all/forwarding":  func() {}, // only time passes
	} {
		forwarding(name, "1")
		// so that it checks for that reason before it checks because of packets
		time.Sleep(100 * time.Millisecond)
		for n, passed := 0, false; !passed; n++ {
			// again, until it has checked both before and after a packet
			if n == 200 {
				t.Fatal("twenty seconds of packets, and nothing was heard")
			}
			for _, p := range [][]byte{foreign, big} {
				if err := d.Write(p, exteth.VNet{}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-heard:
				passed = true
			case <-time.After(100 * time.Millisecond):
			}
		}
		want("packets are passed on with "+name, false)
		after()
		<-heard
		want("no more with "+name, true)
		forwarding(name, "0")
	}
	if err := d.SetOffloads(exteth.CapAll &^ exteth.CapBig); err != nil || d.Offloads() != exteth.CapAll&^exteth.CapBig {
		t.Errorf("switched off: %v, %v", d.Offloads(), err)
	}
}

// A TAP may be a port of a bridge whose other ports do not know big packets.
func TestNoBigPacketsOnTAP(t *testing.T) {
	d := open(t, Config{Kind: TAP, Namespace: netns.New(t).String(), Offloads: exteth.CapAll})
	if d.Offloads() != exteth.CapAll&^exteth.CapBig {
		t.Errorf("%v", d.Offloads())
	}
}
