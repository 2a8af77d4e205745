package exteth

import (
	"encoding/binary"
	"fmt"

	"exnet/fabric"
	"exnet/mtu"
)

// The messages between two nodes are VELO messages. The message type tag (MTT) tells them apart
// (EAG-3). Numbers are little endian.
//
//	FRAG, FRAG_LAST  a fragment of a frame; the user tag is its index, 0..63. With
//	                 the VNET bit, fragment 0 starts with a 10-byte virtio header.
//	                 A multicast may lose messages, so each of its fragments starts
//	                 with a 16-bit number of the frame.
//	GET_INFO         the advert of a frame: fetch it
//	GET_NACK         the receiver will not fetch an advertised frame
//	HELLO            version, capabilities and MTU of the sender
const (
	tagFrag     = 1
	tagFragLast = 2
	tagGetInfo  = 3
	tagGetNack  = 4
	tagHello    = 5

	tagVNet = 1 << 3 // added to FRAG and FRAG_LAST
)

const (
	// Fragment is the payload of an eager fragment (EAG-1).
	Fragment = fabric.VELOMaxPayload
	// maxFragments is how many the 6 bits of the user tag can number.
	maxFragments = 1 << 6
	// numberLen is the length of the frame number in front of multicast fragments.
	numberLen = 2

	// MaxEager is the longest frame that can be sent eagerly together with a virtio header.
	MaxEager = maxFragments*Fragment - mtu.VNetHeader
	// MaxMulticastEager is the same for multicast.
	MaxMulticastEager = maxFragments * (Fragment - numberLen)
)

// An advert tells a receiver where to fetch a frame. The virtio header travels in the advert, so
// the whole length of one RMA transaction is left for the frame (RDV-2).
type advert struct {
	source fabric.NLA
	length int
	vnet   VNet
}

const advertLen = 8 + 4 + mtu.VNetHeader

func (a *advert) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(a.source))
	b = binary.LittleEndian.AppendUint32(b, uint32(a.length))
	return a.vnet.append(b)
}

func parseAdvert(b []byte) (a advert, ok bool) {
	if len(b) != advertLen {
		return advert{}, false
	}
	a.source = fabric.NLA(binary.LittleEndian.Uint64(b))
	length := binary.LittleEndian.Uint32(b[8:])
	a.vnet = parseVNet(b[12:])
	a.length = int(length)
	return a, length >= mtu.MACHeader && length <= uint32(mtu.MaxFrame)
}

// A nack names the refused advert by its source and length.
type nack struct {
	source fabric.NLA
	length int
}

const nackLen = 8 + 4

func (n *nack) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(n.source))
	return binary.LittleEndian.AppendUint32(b, uint32(n.length))
}

func parseNack(b []byte) (n nack, ok bool) {
	if len(b) != nackLen {
		return nack{}, false
	}
	n.source = fabric.NLA(binary.LittleEndian.Uint64(b))
	length := binary.LittleEndian.Uint32(b[8:])
	n.length = int(length)
	return n, length >= 1 && length <= uint32(mtu.MaxFrame)
}

// Version is the version of this protocol. Nodes of different versions exchange no frames; each
// message refused for that reason is counted.
const Version = 1

// A hello introduces a node. It is sent when the node starts, and in answer to another's hello.
type hello struct {
	version  uint8
	answer   bool // this is an answer: do not answer it
	caps     Caps
	mtu      mtu.Link
	instance uint64 // distinguishes a restarted engine from the one before
}

const helloLen = 1 + 1 + 2 + 4 + 8

func (h *hello) append(b []byte) []byte {
	flags := uint8(0)
	if h.answer {
		flags = 1
	}
	b = append(b, h.version, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(h.caps))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.mtu))
	return binary.LittleEndian.AppendUint64(b, h.instance)
}

// parseHello accepts longer messages, which other versions may send: it must get their version.
func parseHello(b []byte) (h hello, ok bool) {
	if len(b) < helloLen {
		return hello{}, false
	}
	h = hello{
		version:  b[0],
		answer:   b[1]&1 == 1,
		caps:     Caps(binary.LittleEndian.Uint16(b[2:])),
		instance: binary.LittleEndian.Uint64(b[8:]),
	}
	link := binary.LittleEndian.Uint32(b[4:])
	h.mtu = mtu.Link(link)
	return h, link >= uint32(mtu.MinIPv4) && link <= uint32(mtu.MaxLink)
}

// Caps are the offloads that a receiver takes: virtio's, and CapBig. The sender completes in
// software what the receiver does not take.
type Caps uint16

// The capabilities.
const (
	CapChecksum Caps = 1 << iota // partial checksums
	CapTSO4                      // TCP super-packets over IPv4
	CapTSO6                      // TCP super-packets over IPv6
	CapECN                       // TCP super-packets with CWR set
	CapUSO                       // UDP super-packets
	CapBig                       // TCP super-packets over IPv4 longer than an IPv4 header can say
	capsEnd

	// CapAll is everything this version knows.
	CapAll = capsEnd - 1
)

var capNames = [...]string{"csum", "tso4", "tso6", "ecn", "uso", "big"}

func (c Caps) String() string {
	s := ""
	for i, name := range capNames {
		if c>>i&1 == 1 {
			if s != "" {
				s += "+"
			}
			s += name
		}
	}
	if c >= capsEnd {
		s += fmt.Sprintf("+%#x", uint16(c&^CapAll))
	}
	if s == "" {
		return "none"
	}
	return s
}
