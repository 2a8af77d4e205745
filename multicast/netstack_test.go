package multicast

import (
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/faketime"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
)

// MCS-1: a Membership understands the messages of a real IP stack, and that stack understands our
// queries.
func TestMCS1WithNetstack(t *testing.T) {
	clock := faketime.NewManualClock()
	s := stack.New(stack.Options{Clock: clock, NetworkProtocols: []stack.NetworkProtocolFactory{
		ipv4.NewProtocolWithOptions(ipv4.Options{IGMP: ipv4.IGMPOptions{Enabled: true}}),
		ipv6.NewProtocolWithOptions(ipv6.Options{MLD: ipv6.MLDOptions{Enabled: true}}),
	}})
	defer s.Destroy()
	own := arp.DefaultPrefix.MAC(1)
	link := channel.New(64, 1514, tcpip.LinkAddress(own[:]))
	if err := s.CreateNIC(1, ethernet.New(link)); err != nil {
		t.Fatal(err)
	}
	for proto, a := range map[tcpip.NetworkProtocolNumber]string{ipv4.ProtocolNumber: "10.0.0.1", ipv6.ProtocolNumber: "fe80::2c87:4ff:fe07:1"} {
		pa := tcpip.ProtocolAddress{Protocol: proto, AddressWithPrefix: tcpip.AddrFromSlice(ip(a).AsSlice()).WithPrefix()}
		if err := s.AddProtocolAddress(1, pa, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMembership()
	collect := func() {
		t.Helper()
		for p := link.Read(); p != nil; p = link.Read() {
			v := p.ToView()
			m.Sent(v.AsSlice(), 0)
			v.Release()
			p.DecRef()
		}
	}
	group4, group6 := tcpip.AddrFromSlice(group("239.1.1.1")), tcpip.AddrFromSlice(group("ff05::1:3"))
	if err := s.JoinGroup(ipv4.ProtocolNumber, 1, group4); err != nil {
		t.Fatal(err)
	}
	if err := s.JoinGroup(ipv6.ProtocolNumber, 1, group6); err != nil {
		t.Fatal(err)
	}
	collect()
	for _, g := range []string{"239.1.1.1", "ff05::1:3", "ff02::1:ff07:1"} {
		if !m.Accept(mac(g)) {
			t.Errorf("%s was joined, but is dropped", g)
		}
	}

	// A daemon that adopts an interface knows no members and asks.
	clock.Advance(60e9)
	collect()
	m = NewMembership()
	for proto, f := range map[tcpip.NetworkProtocolNumber][]byte{
		ipv4.ProtocolNumber: AppendIGMPQuery(nil, arp.DefaultPrefix.MAC(2)),
		ipv6.ProtocolNumber: AppendMLDQuery(nil, arp.DefaultPrefix.MAC(2), ip("fe80::2")),
	} {
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(f)})
		link.InjectInbound(proto, p)
		p.DecRef()
	}
	clock.Advance(2e9)
	collect()
	for _, g := range []string{"239.1.1.1", "ff05::1:3", "ff02::1:ff07:1"} {
		if !m.Accept(mac(g)) {
			t.Errorf("%s is not found by asking", g)
		}
	}

	if err := s.LeaveGroup(ipv4.ProtocolNumber, 1, group4); err != nil {
		t.Fatal(err)
	}
	if err := s.LeaveGroup(ipv6.ProtocolNumber, 1, group6); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2e9)
	collect()
	m.Advance(LeaveTime)
	for _, g := range []string{"239.1.1.1", "ff05::1:3"} {
		if m.Accept(mac(g)) {
			t.Errorf("%s was left, but is accepted", g)
		}
	}
}
