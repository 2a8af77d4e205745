package arp

import (
	"encoding/binary"
	"net/netip"
)

// ARP for IPv4 over Ethernet (RFC 826) has 28 bytes after the MAC header, 42 in all.
const (
	macHeaderLen = 14
	// PacketLen is the length of an ARP packet without the MAC header.
	PacketLen = 28
	// FrameLen is the length of a frame with an ARP packet, which is not padded (ETH-1).
	FrameLen = macHeaderLen + PacketLen

	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd
	hardwareEther = 1
	protocolIPv4  = 0x0800
)

// An Op is the operation of an ARP packet.
type Op uint16

// The operations.
const (
	Request Op = 1
	Reply   Op = 2
)

// A Packet is an ARP packet. Sender and Target are IPv4 addresses.
type Packet struct {
	Op        Op
	SenderMAC MAC
	Sender    netip.Addr
	TargetMAC MAC
	Target    netip.Addr
}

// ParseFrame parses an ARP frame. It accepts padding. ok is false for anything but ARP for IPv4
// over Ethernet with a known operation and a unicast sender.
func ParseFrame(frame []byte) (p Packet, ok bool) {
	if len(frame) < FrameLen || binary.BigEndian.Uint16(frame[12:]) != etherTypeARP {
		return Packet{}, false
	}
	return Parse(frame[macHeaderLen:])
}

// Parse parses an ARP packet without its MAC header; see [ParseFrame].
func Parse(b []byte) (p Packet, ok bool) {
	if len(b) < PacketLen || binary.BigEndian.Uint16(b) != hardwareEther ||
		binary.BigEndian.Uint16(b[2:]) != protocolIPv4 || b[4] != 6 || b[5] != 4 {
		return Packet{}, false
	}
	p = Packet{
		Op:        Op(binary.BigEndian.Uint16(b[6:])),
		SenderMAC: MAC(b[8:14]),
		Sender:    netip.AddrFrom4([4]byte(b[14:18])),
		TargetMAC: MAC(b[18:24]),
		Target:    netip.AddrFrom4([4]byte(b[24:28])),
	}
	if p.Op != Request && p.Op != Reply || p.SenderMAC.Multicast() {
		return Packet{}, false
	}
	return p, true
}

// AppendFrame appends the packet as a frame from the sender's MAC address to the given one.
func (p *Packet) AppendFrame(b []byte, to MAC) []byte {
	b = append(b, to[:]...)
	b = append(b, p.SenderMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeARP)
	b = binary.BigEndian.AppendUint16(b, hardwareEther)
	b = binary.BigEndian.AppendUint16(b, protocolIPv4)
	b = append(b, 6, 4)
	b = binary.BigEndian.AppendUint16(b, uint16(p.Op))
	sender, target := p.Sender.As4(), p.Target.As4()
	b = append(b, p.SenderMAC[:]...)
	b = append(b, sender[:]...)
	b = append(b, p.TargetMAC[:]...)
	return append(b, target[:]...)
}

// Probe reports whether the packet asks if an address is free (RFC 5227, 1.1).
func (p *Packet) Probe() bool {
	return p.Op == Request && p.Sender.IsUnspecified() && !p.Target.IsUnspecified()
}

// Announcement reports whether the packet claims an address for its sender, as a request or, as
// some systems do, as a reply (RFC 5227, 3).
func (p *Packet) Announcement() bool {
	return p.Sender == p.Target && !p.Sender.IsUnspecified()
}

// probe asks whether any node uses an address.
func probe(mac MAC, a netip.Addr) Packet {
	return Packet{Op: Request, SenderMAC: mac, Sender: netip.IPv4Unspecified(), Target: a}
}

// announcement says that a is at mac.
func announcement(mac MAC, a netip.Addr) Packet {
	return Packet{Op: Request, SenderMAC: mac, Sender: a, Target: a}
}

// AppendUnsolicitedNA appends a frame with an unsolicited neighbour advertisement (RFC 4861,
// 7.2.6). It announces an IPv6 address and overrides what other nodes have cached.
func AppendUnsolicitedNA(b []byte, mac MAC, a netip.Addr) []byte {
	const (
		typeNA       = 136
		override     = 0x20
		optTargetLLA = 2
		length       = 24 + 8
		icmpv6       = 58
	)
	allNodes := netip.MustParseAddr("ff02::1").As16()
	addr := a.As16()
	b = append(b, 0x33, 0x33, 0, 0, 0, 1)
	b = append(b, mac[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv6)
	b = append(b, 0x60, 0, 0, 0, 0, length, icmpv6, 255) // 255: proves that no router forwarded it
	b = append(b, addr[:]...)
	b = append(b, allNodes[:]...)
	at := len(b)
	b = append(b, typeNA, 0, 0, 0, override, 0, 0, 0)
	b = append(b, addr[:]...)
	b = append(b, optTargetLLA, 1)
	b = append(b, mac[:]...)

	sum := uint32(length + icmpv6)
	for _, part := range [][]byte{addr[:], allNodes[:], b[at:]} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[at+2:], ^uint16(sum))
	return b
}
