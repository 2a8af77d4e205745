package apps_test

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
	"exnet/test/netns"
)

// DSS-4: containers on a bridge take lanes to each other and to the host, both ways, once
// somebody says who is on it; not before, and not when that has ended.
func TestBridge(t *testing.T) {
	joined(t, "bridge0", func(places map[string]*netns.NetNS, addresses map[string]string) {
		bridge := netns.End{NS: places["host"], Link: "bridge0", Addr: []string{addresses["host"] + "/24"}}
		netns.Bridge(t, bridge)
		for _, name := range []string{"a", "b"} {
			netns.Plug(t, bridge, "to-"+name, netns.End{NS: places[name], Link: "eth0", Addr: []string{addresses[name] + "/24"}})
		}
		do(t, places["host"], func() error { return allow("ip_forward") })
	})
}

// The same where the host has a route to each, and they send all to the host, as with Calico.
func TestRoutes(t *testing.T) {
	joined(t, "", func(places map[string]*netns.NetNS, addresses map[string]string) {
		host := places["host"]
		route := func(link string, to string) error {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			dst, err := netlink.ParseIPNet(to)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK})
		}
		do(t, host, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			own, err := netlink.ParseAddr(addresses["host"] + "/32")
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(lo, own), allow("ip_forward"))
		})
		for _, name := range []string{"a", "b"} {
			netns.Veth(t, netns.End{NS: host, Link: "to-" + name}, netns.End{NS: places[name], Link: "eth0", Addr: []string{addresses[name] + "/32"}})
			do(t, host, func() error {
				return errors.Join(route("to-"+name, addresses[name]+"/32"), allow("conf/to-"+name+"/proxy_arp"))
			})
			do(t, places[name], func() error { return route("eth0", "0.0.0.0/0") })
		}
	})
}

func do(t *testing.T, ns *netns.NetNS, f func() error) {
	t.Helper()
	ns.Do(t, func() {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	})
}

func allow(what string) error { return os.WriteFile("/proc/sys/net/ipv4/"+what, []byte("1"), 0) }

