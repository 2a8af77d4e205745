package exn

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/nested"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
)

// An attachment is a NIC of netstack on a fabric, with its addresses.
//
// netstack does duplicate address detection for IPv6. For IPv4 it neither asks whether an address
// is free, nor announces it, nor hears announcements of others. So the attachment sits between the
// link and netstack and looks at each ARP packet. Its goroutine keeps an [arp.Claim] for each
// address:
//
//	link ──► DeliverNetworkPacket ──ARP──► packets ──► goroutine ──► frames to the link
//	                 │                                     │
//	                 └──► netstack ◄── address, or its end ┘
type attachment struct {
	nested.Endpoint
	stack    *stack.Stack
	forwards bool
	nic      tcpip.NICID
	node     fabric.Node
	link     *exteth.Endpoint
	cfg      NodeConfig
	start    time.Time

	pinned *stack.PacketBuffer // of the link's goroutine; see pin

	claiming int        // how many verdicts will come
	verdicts chan error // one for each address

	packets  chan arp.Packet // from the link's goroutine
	assigned chan netip.Addr // IPv6 addresses that netstack found to be free
	stop     chan struct{}
	stopped  sync.WaitGroup
	once     sync.Once
}

func newAttachment(node fabric.Node, cfg NodeConfig, s *stack.Stack, forwards bool, nic tcpip.NICID) (*attachment, error) {
	if cfg.Claim == (arp.Timing{}) {
		cfg.Claim = arp.FabricTiming
	}
	if cfg.Prefix == (arp.Prefix{}) {
		cfg.Prefix = arp.DefaultPrefix
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	link, err := exteth.NewEndpoint(node, exteth.EndpointConfig{
		Engine: exteth.Config{MTU: cfg.MTU, Prefix: cfg.Prefix, Eager: cfg.Eager}, Snoop: true, Complete: forwards, Spin: exteth.DefaultSpin})
	if err != nil {
		return nil, fmt.Errorf("exn: node %d: %w", node.ID(), err)
	}
	a := &attachment{stack: s, forwards: forwards, nic: nic, node: node, link: link, cfg: cfg, start: time.Now(),
		packets: make(chan arp.Packet, 64), stop: make(chan struct{})}
	addresses := a.addresses()
	a.claiming, a.verdicts, a.assigned = len(addresses), make(chan error, len(addresses)), make(chan netip.Addr, len(addresses))
	a.Endpoint.Init(link, a)
	if err := s.CreateNICWithOptions(nic, a, stack.NICOptions{Name: a.name()}); err != nil {
		link.Close()
		<-link.Done()
		return nil, fmt.Errorf("exn: node %d: %w", node.ID(), errnoOf(err))
	}
	claims := make(map[netip.Prefix]*arp.Claim)
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for _, p := range addresses {
		if p.Addr().Is4() {
			claims[p] = arp.NewClaim(p.Addr(), link.MAC(), cfg.Claim, random, 0)
		} else if err := a.add(p, stack.AddressProperties{Disp: &detection{a, p.Addr()}}); err != nil {
			a.report(err)
		}
	}
	a.stopped.Go(func() { a.keep(claims, random) })
	return a, nil
}

func (a *attachment) name() string { return fmt.Sprintf("exn%d", a.nic-1) }

// addresses returns those of the configuration and the node's link-local address.
func (a *attachment) addresses() []netip.Prefix {
	return append([]netip.Prefix{netip.PrefixFrom(arp.LinkLocal(a.link.MAC()), 64)}, a.cfg.Addresses...)
}

// add gives netstack an address.
func (a *attachment) add(p netip.Prefix, properties stack.AddressProperties) error {
	protocol := ipv4.ProtocolNumber
	if p.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	err := a.stack.AddProtocolAddress(a.nic, tcpip.ProtocolAddress{
		Protocol:          protocol,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: addressOf(p.Addr()), PrefixLen: p.Bits()},
	}, properties)
	if err != nil {
		return fmt.Errorf("exn: address %v: %w", p, errnoOf(err))
	}
	return nil
}

// report delivers the verdict on an address to settle. Only the first verdict of each counts.
func (a *attachment) report(err error) {
	select {
	case a.verdicts <- err:
	default:
	}
}

