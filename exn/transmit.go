package exn

import (
	"encoding/binary"
	"net/netip"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/multicast"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeARP  = 0x0806
)

// pendingMemory bounds the memory of packets that wait for their neighbours: 64 of the longest for
// one neighbour. If only packets were counted, a scan of addresses could hold 2 GiB.
const pendingMemory = arp.PendingPackets << 16

// A waiting packet is a copy: there are too few buffers to hold some for seconds. It has room for a
// MAC header, because the errors that answer it are made of frames.
type waiting struct {
	frame []byte
	vnet  exteth.VNet
}

// transmit sends the packet of n bytes that was read from the device into b.
func (i *Interface) transmit(b *exteth.Buffer, n int, v exteth.VNet) {
	now := i.clock()
	v = v.Shift(i.base)
	if i.tap {
		frame := b.Bytes[i.readAt:][:n]
		if n >= mtu.MACHeader && frame[0]&1 == 1 {
			i.membership.Sent(frame, now)
			i.joinGroups()
		}
		i.send(b, i.readAt, n, v, now)
		return
	}
	to, kind := destination(b.Bytes[exteth.Headroom:][:n])
	switch {
	case kind == 0:
		i.stats.count(txNotIP)
		i.eth.Return(b)
		return
	case to.IsMulticast() || to == limitedBroadcast:
		i.transmitGroup(b, n, to, kind, v, now)
		return
	}
	hop := i.nextHop(to)
	node, ok := i.cache.Lookup(hop, now)
	if !ok && kind == etherTypeIPv4 && i.subnetBroadcast(to) {
		i.transmitGroup(b, n, limitedBroadcast, kind, v, now)
		return
	}
	off := i.putHeader(b, i.cfg.Prefix.MAC(node), kind)
	if !ok {
		i.wait(hop, waiting{b.Bytes[off : exteth.Headroom+n], v}, now)
		i.eth.Return(b)
		return
	}
	if hop == to && kind == etherTypeIPv4 && i.couples(node) {
		// Only to the node itself: a node that forwards packets has no use for a train.
		n, v = i.readTrain(b, n, v.Shift(-i.base))
		v = v.Shift(i.base)
	}
	i.send(b, off, mtu.MACHeader+n, v, now)
}

// couples reports whether trains may be sent to a node.
func (i *Interface) couples(node fabric.NodeID) bool {
	return i.parts != nil && i.eth.Takes(node, exteth.CapBig)
}

// transmitGroup sends a packet to all members of a group.
func (i *Interface) transmitGroup(b *exteth.Buffer, n int, group netip.Addr, kind uint16, v exteth.VNet, now time.Duration) {
	to, _ := multicast.MACOf(group)
	off := i.putHeader(b, to, kind)
	i.membership.Sent(b.Bytes[off:exteth.Headroom+n], now)
	i.joinGroups()
	i.send(b, off, mtu.MACHeader+n, v, now)
}

// destination returns where an IP packet goes; kind 0 means that it is not IP.
func destination(p []byte) (to netip.Addr, kind uint16) {
	switch {
	case len(p) >= mtu.IPv4Header && p[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(p[16:20])), etherTypeIPv4
	case len(p) >= mtu.IPv6Header && p[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(p[24:40])), etherTypeIPv6
	}
	return to, 0
}

// limitedBroadcast means everybody on the link.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// subnetBroadcast reports whether an address is the broadcast address of a subnet of the interface.
func (i *Interface) subnetBroadcast(a netip.Addr) bool {
	v := a.As4()
	n := binary.BigEndian.Uint32(v[:])
	for _, own := range i.addresses {
		if bits := own.prefix.Bits(); own.prefix.Addr().Is4() && bits < 31 && own.prefix.Contains(a) {
			hosts := ^uint32(0) >> bits
			return n&hosts == hosts
		}
	}
	return false
}

// nextHop returns the neighbour to send a packet to: the destination itself, or the gateway of a
// route whose prefix is longer than those of the interface's subnets that contain the destination.
func (i *Interface) nextHop(to netip.Addr) (hop netip.Addr) {
	longest := -1
	for _, r := range i.cfg.Routes {
		if r.Destination.Bits() > longest && r.Destination.Contains(to) {
			longest, hop = r.Destination.Bits(), r.Gateway
		}
	}
	if longest < 0 {
		return to
	}
	for _, a := range i.addresses {
		if a.prefix.Bits() >= longest && a.prefix.Contains(to) {
			return to
		}
	}
	return hop
}

