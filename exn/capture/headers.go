package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"exnet/arp"
	"exnet/mtu"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	etherTypeIPv6 = 0x86dd

	protoNone   = 255 // reserved: no packet has it
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// headers are the fields that filters test and lines show.
type headers struct {
	etherType                   uint16
	protocol                    uint8 // protoNone if the packet is not IP
	source, destination         netip.Addr
	ports                       bool // the ports are known; they are not in later fragments
	sourcePort, destinationPort uint16
	kind                        uint8 // ICMP: its type; TCP: its flags; ARP: its operation
}

// parse reads what it can of a frame, each byte once, because it may lie in another node's memory.
func (h *headers) parse(frame []byte) {
	// room for some extension headers
	var copied [mtu.MACHeader + mtu.IPv4HeaderMost + mtu.TCPHeader + 100]byte
	b := copied[:copy(copied[:], frame)]
	*h = headers{protocol: protoNone}
	if len(b) < mtu.MACHeader {
		return
	}
	h.etherType = binary.BigEndian.Uint16(b[12:])
	ip := b[mtu.MACHeader:]
	switch h.etherType {
	case etherTypeARP:
		if p, ok := arp.Parse(ip); ok {
			h.source, h.destination, h.kind = p.Sender, p.Target, uint8(p.Op)
		}
	case etherTypeIPv4:
		if len(ip) < mtu.IPv4Header || int(ip[0]&15)*4 < mtu.IPv4Header || int(ip[0]&15)*4 > len(ip) {
			return
		}
		h.protocol = ip[9]
		h.source, h.destination = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		if binary.BigEndian.Uint16(ip[6:])&0x1fff == 0 {
			h.transport(ip[int(ip[0]&15)*4:])
		}
	case etherTypeIPv6:
		if len(ip) < mtu.IPv6Header {
			return
		}
		h.source, h.destination = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		next, rest, first := ip[6], ip[mtu.IPv6Header:], true
		for len(rest) >= 8 {
			size := 8 + int(rest[1])*8
			switch next {
			case 0, 43, 60: // hop-by-hop, routing, destination options
			case 44: // fragment
				size, first = 8, first && binary.BigEndian.Uint16(rest[2:])&^7 == 0
			default:
				size = 0
			}
			if size == 0 || size > len(rest) {
				break
			}
			next, rest = rest[0], rest[size:]
		}
		h.protocol = next
		if first {
			h.transport(rest)
		}
	}
}

func (h *headers) transport(b []byte) {
	switch {
	case (h.protocol == protoTCP || h.protocol == protoUDP) && len(b) >= 8:
		h.ports, h.sourcePort, h.destinationPort = true, binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		if h.protocol == protoTCP && len(b) >= mtu.TCPHeader {
			h.kind = b[13]
		}
	case (h.protocol == protoICMP || h.protocol == protoICMPv6) && len(b) >= 1:
		h.kind = b[0]
	}
}

// String returns the middle of a line: the two ends, and what they exchange.
func (h *headers) String() string {
	end := func(a netip.Addr, port uint16) string {
		if h.ports {
			return netip.AddrPortFrom(a, port).String()
		}
		return a.String()
	}
	switch {
	case h.etherType == etherTypeARP && h.kind == uint8(arp.Reply):
		return fmt.Sprintf("ARP reply, %v answers %v", h.source, h.destination)
	case h.etherType == etherTypeARP && h.source.IsValid():
		return fmt.Sprintf("ARP request, %v asks for %v", h.source, h.destination)
	case h.protocol == protoNone:
		return fmt.Sprintf("type 0x%04x", h.etherType)
	}
	what := "protocol " + strconv.Itoa(int(h.protocol))
	switch h.protocol {
	case protoTCP:
		what = "TCP" + flags(h.kind)
	case protoUDP:
		what = "UDP"
	case protoICMP:
		what = "ICMP type " + strconv.Itoa(int(h.kind))
	case protoICMPv6:
		what = "ICMPv6 type " + strconv.Itoa(int(h.kind))
	}
	return fmt.Sprintf("%s > %s %s", end(h.source, h.sourcePort), end(h.destination, h.destinationPort), what)
}

// flags formats TCP flags as tcpdump does.
func flags(f uint8) string {
	s := []byte(" [")
	for i, c := range []byte("FSRP.U") {
		if f&(1<<i) != 0 {
			s = append(s, c)
		}
	}
	return string(append(s, ']'))
}
