package multicast

import (
	"encoding/binary"
	"net/netip"

	"exnet/arp"
)

// The general queries here are addressed only to the local stack, and make it report what it has
// joined. They never enter the network, so they do not interfere with a querier there. Their source
// addresses lose any election.

// maxResponse is the longest delay of an answer: 1 s, in tenths of a second.
const maxResponse = 10

// AppendIGMPQuery appends a frame with an IGMPv3 general query (RFC 3376, 4.1) from address
// 0.0.0.0, as RFC 4541 (2.1.1) requires of a device without an address.
func AppendIGMPQuery(b []byte, from arp.MAC) []byte {
	b = append(b, 0x01, 0x00, 0x5e, 0, 0, 1)
	b = append(b, from[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv4)
	at := len(b)
	b = append(b, 0x46, 0xc0, 0, 24+12, 0, 0, 0, 0, 1, protoIGMP, 0, 0, // TTL 1
		0, 0, 0, 0, // source
		224, 0, 0, 1,
		0x94, 4, 0, 0) // router alert
	binary.BigEndian.PutUint16(b[at+10:], checksum(b[at:], 0))
	at = len(b)
	// robustness 2, interval 125 s
	b = append(b, igmpQuery, maxResponse, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0)
	binary.BigEndian.PutUint16(b[at+2:], checksum(b[at:], 0))
	return b
}

// AppendMLDQuery appends a frame with an MLDv2 general query (RFC 3810, 5.1). The source must be a
// link-local address, but none of the asked host's own.
func AppendMLDQuery(b []byte, from arp.MAC, source netip.Addr) []byte {
	const length = 8 + 28
	allNodes := [16]byte{0: 0xff, 1: 0x02, 15: 1}
	src := source.As16()
	b = append(b, 0x33, 0x33, 0, 0, 0, 1)
	b = append(b, from[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv6)
	at := len(b)
	b = append(b, 0x60, 0, 0, 0, 0, length, protoHopByHop, 1)
	b = append(b, src[:]...)
	b = append(b, allNodes[:]...)
	b = append(b, protoICMPv6, 0, 5, 2, 0, 0, 1, 0) // router alert for MLD, padding
	msg := len(b)
	b = append(b, mldQuery, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, maxResponse*100) // milliseconds
	b = append(b, 0, 0)
	b = append(b, make([]byte, 16)...)
	b = append(b, 2, 125, 0, 0)
	binary.BigEndian.PutUint16(b[msg+2:], checksum(b[msg:], pseudoSum(b[at+8:at+40], len(b)-msg)))
	return b
}