// putHeader writes the MAC header in front of the packet and returns its offset.
func (i *Interface) putHeader(b *exteth.Buffer, to arp.MAC, kind uint16) (off int) {
	off = exteth.Headroom - mtu.MACHeader
	h := b.Bytes[off:exteth.Headroom]
	copy(h, to[:])
	copy(h[6:], i.mac[:])
	binary.BigEndian.PutUint16(h[12:], kind)
	return off
}

// send passes a frame to EXT-Eth.
func (i *Interface) send(b *exteth.Buffer, off, n int, v exteth.VNet, now time.Duration) {
	if err := i.eth.Send(b, off, n, v, now); err == exteth.ErrTooBig {
		i.tooBig(b.Bytes[off:off+n], v)
		i.eth.Return(b)
	}
}

// sendFrame sends a frame that netstack or a claim has made.
func (i *Interface) sendFrame(frame []byte, now time.Duration) {
	b := i.eth.Borrow()
	if b == nil {
		i.stats.count(txNoCopy)
		return
	}
	const off = exteth.Headroom - mtu.MACHeader
	i.send(b, off, copy(b.Bytes[off:], frame), exteth.VNet{}, now)
}

// tooBig tells the local sender that its frame does not fit the receiver.
func (i *Interface) tooBig(frame []byte, v exteth.VNet) {
	answer, ok := exteth.AppendTooBig(i.scratch[:0], frame, i.eth.TooBig(frame, v))
	if !ok {
		return
	}
	i.stats.count(tooBigSent)
	i.answer(answer)
}

// answer writes a frame of our own to the kernel. If the kernel refuses it, the frame counts as
// lost on the way.
func (i *Interface) answer(frame []byte) { _ = i.dev.Write(frame[i.base:], exteth.VNet{}) }

// wait keeps a copy of a packet until its neighbour is known.
func (i *Interface) wait(hop netip.Addr, w waiting, now time.Duration) {
	if i.pendingLen+len(w.frame) > pendingMemory {
		i.stats.count(txPendingMemory)
		return
	}
	i.pendingLen += len(w.frame)
	w.frame = append([]byte(nil), w.frame...)
	if i.pending.Add(hop, w, now) {
		i.resolver.resolve(hop)
	}
}

// dropPending gives up a packet that waited in vain and tells its sender.
func (i *Interface) dropPending(w waiting, why arp.PendingDrop) {
	i.pendingLen -= len(w.frame)
	i.stats.count([...]counter{
		arp.DropFull: txPendingFull, arp.DropTimeout: txPendingOld,
		arp.DropUnreachable: txUnreachable, arp.DropNeighbours: txNeighbours,
	}[why])
	if why != arp.DropTimeout && why != arp.DropUnreachable {
		return
	}
	if answer, ok := exteth.AppendUnreachable(i.scratch[:0], w.frame); ok {
		i.stats.count(unreachableSent)
		i.answer(answer)
	}
}

// neighbourChanged sends the packets that waited for a neighbour that is known now.
func (i *Interface) neighbourChanged(a netip.Addr, now time.Duration) {
	node, ok := i.cache.Lookup(a, now)
	if !ok || i.pending == nil {
		return
	}
	for _, w := range i.pending.Resolve(a) {
		i.pendingLen -= len(w.frame)
		b := i.eth.Borrow()
		if b == nil {
			i.stats.count(txNoCopy)
			continue
		}
		off := exteth.Headroom - mtu.MACHeader
		copy(b.Bytes[off:], w.frame)
		to := i.cfg.Prefix.MAC(node)
		copy(b.Bytes[off:], to[:])
		i.send(b, off, len(w.frame), w.vnet, now)
	}
}

// joinGroups joins and leaves fabric groups until they match the membership.
func (i *Interface) joinGroups() {
	wanted := i.membership.Groups()
	if wanted == i.groups {
		return
	}
	for g := range fabric.GroupAll {
		bit := uint64(1) << g
		var err error
		switch {
		case wanted&^i.groups&bit != 0:
			err = i.cfg.Node.Join(g)
		case i.groups&^wanted&bit != 0:
			err = i.cfg.Node.Leave(g)
		}
		if err != nil {
			return // the node is closed: Run ends soon
		}
	}
	i.groups = wanted
}

// askMembers makes the kernel report the groups that it has joined. An adopted interface joined
// them before this process started, and without a carrier the reports reached nobody. The query
// appears to come from another node.
func (i *Interface) askMembers(time.Duration) {
	other := i.cfg.Prefix.MAC(i.cfg.Node.ID() ^ 1)
	i.answer(multicast.AppendIGMPQuery(i.scratch[:0], other))
	i.answer(multicast.AppendMLDQuery(i.scratch[:0], other, arp.LinkLocal(other)))
}
