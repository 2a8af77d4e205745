package exn

import (
	"net/netip"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/mtu"
)

// receive takes a frame of the fabric. Its data may lie in another node's memory, which can change
// at any moment. No decision here depends on a byte that is read again later. The kernel copies
// first.
func (i *Interface) receive(f *exteth.Frame) error {
	kind := f.EtherType()
	if f.Header[0]&1 == 1 || kind == etherTypeARP {
		if over, err := i.look(f, kind); over {
			return err
		}
	}
	if i.tap {
		return i.write(f)
	}
	packet := f.Data[mtu.MACHeader:]
	switch {
	case kind == etherTypeIPv4 && len(packet) >= mtu.IPv4Header:
		if i.cache.Doubting() {
			i.cache.Confirm(netip.AddrFrom4([4]byte(packet[12:16])), f.From, i.clock())
		}
	case kind == etherTypeIPv6 && len(packet) >= mtu.IPv6Header:
		if discovery(packet) {
			return i.resolve(f)
		}
		if i.cache.Doubting() {
			i.cache.Confirm(netip.AddrFrom16([16]byte(packet[8:24])), f.From, i.clock())
		}
	default:
		i.stats.count(rxNotIP)
		return device.ErrRefused
	}
	return i.write(f)
}

// write gives a frame to the kernel.
func (i *Interface) write(f *exteth.Frame) error {
	packet, v := f.Data[i.base:], f.VNet.Shift(-i.base)
	if v.GSO == exteth.GSOUDP {
		i.bursts += len(packet)
	}
	i.written = max(i.written, len(packet))
	err := i.dev.Write(packet, v)
	if err == device.ErrRefused && len(packet) > int(mtu.MaxIPv4) {
		err = i.writeCut(f)
	}
	switch err {
	case nil:
	case device.ErrDown:
		i.stats.count(deviceDown)
	case device.ErrGone:
		i.fail(err)
	default:
		i.stats.count(deviceRefused)
	}
	return err
}

// cutFrom is the shortest payload of a packet on the wire: TCP's default when it knows nothing of
// the path. Without this bound a hostile node could make us write one packet for each byte.
const cutFrom = 536

// writeCut writes a big packet to the kernel as the packets that it stands for. It is called when
// the kernel had no memory for the big packet in one piece.
func (i *Interface) writeCut(f *exteth.Frame) error {
	if f.VNet.GSOSize < cutFrom {
		return device.ErrRefused
	}
	if i.cut == nil {
		i.cut = make([]byte, mtu.MACHeader+int(mtu.MaxIPv4))
	}
	err := device.ErrRefused // for a packet that cannot be cut
	for frame := range exteth.Segments(f.Data, f.VNet, i.cut) {
		if err = i.dev.Write(frame[i.base:], exteth.VNet{}); err != nil {
			break
		}
	}
	return err
}

// look handles ARP and membership messages. over means that the kernel does not get the frame.
func (i *Interface) look(f *exteth.Frame, kind uint16) (over bool, err error) {
	now := i.clock()
	if kind != etherTypeARP {
		i.membership.Delivered(f.Data, now)
		return false, nil
	}
	frame := append(i.frame[:0], f.Data[:min(len(f.Data), arp.FrameLen)]...)
	p, ok := arp.ParseFrame(frame)
	if !ok {
		i.stats.count(rxNotIP)
		return !i.tap, device.ErrRefused
	}
	// On this fabric a node speaks only for itself: nothing is bridged.
	if n, known := i.cfg.Prefix.Node(p.SenderMAC); !known || n != f.From {
		i.stats.count(rxSpoofed)
		return true, device.ErrRefused
	}
	i.observeARP(&p, now)
	if i.tap {
		return false, nil
	}
	i.stats.count(rxResolution)
	if p.Announcement() {
		if i.cache.Observe(&p, f.From, now) {
			i.resolver.forget(append(i.addrs[:0], p.Sender))
			return true, nil
		}
		// netstack ignores requests that are not for it, but it learns from a reply that it
		// waits for. So pass the announcement as a reply.
		p = p.AsReply(i.mac, netip.IPv4Unspecified())
		frame = p.AppendFrame(i.frame[:0], i.mac)
	}
	i.resolver.receive(frame)
	return true, nil
}

// discovery reports whether an IPv6 packet is neighbour discovery between hosts: a solicitation,
// advertisement or redirect. netstack answers it, because the kernel does not on a TUN. Router
// discovery goes to the kernel.
func discovery(packet []byte) bool {
	const icmpv6, neighbourSolicitation, redirect = 58, 135, 137
	if packet[6] != icmpv6 || len(packet) <= mtu.IPv6Header {
		return false
	}
	t := packet[mtu.IPv6Header]
	return t >= neighbourSolicitation && t <= redirect
}

// discoveryMost bounds a discovery message. Longer ones are truncated, which makes them invalid; no
// sensible message is that long.
const discoveryMost = 1500

// resolve passes a neighbour discovery message to netstack.
func (i *Interface) resolve(f *exteth.Frame) error {
	if n, ok := i.cfg.Prefix.Node(arp.MAC(f.Header[6:12])); !ok || n != f.From {
		i.stats.count(rxSpoofed)
		return device.ErrRefused
	}
	i.stats.count(rxResolution)
	i.resolver.receive(append(i.frame[:0], f.Data[:min(len(f.Data), discoveryMost)]...))
	return nil
}
