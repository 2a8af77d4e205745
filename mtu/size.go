package mtu

import (
	"errors"
	"fmt"

	"exnet/fabric"
)

// Header lengths in bytes, without options.
const (
	MACAddress = 6
	EtherType  = 2
	// MACHeader is destination, source and type. The fabric has no frame check sequence and no
	// padding (ETH-1).
	MACHeader = MACAddress + MACAddress + EtherType

	IPv4Header = 20
	IPv6Header = 40
	TCPHeader  = 20
	UDPHeader  = 8
	ICMPHeader = 8

	// IPv4HeaderMost and TCPHeaderMost are the limits of the 4-bit length fields, which count
	// 32-bit words.
	IPv4HeaderMost = 15 * 4
	TCPHeaderMost  = 15 * 4

	// VNetHeader is the length of struct virtio_net_hdr; VNetHeaderMerge includes the
	// num_buffers field. These headers travel beside a frame and do not count in its length.
	VNetHeader      = 1 + 1 + 2 + 2 + 2 + 2
	VNetHeaderMerge = VNetHeader + 2
)

type (
	// A Link is the largest payload of a MAC header on the fabric.
	Link int
	// An IP is the largest IP packet, its header included.
	IP int
	// A Frame is the length of a MAC header and its payload.
	Frame int
	// A TUN is the MTU of a TUN device.
	TUN int
	// A TAP is the MTU of a TAP device.
	TAP int
)

const (
	// MaxFrame is the length of one RMA transaction, which carries one frame (RDV-2).
	MaxFrame Frame = fabric.RMAMaxLength
	// MaxLink is the payload of a frame of that length: 8,388,594 (MTU-1).
	MaxLink Link = Link(MaxFrame) - MACHeader
	// DefaultLink is the default inside the fabric (MTU-1). An IP packet on it is at most
	// MaxIPv4 long.
	DefaultLink Link = 65536

	// MaxIPv4 follows from a 16-bit length field that includes the header.
	MaxIPv4 IP = 1<<16 - 1
	// MaxIPv6 follows from a length field that does not. Longer packets are jumbograms, which
	// neither Linux devices nor netstack make.
	MaxIPv6 IP = 1<<16 - 1 + IPv6Header

	// MinIPv4 is the length that every link must carry (RFC 791).
	MinIPv4 IP = 68
	// MinIPv6 is the same for IPv6 (RFC 8200). Below it Linux removes IPv6 from the interface.
	MinIPv6 IP = 1280

	// MaxTUN is the limit of the Linux driver: 65,535 bytes in one read(2).
	MaxTUN TUN = 1<<16 - 1
	// MaxTAP follows from the same limit, which includes the MAC header.
	MaxTAP TAP = 1<<16 - 1 - MACHeader
)

// ErrRange is wrapped by every error of the Check functions.
var ErrRange = errors.New("mtu: out of range")

// CheckLink checks an MTU for the fabric itself, between nodes without a kernel interface: MinIPv4
// to MaxLink.
func CheckLink(n int) (Link, error) {
	if n < int(MinIPv4) || n > int(MaxLink) {
		return 0, fmt.Errorf("link MTU %d: choose %d to %d (one RMA transaction of %d bytes less the MAC header): %w",
			n, MinIPv4, MaxLink, MaxFrame, ErrRange)
	}
	return Link(n), nil
}

// CheckTUN checks an MTU for a TUN device.
func CheckTUN(n int) (TUN, error) {
	if n < int(MinIPv4) || n > int(MaxTUN) {
		return 0, fmt.Errorf("MTU %d of a TUN device: Linux takes %d to %d: %w", n, MinIPv4, MaxTUN, ErrRange)
	}
	return TUN(n), nil
}

// CheckTAP checks an MTU for a TAP device.
func CheckTAP(n int) (TAP, error) {
	if n < int(MinIPv4) || n > int(MaxTAP) {
		return 0, fmt.Errorf("MTU %d of a TAP device: Linux takes %d to %d, a TUN device up to %d: %w",
			n, MinIPv4, MaxTAP, MaxTUN, ErrRange)
	}
	return TAP(n), nil
}

// IPv6 reports whether IPv6 works on a link of this MTU.
func (l Link) IPv6() bool { return l >= Link(MinIPv6) }

// Frame returns the longest frame of the link.
func (l Link) Frame() Frame { return Frame(l) + MACHeader }

// IPv4 returns the longest IPv4 packet of the link.
func (l Link) IPv4() IP { return min(IP(l), MaxIPv4) }

// IPv6Packet returns the longest IPv6 packet of the link.
func (l Link) IPv6Packet() IP { return min(IP(l), MaxIPv6) }

// Link returns the payload that a TUN of this MTU needs on the fabric.
func (t TUN) Link() Link { return Link(t) }

// Link returns the payload that a TAP of this MTU needs on the fabric.
func (t TAP) Link() Link { return Link(t) }

// Link returns the payload of a frame of this length, or 0 if it has none.
func (f Frame) Link() Link { return max(0, Link(f)-MACHeader) }

// TUN returns the largest TUN MTU that the link can serve.
func (l Link) TUN() TUN { return min(TUN(l), MaxTUN) }

// TAP returns the largest TAP MTU that the link can serve.
func (l Link) TAP() TAP { return min(TAP(l), MaxTAP) }