// joined plays programs in the namespaces "host", "a" and "b", which join gives their addresses.
// Registered is the interface that exn-tun bridge is told; "": none.
func joined(t *testing.T, registered string, join func(places map[string]*netns.NetNS, addresses map[string]string)) {
	library, tun := ds.Library(t), built.Path(t, "exn-tun")
	pumps := map[string]string{"C": built.Path(t, "pump"), "Go": built.Path(t, "gopump")}
	fabric := ds.Fabric(t)
	places := map[string]*netns.NetNS{"host": netns.New(t), "a": netns.New(t), "b": netns.New(t)}
	addresses := map[string]string{"host": "10.9.0.1", "a": "10.9.0.2", "b": "10.9.0.3"}
	join(places, addresses)
	env := append(os.Environ(), ds.Preload(library, fabric, "EXN_DS_REQUIRE=1")...)
	start := func(t *testing.T, place string, env []string, command ...string) (cmd *exec.Cmd, first string) {
		t.Helper()
		cmd = exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = env
		out, err := cmd.StderrPipe()
		cmd.Stdout = cmd.Stderr
		if err == nil {
			err = places[place].Start(cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		first, err = bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("%s said %q: %v", command, first, err)
		}
		return cmd, first
	}
	const port = "7001"
	serve := func(t *testing.T, place, language string) {
		t.Helper()
		cmd, _ := start(t, place, env, pumps[language], "serve", addresses[place], port)
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	ask := func(t *testing.T, place, language, address, port string) {
		t.Helper()
		var text string
		var err error
		for _, seconds := range []string{"0.2", "5"} { // the latter where the host has much to do
			client := exec.CommandContext(t.Context(), pumps[language], "pingpong", address, port, seconds)
			client.Env = append(env, "EXN_DS_VERBOSE=1")
			if text, err = output(places[place], client); err != nil || strings.Contains(text, " has lane ") {
				break
			}
		}
		if err != nil || !strings.Contains(text, " has lane ") {
			t.Errorf("%s to %s:%s in %s: %v: %.1000s", place, address, port, language, err, text)
		}
	}
	check := func(t *testing.T, place, server string) string {
		t.Helper()
		text, _ := output(places[place], exec.CommandContext(t.Context(), tun, "check", "--fabric", fabric, addresses[server]+":"+port))
		return text
	}
	alone := func(t *testing.T, when string) {
		t.Helper()
		client := exec.CommandContext(t.Context(), pumps["C"], "pingpong", addresses["a"], port, "10")
		client.Env = env
		if text, err := output(places["b"], client); err == nil { // it is reset after a while
			t.Errorf("a lane %s: %s", when, text)
		}
		if text := check(t, "b", "a"); !strings.Contains(text, "nor registered in "+fabric) || !strings.Contains(text, "exn-tun bridge") {
			t.Errorf("check %s says %s", when, text)
		}
	}

	// Ports published on the host, addresses of services, and what is redirected inside a container.
	translated := func(t *testing.T) {
		const outside, inside, service = "7000", "7002", "10.96.0.1"
		nft := func(t *testing.T, place, rules string) {
			if text, err := output(places[place], debroot.Need(t, "nftables").Command(t.Context(), "nft", rules)); err != nil {
				t.Skipf("no translation of addresses here: %v: %s", err, text)
			}
		}
		to := "tcp dport " + outside + " dnat to " + addresses["a"] + ":" + port + "; "
		nft(t, "host", "add table ip nat; add chain ip nat out { type nat hook output priority -100; }; add chain ip nat in { type nat hook prerouting priority -100; }; "+
			"add chain ip nat post { type nat hook postrouting priority 100; }; "+
			"add rule ip nat out ip daddr "+addresses["host"]+" "+to+"add rule ip nat in ip daddr "+addresses["host"]+" "+to+"add rule ip nat in ip daddr "+service+" "+to+
			"add rule ip nat post ct status dnat oifname != lo ip saddr != "+addresses["host"]+" masquerade")
		do(t, places["b"], func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			to, err := netlink.ParseIPNet(service + "/32")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Gw: net.ParseIP(addresses["host"]), Flags: int(netlink.FLAG_ONLINK)})
		})
		nft(t, "b", "add table ip nat; add chain ip nat out { type nat hook output priority -100; }; add rule ip nat out tcp dport "+inside+" redirect to :"+inside)
		sidecar, _ := start(t, "b", env, pumps["Go"], "serve", "127.0.0.1", inside)
		defer func() {
			sidecar.Process.Kill()
			sidecar.Wait()
		}()
		for _, c := range [][3]string{
			{"host", addresses["host"], outside}, {"b", addresses["host"], outside}, {"b", service, outside}, {"b", addresses["a"], inside},
		} {
			for language := range pumps {
				ask(t, c[0], language, c[1], c[2])
			}
			text, _ := output(places[c[0]], exec.CommandContext(t.Context(), tun, "check", "--fabric", fabric, c[1]+":"+c[2]))
			if !strings.Contains(text, "a busy connection takes lanes") {
				t.Errorf("check %s to %s:%s says %s", c[0], c[1], c[2], text)
			}
		}
	}

	t.Run("without", func(t *testing.T) {
		serve(t, "a", "C")
		alone(t, "though nobody said who is on the bridge")
	})
	t.Run("with", func(t *testing.T) {
		serve(t, "a", "C")
		serve(t, "host", "C")
		serve(t, "b", "Go")
		registrar, ready := start(t, "host", os.Environ(), slices.Concat([]string{tun, "bridge", "--fabric", fabric}, strings.Fields(registered))...)
		if !strings.HasPrefix(ready, "exn-tun: ready: "+cmp.Or(registered, "all")) {
			t.Fatalf("exn-tun bridge said %q", ready)
		}
		for _, c := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "host"}, {"host", "a"}, {"host", "b"}} {
			for language := range pumps {
				ask(t, c[0], language, addresses[c[1]], port)
			}
			if text := check(t, c[0], c[1]); !strings.Contains(text, "a busy connection takes lanes") {
				t.Errorf("check %s to %s says %s", c[0], c[1], text)
			}
		}
		t.Run("translated", translated)
		registrar.Process.Signal(os.Interrupt)
		if err := registrar.Wait(); err != nil {
			t.Errorf("exn-tun bridge: %v", err)
		}
		alone(t, "though all was taken back")
	})
}
