package arp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"exnet/fabric"
)

// MAC-1: the layout of Figure 5.13, in both directions.
func TestMAC1(t *testing.T) {
	if got := DefaultPrefix.MAC(0x1234).String(); got != "2e:87:04:07:12:34" {
		t.Errorf("node 0x1234 is %s", got)
	}
	for n := range fabric.NodeID(65535) {
		if got, ok := DefaultPrefix.Node(DefaultPrefix.MAC(n)); !ok || got != n {
			t.Fatalf("node %d became %d, %v", n, got, ok)
		}
	}
	for name, m := range map[string]MAC{"NodeAny": DefaultPrefix.MAC(fabric.NodeAny), "foreign": {0x2e, 0x87, 0x04, 0x08, 0, 1}, "broadcast": Broadcast} {
		if n, ok := DefaultPrefix.Node(m); ok {
			t.Errorf("%s address %v is taken for node %d", name, m, n)
		}
	}
}

// MAC-1: node 1 has the address that the thesis shows.
func TestMAC1LinkLocal(t *testing.T) {
	if got := LinkLocal(DefaultPrefix.MAC(1)).String(); got != "fe80::2c87:4ff:fe07:1" {
		t.Errorf("node 1: %s", got)
	}
	m := MAC{0x00, 0x25, 0x96, 0x12, 0x34, 0x56} // universally administered
	want := header.LinkLocalAddr(tcpip.LinkAddress(m[:]))
	if got := LinkLocal(m); got.As16() != want.As16() {
		t.Errorf("%v: %v, netstack says %v", m, got, want)
	}
	if got := SolicitedNode(netip.MustParseAddr("fe80::2c87:4ff:fe07:1")).String(); got != "ff02::1:ff07:1" {
		t.Errorf("solicited-node group %s", got)
	}
}

func TestParsePrefix(t *testing.T) {
	if p, err := ParsePrefix("02:00:5E:10"); err != nil || p != (Prefix{2, 0, 0x5e, 0x10}) {
		t.Errorf("%v, %v", p, err)
	}
	for _, s := range []string{"", "2e:87:04", "2e:87:04:07:00", "2e-87-04-07", "2e:87:04:0g", "2e:87:04:+7", "2f:87:04:07"} {
		if p, err := ParsePrefix(s); !errors.Is(err, ErrPrefix) {
			t.Errorf("%q gives %v, %v", s, p, err)
		}
	}
}

// ARP-1: the packet of Figure 5.14 has 42 bytes with its MAC header.
func TestARP1Golden(t *testing.T) {
	p := Packet{Op: Request, SenderMAC: DefaultPrefix.MAC(8), Sender: netip.MustParseAddr("10.2.0.8"), Target: netip.MustParseAddr("10.2.0.1")}
	const want = "ffffffffffff" + "2e8704070008" + "0806" + "0001" + "0800" + "06" + "04" + "0001" +
		"2e8704070008" + "0a020008" + "000000000000" + "0a020001"
	got := p.AppendFrame(nil, Broadcast)
	if hex.EncodeToString(got) != want {
		t.Fatalf("got  %x\nwant %s", got, want)
	}
	if q, ok := ParseFrame(append(got, make([]byte, 18)...)); !ok || q != p {
		t.Errorf("parsed %+v, %v", q, ok)
	}
	if !header.ARP(got[14:]).IsValid() {
		t.Error("netstack does not take it")
	}
	for name, at := range map[string]int{"ether type": 13, "hardware": 15, "protocol": 16, "hardware length": 18, "protocol length": 19, "operation": 21} {
		bad := bytes.Clone(got)
		bad[at] ^= 0x40
		if _, ok := ParseFrame(bad); ok {
			t.Errorf("a wrong %s is accepted", name)
		}
	}
	got[22] |= 1
	if _, ok := ParseFrame(got); ok {
		t.Error("a multicast sender is accepted")
	}
}

func TestProbeAndAnnouncement(t *testing.T) {
	a, m := netip.MustParseAddr("10.0.0.1"), DefaultPrefix.MAC(1)
	p, n := probe(m, a), announcement(m, a)
	r := n.AsReply(DefaultPrefix.MAC(2), netip.MustParseAddr("10.0.0.2"))
	if !p.Probe() || p.Announcement() || n.Probe() || !n.Announcement() || r.Probe() || r.Announcement() || r.Op != Reply {
		t.Errorf("probe %+v, announcement %+v, reply %+v", p, n, r)
	}
}

// NDP-1: netstack accepts the advertisement: checksum, flags and option are correct.
func TestNDP1UnsolicitedNA(t *testing.T) {
	mac := DefaultPrefix.MAC(1)
	a := LinkLocal(mac)
	f := AppendUnsolicitedNA(nil, mac, a)
	ip := header.IPv6(f[14:])
	if !ip.IsValid(len(f)-14) || ip.HopLimit() != header.NDPHopLimit {
		t.Fatalf("bad IPv6 header % x", f)
	}
	icmp := header.ICMPv6(ip.Payload())
	want := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: ip.SourceAddress(), Dst: ip.DestinationAddress()})
	if icmp.Checksum() != want || icmp.Type() != header.ICMPv6NeighborAdvert {
		t.Errorf("checksum %#x, want %#x", icmp.Checksum(), want)
	}
	na := header.NDPNeighborAdvert(icmp.MessageBody())
	it, err := na.Options().Iter(true)
	if err != nil || !na.OverrideFlag() || na.SolicitedFlag() {
		t.Fatalf("flags or options: %v", err)
	}
	opt, _, err := it.Next()
	if lla, ok := opt.(header.NDPTargetLinkLayerAddressOption); err != nil || !ok || lla.EthernetAddress() != tcpip.LinkAddress(mac[:]) {
		t.Errorf("option %v, %v", opt, err)
	}
}

func FuzzParse(f *testing.F) {
	p := announcement(DefaultPrefix.MAC(1), netip.MustParseAddr("10.0.0.1"))
	f.Add(p.AppendFrame(nil, Broadcast))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := ParseFrame(b)
		if !ok {
			return
		}
		if !header.ARP(b[14:]).IsValid() {
			t.Fatalf("netstack refuses what is accepted: % x", b)
		}
		if got := p.AppendFrame(nil, MAC(b[:6])); !bytes.Equal(got[14:], b[14:FrameLen]) {
			t.Fatalf("% x became % x", b, got)
		}
	})
}
