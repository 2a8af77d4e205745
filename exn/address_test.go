package exn

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exn/device"
)

// states returns the addresses of a node's interface with their states.
func (n *rigNode) states() map[string]string {
	all := map[string]string{}
	for _, a := range n.Snapshot().Addresses {
		all[a.Prefix.String()] = a.State
	}
	return all
}

// An address that the kernel gets later is claimed, announced and found by other nodes. It is
// forgotten when the kernel no longer has it. An address of another node is not fought for, and
// ends nothing.
func TestAddressesLater(t *testing.T) {
	for k, kind := range []device.Kind{device.TUN, device.TAP, device.TUN} {
		var told [2][]netip.Addr
		simulate(t, 2, func(n int, c *Config, d *fakeDevice) {
			d.kind, d.mtu, d.adopted = kind, 1500, k == 2
			c.Held = func(all []netip.Addr) { told[n] = all }
		}, func(r *rig) {
			n := r.n[0]
			var has []netip.Prefix
			for _, a := range n.Snapshot().Addresses {
				has = append(has, a.Prefix)
			}
			new4, new6 := netip.MustParsePrefix("10.9.0.77/16"), netip.MustParsePrefix("fd09::77/64")
			taken4, taken6 := netip.PrefixFrom(addr4(1), 24), netip.PrefixFrom(addr6(1), 64)
			n.dev.changed(append(slices.Clone(has), new4, new6, taken4, taken6))
			time.Sleep(5 * time.Second)
			got := n.states()
			for p, want := range map[netip.Prefix]arp.ClaimState{new4: arp.Held, new6: arp.Held, taken4: arp.Lost, taken6: arp.Lost} {
				if kind == device.TAP {
					// the kernels compare a TAP's addresses among themselves,
					// and this test has no kernel
					want = arp.Held
				}
				if got[p.String()] != want.String() {
					t.Errorf("%v: %v is %q, want %v", kind, p, got[p.String()], want)
				}
			}
			select {
			case err := <-n.err:
				t.Fatalf("%v: Run ended: %v", kind, err)
			default:
			}
			if !slices.Contains(told[0], new4.Addr()) || slices.Contains(told[0], new6.Addr()) != (kind == device.TUN) {
				t.Errorf("%v: told as held: %v", kind, told[0])
			}
			if kind == device.TUN {
				if slices.Contains(told[0], taken4.Addr()) || slices.Contains(told[0], taken6.Addr()) {
					t.Errorf("told as held, although they are the other node's: %v", told[0])
				}
				for _, a := range []netip.Addr{new4.Addr(), new6.Addr()} {
					p := udp(r.n[1].own(netip.PrefixFrom(a, 24)), a, 100, 1)
					r.n[1].dev.send(p)
					r.settle()
					n.want(t, p)
				}
			}
			n.dev.changed(has)
			r.settle()
			if now := n.states(); len(now) != len(has) {
				t.Errorf("%v: %v, want %v", kind, now, has)
			}
			if slices.Contains(told[0], new4.Addr()) || slices.Contains(told[0], new6.Addr()) {
				t.Errorf("%v: still told as held: %v", kind, told[0])
			}
			if kind == device.TUN { // nobody answers for them any more
				r.n[1].resolver.forget([]netip.Addr{new4.Addr(), new6.Addr()})
				for _, a := range []netip.Addr{new4.Addr(), new6.Addr()} {
					r.n[1].dev.send(udp(r.n[1].own(netip.PrefixFrom(a, 24)), a, 100, 1))
				}
				time.Sleep(5 * time.Second)
				if got := n.dev.take(); len(got) > 0 {
					t.Errorf("%d packets for addresses that are gone", len(got))
				}
			}
			// Once given again, the address is claimed again.
			n.dev.changed(append(slices.Clone(has), new4))
			time.Sleep(5 * time.Second)
			if got := n.states()[new4.String()]; got != arp.Held.String() {
				t.Errorf("%v: %v is %q", kind, new4, got)
			}
		})
	}
}
