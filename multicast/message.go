package multicast

import (
	"encoding/binary"
	"net/netip"
)

// A statement is what a membership message says about one group.
type statement uint8

const (
	joins  statement = iota + 1 // is or becomes a member
	leaves                      // is no longer a member
	asks                        // is a query; the group is the zero Addr if it is general
)

const (
	macHeaderLen  = 14
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	protoHopByHop = 0
	protoIGMP     = 2
	protoICMPv6   = 58
	protoDestOpts = 60

	igmpQuery    = 0x11
	igmpV1Report = 0x12
	igmpV2Report = 0x16
	igmpV2Leave  = 0x17
	igmpV3Report = 0x22

	mldQuery    = 130
	mldV1Report = 131
	mldV1Done   = 132
	mldV2Report = 143
)

// A version is the IP version of a message.
type version uint8

// parse calls f for each statement of an IGMP or MLD message in the frame, and does nothing for
// other frames. If a message is malformed from some record on, only the statements before it count.
func parse(frame []byte, f func(version, statement, netip.Addr)) {
	if len(frame) < macHeaderLen+20 {
		return
	}
	ip := frame[macHeaderLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeIPv4:
		if ip[0]>>4 != 4 || ip[9] != protoIGMP {
			return
		}
		ihl, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
		// more fragments follow, or this is not the first
		fragment := binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
		if ihl < 20 || total > len(ip) || total < ihl+8 || fragment {
			return
		}
		if msg := ip[ihl:total]; checksum(msg, 0) == 0 {
			parseIGMP(msg, f)
		}
	case etherTypeIPv6:
		if len(ip) < 40 || ip[0]>>4 != 6 {
			return
		}
		total := 40 + int(binary.BigEndian.Uint16(ip[4:]))
		if total > len(ip) {
			return
		}
		next, at := ip[6], 40
		for next == protoHopByHop || next == protoDestOpts {
			if total-at < 8 {
				return
			}
			next, at = ip[at], at+8+int(ip[at+1])*8
		}
		if next != protoICMPv6 || at > total || total-at < 8 {
			return
		}
		msg := ip[at:total]
		if checksum(msg, pseudoSum(ip[8:40], len(msg))) == 0 {
			parseMLD(msg, f)
		}
	}
}

func parseIGMP(msg []byte, f func(version, statement, netip.Addr)) {
	group := netip.AddrFrom4([4]byte(msg[4:8]))
	switch msg[0] {
	case igmpQuery:
		if group.IsUnspecified() {
			group = netip.Addr{}
		}
		f(4, asks, group)
	case igmpV1Report, igmpV2Report:
		say(4, joins, group, f)
	case igmpV2Leave:
		say(4, leaves, group, f)
	case igmpV3Report:
		parseRecords(4, 4, msg, f)
	}
}

func parseMLD(msg []byte, f func(version, statement, netip.Addr)) {
	if msg[0] == mldV2Report {
		parseRecords(6, 16, msg, f)
		return
	}
	if len(msg) < 24 {
		return
	}
	group := netip.AddrFrom16([16]byte(msg[8:24]))
	switch msg[0] {
	case mldQuery:
		if group.IsUnspecified() {
			group = netip.Addr{}
		}
		f(6, asks, group)
	case mldV1Report:
		say(6, joins, group, f)
	case mldV1Done:
		say(6, leaves, group, f)
	}
}

// parseRecords parses the group records of an IGMPv3 (RFC 3376, 4.2) or MLDv2 (RFC 3810, 5.2)
// report, which differ only in the length of an address.
func parseRecords(v version, addrLen int, msg []byte, f func(version, statement, netip.Addr)) {
	const (
		isInclude = iota + 1
		isExclude
		toInclude
		toExclude
		allow
	)
	records, rest := int(binary.BigEndian.Uint16(msg[6:])), msg[8:]
	for range records {
		if len(rest) < 4+addrLen {
			return
		}
		kind, sources := rest[0], int(binary.BigEndian.Uint16(rest[2:]))
		length := 4 + addrLen + sources*addrLen + int(rest[1])*4
		if length > len(rest) {
			return
		}
		group, _ := netip.AddrFromSlice(rest[4 : 4+addrLen])
		rest = rest[length:]
		switch kind {
		case isExclude, toExclude:
			say(v, joins, group, f)
		case isInclude, toInclude:
			if sources == 0 {
				say(v, leaves, group, f)
			} else {
				say(v, joins, group, f)
			}
		case allow:
			if sources > 0 {
				say(v, joins, group, f)
			}
		}
		// BLOCK says nothing certain, because other sources may remain. If a member's last
		// source was blocked, the next query shows it.
	}
}

func say(v version, s statement, group netip.Addr, f func(version, statement, netip.Addr)) {
	if group.IsMulticast() && !group.Is4In6() {
		f(v, s, group)
	}
}

// checksum returns the Internet checksum of b with an initial sum; it is 0 if b contains a correct
// checksum.
func checksum(b []byte, sum uint32) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1]) // at most 32,768 words: no overflow
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudoSum returns the sum of the ICMPv6 pseudo-header. addresses holds source and destination.
func pseudoSum(addresses []byte, length int) uint32 {
	return uint32(^checksum(addresses, uint32(length)+protoICMPv6))
}