// keep claims and defends the IPv4 addresses, and announces the IPv6 addresses.
func (a *attachment) keep(claims map[netip.Prefix]*arp.Claim, random *rand.Rand) {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	usable := make(map[netip.Prefix]bool)
	var frame []byte
	for {
		var packet *arp.Packet
		select {
		case p := <-a.packets:
			packet = &p
			if p.Announcement() {
				a.learn(&p)
			}
		case addr := <-a.assigned:
			a.send(arp.AppendUnsolicitedNA(frame[:0], a.link.MAC(), addr))
			a.report(nil)
			continue
		case <-timer.C:
		case <-a.stop:
			return
		}
		now, next := time.Since(start), time.Duration(-1)
		for p, c := range claims {
			if packet != nil {
				frame = c.Receive(packet, now, frame[:0])
				a.send(frame)
			}
			frame = c.Advance(now, frame[:0])
			switch state := c.State(); {
			case state == arp.Lost:
				if a.lost(p, c.Rival(), usable[p]); usable[p] {
					again := arp.Timing{AnnounceNum: a.cfg.Claim.AnnounceNum, AnnounceInterval: a.cfg.Claim.AnnounceInterval, DefendInterval: a.cfg.Claim.DefendInterval}
					c = arp.NewClaim(p.Addr(), a.link.MAC(), again, random, now+again.DefendInterval)
					claims[p] = c
				} else {
					delete(claims, p)
				}
			case state != arp.Probing && !usable[p]:
				// Make the address work before announcing it: whoever hears of it
				// may ask at once. And Join returns only when others know of it.
				usable[p] = true
				err := a.add(p, stack.AddressProperties{})
				a.send(frame)
				frame = frame[:0]
				a.report(err)
			}
			a.send(frame)
			if at, timed := c.Next(); timed && (next < 0 || at < next) {
				next = at
			}
		}
		if next >= 0 {
			timer.Reset(max(0, next-now))
		}
	}
}

// lost handles an address that another node claims. One that is in use is never given up (RFC 5227,
// 2.4 c): connections depend on it, and a rival must not be able to end them. It is announced again
// later.
func (a *attachment) lost(p netip.Prefix, rival arp.MAC, used bool) {
	err := &ConflictError{Addr: p.Addr(), Rival: rival}
	err.Node, err.Known = a.cfg.Prefix.Node(rival)
	if !used {
		a.report(err)
		return
	}
	a.cfg.Log.Warn("address claimed by another node; will be announced again", "addr", p.Addr(), "rival", rival, "in", a.cfg.Claim.DefendInterval)
}

// learn makes netstack resolve an announced address again, because it may have moved. netstack
// would not believe the announcement as a reply (its ARP never overrides an entry), and would use
// the old node for 15 s more. A correct entry stays, and so do entries being resolved, for which
// packets wait.
func (a *attachment) learn(p *arp.Packet) {
	neighbours, err := a.stack.Neighbors(a.nic, ipv4.ProtocolNumber)
	if err != nil {
		return
	}
	addr, mac := addressOf(p.Sender), tcpip.LinkAddress(p.SenderMAC[:])
	for _, n := range neighbours {
		if n.Addr == addr && n.LinkAddr != "" && n.LinkAddr != mac {
			// An error means that it is gone already.
			_ = a.stack.RemoveNeighbor(a.nic, ipv4.ProtocolNumber, addr)
		}
	}
}

// send broadcasts a frame unless it is empty.
func (a *attachment) send(frame []byte) {
	if len(frame) == 0 {
		return
	}
	var list stack.PacketBufferList
	list.PushBack(packetOf(frame))
	_, _ = a.link.WritePackets(list) // a lost frame is sent again, or is not missed
	list.Reset()
}

func packetOf(frame []byte) *stack.PacketBuffer {
	return stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
}

// DeliverNetworkPacket implements stack.NetworkDispatcher, on the link's goroutine.
func (a *attachment) DeliverNetworkPacket(protocol tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	if protocol == header.ARPProtocolNumber {
		payload := pkt.Data().AsRange()
		if p, ok := arp.Parse(payload.ToSlice()); ok {
			select {
			case a.packets <- p:
			default: // a flood; conflicts come again
			}
		}
	}
	if a.forwards && protocol == header.IPv4ProtocolNumber && pkt.PktType == tcpip.PacketHost {
		expire(pkt)
	}
	a.Endpoint.DeliverNetworkPacket(protocol, pkt)
	a.unpin()
}

// expire turns a TTL of 1 into 0. netstack forwards a TTL of 1 to the next host as 0, which is
// wrong (RFC 1812, 5.3.1), but it handles a TTL of 0 correctly. Nothing checks the header's
// checksum again. netstack's IPv6 is correct.
func expire(pkt *stack.PacketBuffer) {
	if b, ok := pkt.Data().PullUp(header.IPv4MinimumSize); ok && header.IPv4(b).TTL() == 1 {
		b[8] = 0
	}
}

// Capabilities implements stack.LinkEndpoint. Forwarded packets have complete checksums; netstack
// would compute them again, and so break fragments.
func (a *attachment) Capabilities() stack.LinkEndpointCapabilities {
	c := a.Endpoint.Capabilities()
	if a.forwards {
		c |= stack.CapabilityTXChecksumOffload
	}
	return c
}

func (a *attachment) stopClaiming() {
	a.once.Do(func() { close(a.stop) })
	a.stopped.Wait()
}

// A detection receives events of an IPv6 address. netstack holds locks when it calls it.
type detection struct {
	a    *attachment
	addr netip.Addr
}

// OnChanged implements stack.AddressDispatcher.
func (d *detection) OnChanged(_ stack.AddressLifetimes, state stack.AddressAssignmentState) {
	if state == stack.AddressAssigned {
		select {
		case d.a.assigned <- d.addr:
		default: // reported before
		}
	}
}

// OnRemoved implements stack.AddressDispatcher.
func (d *detection) OnRemoved(reason stack.AddressRemovalReason) {
	if reason == stack.AddressRemovalDADFailed {
		d.a.report(&ConflictError{Addr: d.addr})
	}
}
