package exteth

import (
	"encoding/binary"
	"errors"

	"exnet/mtu"
)

// A VNet is a virtio network header: it says what is still to be done to a frame. It travels beside
// the frame. So a super-packet stays whole, and a partial checksum stays partial, between two nodes
// that both take them.
//
// In exteth, offsets count from the first byte of the MAC header. (A TUN counts from the IP header;
// see [VNet.Shift].) HdrLen is a hint that nothing here relies on.
type VNet struct {
	Flags      uint8
	GSO        GSOType
	HdrLen     uint16
	GSOSize    uint16 // payload of each segment but the last
	CsumStart  uint16 // first byte summed
	CsumOffset uint16 // of the checksum field, from CsumStart
}

// Flags of a VNet.
const (
	NeedsChecksum = 1 // the field holds only the sum of the pseudo-header
	DataValid     = 2 // the checksum was verified
)

// A GSOType says how to cut a super-packet.
type GSOType uint8

// The types, with Linux's numbers (include/uapi/linux/virtio_net.h).
const (
	GSONone  GSOType = 0
	GSOTCPv4 GSOType = 1
	GSOTCPv6 GSOType = 4
	GSOUDP   GSOType = 5 // UDP segments, not fragments
	GSOECN   GSOType = 0x80
)

// ErrVNet means that a virtio header does not fit its frame.
var ErrVNet = errors.New("exteth: virtio header does not fit the frame")

func (v VNet) append(b []byte) []byte {
	b = append(b, v.Flags, uint8(v.GSO))
	b = binary.LittleEndian.AppendUint16(b, v.HdrLen)
	b = binary.LittleEndian.AppendUint16(b, v.GSOSize)
	b = binary.LittleEndian.AppendUint16(b, v.CsumStart)
	return binary.LittleEndian.AppendUint16(b, v.CsumOffset)
}

// parseVNet reads the first 10 bytes of b.
func parseVNet(b []byte) VNet {
	_ = b[mtu.VNetHeader-1]
	return VNet{
		Flags:      b[0],
		GSO:        GSOType(b[1]),
		HdrLen:     binary.LittleEndian.Uint16(b[2:]),
		GSOSize:    binary.LittleEndian.Uint16(b[4:]),
		CsumStart:  binary.LittleEndian.Uint16(b[6:]),
		CsumOffset: binary.LittleEndian.Uint16(b[8:]),
	}
}

// ParseVNet reads a header from a TUN or TAP in little-endian mode, 10 or 12 bytes long. base is
// how many bytes of the frame precede what the device calls its start: [mtu.MACHeader] for a TUN, 0
// for a TAP.
func ParseVNet(b []byte, base int) (v VNet, ok bool) {
	if len(b) < mtu.VNetHeader {
		return VNet{}, false
	}
	v = parseVNet(b)
	return v.Shift(base), true
}

// Put writes the header for a device, the inverse of ParseVNet. It sets the num_buffers field of a
// 12-byte header to 1.
func (v VNet) Put(b []byte, base int) {
	v = v.Shift(-base)
	v.append(b[:0])
	if len(b) >= mtu.VNetHeaderMerge {
		binary.LittleEndian.PutUint16(b[mtu.VNetHeader:], 1)
	}
}

// Shift moves the offsets by n bytes.
func (v VNet) Shift(n int) VNet {
	if v.Flags&NeedsChecksum != 0 {
		v.CsumStart = uint16(int(v.CsumStart) + n)
	}
	if v.HdrLen != 0 {
		v.HdrLen = uint16(max(0, int(v.HdrLen)+n))
	}
	return v
}

// Plain reports whether the frame is complete as it is.
func (v VNet) Plain() bool { return v.Flags&NeedsChecksum == 0 && v.GSO == GSONone }

// Needs returns the capabilities that a receiver needs for such a frame. known is false for a type
// that this version does not know.
func (v VNet) Needs() (c Caps, known bool) {
	if v.Flags&NeedsChecksum != 0 {
		c = CapChecksum
	}
	if v.GSO&GSOECN != 0 {
		c |= CapECN
	}
	switch v.GSO &^ GSOECN {
	case GSONone:
		return c &^ CapECN, v.GSO == GSONone
	case GSOTCPv4:
		return c | CapTSO4, true
	case GSOTCPv6:
		return c | CapTSO6, true
	case GSOUDP:
		return c | CapUSO, v.GSO == GSOUDP
	}
	return 0, false
}

// needs is Needs for a frame of n bytes, which may be too long for an IPv4 header to say.
func (v VNet) needs(n int) Caps {
	c, _ := v.Needs()
	if v.GSO&^GSOECN == GSOTCPv4 && n > mtu.MACHeader+int(mtu.MaxIPv4) {
		c |= CapBig
	}
	return c
}

// Check reports whether the header can belong to a frame of n bytes.
func (v VNet) Check(n int) bool {
	if _, known := v.Needs(); !known {
		return false
	}
	if v.Flags&NeedsChecksum != 0 &&
		(v.CsumStart < mtu.MACHeader || int(v.CsumStart)+int(v.CsumOffset)+2 > n) {
		return false
	}
	return v.GSO == GSONone || v.GSOSize > 0 && v.Flags&NeedsChecksum != 0
}
