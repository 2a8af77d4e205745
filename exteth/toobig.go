package exteth

import (
	"encoding/binary"

	"exnet/mtu"
)

// An icmpError holds the fields of an ICMP error for both IP families.
type icmpError struct {
	type4, code4, type6, code6 uint8
	rest                       uint32 // the four bytes after the checksum
}

// AppendTooBig appends the answer to a frame that [Engine.Send] refused with ErrTooBig: ICMP
// "fragmentation needed" or ICMPv6 "packet too big", with the MTU from [Engine.TooBig]. It goes to
// the frame's sender and appears to come from its destination. ok is false for frames that must not
// be answered (RFC 1122, 3.2.2; RFC 4443, 2.4 e).
//
// An IPv4 packet without DF is answered, too. A router would fragment it instead. Nobody fragments
// here, but after the answer Linux fragments the next packet itself.
func AppendTooBig(b, frame []byte, tell mtu.IP) (_ []byte, ok bool) {
	return appendError(b, frame, icmpError{type4: 3, code4: 4, type6: 2, rest: uint32(tell)})
}

// AppendUnreachable appends the answer to a frame whose next hop cannot be resolved: ICMP "host
// unreachable" or ICMPv6 "address unreachable". The rest is as in AppendTooBig.
func AppendUnreachable(b, frame []byte) (_ []byte, ok bool) {
	return appendError(b, frame, icmpError{type4: 3, code4: 1, type6: 1, code6: 3})
}

func appendError(b, frame []byte, e icmpError) (_ []byte, ok bool) {
	p, ok := parseIP(frame)
	if !ok || frame[6]&1 == 1 {
		return b, false
	}
	ip := frame[mtu.MACHeader:p.end]
	if p.family == mtu.IPv6 {
		return appendError6(b, frame, ip, p, e)
	}
	const protoICMP = 1
	isError := p.protocol == protoICMP && p.end > p.transport && frame[p.transport] != 8 && frame[p.transport] != 0
	laterFragment := binary.BigEndian.Uint16(ip[6:])&0x1fff != 0
	if frame[0]&1 == 1 || isError || laterFragment || ip[12]>>4 == 14 || binary.BigEndian.Uint32(ip[12:]) == 0 {
		return b, false
	}
	quote := ip[:mtu.TooBigQuote(mtu.IPv4, len(ip))]
	b = appendMAC(b, frame)
	at := len(b)
	b = append(b, 0x45, 0xc0)
	b = binary.BigEndian.AppendUint16(b, uint16(mtu.IPv4Header+mtu.ICMPHeader+len(quote)))
	b = append(b, 0, 0, 0x40, 0, 64, protoICMP, 0, 0)
	b = append(b, ip[16:20]...)
	b = append(b, ip[12:16]...)
	binary.BigEndian.PutUint16(b[at+10:], ^OnesSum(0, b[at:]))
	at = len(b)
	b = append(b, e.type4, e.code4, 0, 0)
	b = binary.BigEndian.AppendUint32(b, e.rest)
	b = append(b, quote...)
	binary.BigEndian.PutUint16(b[at+2:], ^OnesSum(0, b[at:]))
	return b, true
}

func appendError6(b, frame, ip []byte, p ipPacket, e icmpError) ([]byte, bool) {
	const protoICMPv6 = 58
	isError := p.protocol == protoICMPv6 && p.end > p.transport && frame[p.transport] < 128
	if isError || ip[8] == 0xff || [16]byte(ip[8:24]) == ([16]byte{}) {
		return b, false
	}
	quote := ip[:mtu.TooBigQuote(mtu.IPv6, len(ip))]
	source := ip[24:40]
	if source[0] == 0xff { // to a group: answer as from the sender itself, since we have no address
		source = ip[8:24]
	}
	b = appendMAC(b, frame)
	at := len(b)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(mtu.ICMPHeader+len(quote)))
	b = append(b, protoICMPv6, 64)
	b = append(b, source...)
	b = append(b, ip[8:24]...)
	msg := len(b)
	b = append(b, e.type6, e.code6, 0, 0)
	b = binary.BigEndian.AppendUint32(b, e.rest)
	b = append(b, quote...)
	sum := OnesSum(uint64(protoICMPv6+len(b)-msg), b[at+8:at+40])
	binary.BigEndian.PutUint16(b[msg+2:], ^OnesSum(uint64(sum), b[msg:]))
	return b, true
}

// appendMAC appends the MAC header of an answer.
func appendMAC(b, frame []byte) []byte {
	b = append(b, frame[6:12]...)
	if frame[0]&1 == 1 {
		b = append(b, frame[6:12]...)
	} else {
		b = append(b, frame[:6]...)
	}
	return append(b, frame[12:14]...)
}
