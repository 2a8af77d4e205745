package exn

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	exarp "exnet/arp"
	"exnet/mtu"
)

// A resolver is the part of netstack that a TUN needs: ARP, neighbour discovery and duplicate
// address detection for the addresses of the interface. It has no transports and sees no other
// traffic. It sends no membership reports, because the kernel sends those.
//
//	ARP, ND frames ──► receive ──► netstack ──► link ──► mailbox ──► fabric
//	                                  │ NUD events
//	                                  ▼
//	                     arp.Cache ──► mailbox: packets that waited go on
//
// The loop calls receive. netstack's timers run on goroutines of their own.
type resolver struct {
	stack *stack.Stack
	link  *link
	cache *exarp.Cache
	mail  *mailbox
}

const resolverNIC tcpip.NICID = 1

// dadTime is how long netstack waits for an answer to its one solicitation. arp.FabricTiming waits
// as long after its last probe, for the same reason.
const dadTime = 200 * time.Millisecond

// newResolver makes the stack without addresses.
func newResolver(mac exarp.MAC, most mtu.Link, cache *exarp.Cache, mail *mailbox) (*resolver, error) {
	r := &resolver{cache: cache, mail: mail, link: &link{mac: mac, mtu: uint32(most), mail: mail}}
	r.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			arp.NewProtocol,
			ipv4.NewProtocol,
			ipv6.NewProtocolWithOptions(ipv6.Options{DADConfigs: detection6(true)}),
		},
		NUDDisp: cache,
	})
	if err := r.stack.CreateNICWithOptions(resolverNIC, r.link, stack.NICOptions{Name: "fabric"}); err != nil {
		r.close()
		return nil, fmt.Errorf("exn: netstack's interface: %v", err)
	}
	// Every address that netstack answers is on the link. Without a route it answers no
	// solicitation.
	r.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: resolverNIC}, {Destination: header.IPv6EmptySubnet, NIC: resolverNIC}})
	return r, nil
}

func (r *resolver) close() { r.stack.Destroy() }

// detection6 returns how to detect duplicates of IPv6 addresses: by one solicitation, or not at
// all.
func detection6(on bool) stack.DADConfigurations {
	if !on {
		return stack.DADConfigurations{}
	}
	return stack.DADConfigurations{DupAddrDetectTransmits: 1, RetransmitTimer: dadTime}
}

// detect switches duplicate detection for addresses that are added from now on.
func (r *resolver) detect(on bool) {
	if ep, err := r.stack.GetNetworkEndpoint(resolverNIC, ipv6.ProtocolNumber); err == nil {
		ep.(stack.DuplicateAddressDetector).SetDADConfigurations(detection6(on))
	}
}

// add gives the NIC an address. disp receives its events; it is nil for IPv4, whose claim has ended
// by then.
func (r *resolver) add(p netip.Prefix, disp stack.AddressDispatcher) error {
	err := r.stack.AddProtocolAddress(resolverNIC, tcpip.ProtocolAddress{
		Protocol: protocolOf(p.Addr()),
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFromSlice(p.Addr().AsSlice()),
			PrefixLen: p.Bits(),
		},
	}, stack.AddressProperties{Disp: disp})
	if err != nil {
		return fmt.Errorf("exn: address %v: netstack: %v", p, err)
	}
	return nil
}

// remove removes an address.
func (r *resolver) remove(a netip.Addr) {
	// An error means that it is not there.
	_ = r.stack.RemoveAddress(resolverNIC, tcpip.AddrFromSlice(a.AsSlice()))
}

func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// resolve starts the resolution of a neighbour, or probes it if it is known but in doubt. Success
// comes as an event of the cache, failure as a letter.
func (r *resolver) resolve(a netip.Addr) {
	fail := func() { r.mail.post(func(l *letters) { l.failed = append(l.failed, a) }) }
	err := r.stack.GetLinkAddress(resolverNIC, tcpip.AddrFromSlice(a.AsSlice()), tcpip.Address{}, protocolOf(a),
		func(result stack.LinkResolutionResult) {
			// Success is reported by the event, which may come later than this call.
			if result.Err != nil {
				fail()
			}
		})
	if _, started := err.(*tcpip.ErrWouldBlock); err != nil && !started {
		fail()
	}
}

// forget removes neighbours.
func (r *resolver) forget(addrs []netip.Addr) {
	for _, a := range addrs {
		// An error means that it is not there.
		_ = r.stack.RemoveNeighbor(resolverNIC, protocolOf(a), tcpip.AddrFromSlice(a.AsSlice()))
	}
}

// receive passes a frame to netstack, which copies it.
func (r *resolver) receive(frame []byte) {
	d := r.link.attached()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
	defer pkt.DecRef()
	if !r.link.ParseHeader(pkt) {
		return
	}
	eth := header.Ethernet(pkt.LinkHeader().Slice())
	switch to := eth.DestinationAddress(); {
	case to == header.EthernetBroadcastAddress:
		pkt.PktType = tcpip.PacketBroadcast
	case header.IsMulticastEthernetAddress(to):
		pkt.PktType = tcpip.PacketMulticast
	default:
		pkt.PktType = tcpip.PacketHost
	}
	d.DeliverNetworkPacket(eth.Type(), pkt)
}

// A link is netstack's end of the fabric. Each frame that netstack writes becomes a letter.
type link struct {
	mac  exarp.MAC
	mtu  uint32
	mail *mailbox

	mu         sync.Mutex
	dispatcher stack.NetworkDispatcher
	onClose    func()
}

var _ stack.LinkEndpoint = (*link)(nil)

func (l *link) attached() stack.NetworkDispatcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dispatcher
}

// resolutionFrames bounds the frames that netstack may queue ahead of the loop.
const resolutionFrames = 1000

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (n int, err tcpip.Error) {
	closed := !l.mail.post(func(in *letters) {
		for _, pkt := range pkts.AsSlice() {
			if len(in.frames) == resolutionFrames {
				return
			}
			frame := pkt.ToView()
			in.frames = append(in.frames, append([]byte(nil), frame.AsSlice()...))
			frame.Release()
			n++
		}
	})
	switch {
	case closed:
		return 0, &tcpip.ErrClosedForSend{}
	case n < pkts.Len():
		return n, &tcpip.ErrNoBufferSpace{}
	}
	return n, nil
}

// Attach implements stack.NetworkLinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	l.dispatcher = d
	l.mu.Unlock()
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (l *link) IsAttached() bool { return l.attached() != nil }

// Wait implements stack.NetworkLinkEndpoint: the link has no goroutine.
func (l *link) Wait() {}

// Close implements stack.NetworkLinkEndpoint.
func (l *link) Close() {
	l.mu.Lock()
	f := l.onClose
	l.onClose = nil
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (l *link) SetOnCloseAction(f func()) {
	l.mu.Lock()
	l.onClose = f
	l.mu.Unlock()
}

// MTU implements stack.NetworkLinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu }

// SetMTU implements stack.NetworkLinkEndpoint. It does nothing: the device sets the MTU.
func (l *link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (l *link) MaxHeaderLength() uint16 { return mtu.MACHeader }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (l *link) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(l.mac[:]) }

// SetLinkAddress implements stack.NetworkLinkEndpoint. It does nothing: the address follows from
// the node's ID (MAC-1).
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired
}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.NetworkLinkEndpoint.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(mtu.MACHeader)).Encode(&header.EthernetFields{
		SrcAddr: l.LinkAddress(),
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (l *link) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(mtu.MACHeader)
	return ok
}
