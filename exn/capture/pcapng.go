package capture

import (
	"encoding/binary"
	"time"

	"exnet/arp"
	"exnet/exn"
)

// pcapng (draft-ietf-opsawg-pcapng) consists of blocks, each with a type, and a length at both
// ends. Here all of them are little-endian, whatever the machine.
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1

	optionEnd         = 0
	optionComment     = 1
	optionApplication = 4 // of a section
	optionName        = 2 // of an interface
	optionDescription = 3
	optionResolution  = 9
	optionFlags       = 2 // of a packet
	optionDropped     = 5 // of statistics

	nanoseconds = 9 // the resolution of times: 10^-9 s

	// The flags of a packet: its direction, and whether it is unicast, multicast or broadcast.
	flagInbound, flagOutbound           = 1, 2
	flagUnicast, flagGroup, flagAllHost = 1 << 2, 2 << 2, 3 << 2
)

// A block is being appended to a buffer. Options and data are padded to 4 bytes.
type block struct {
	b     []byte
	start int
}

func begin(b []byte, kind uint32) block {
	s := block{b, len(b)}
	s.u32(kind)
	s.u32(0) // the length, set at the end
	return s
}

func (s *block) u16(v uint16) { s.b = binary.LittleEndian.AppendUint16(s.b, v) }
func (s *block) u32(v uint32) { s.b = binary.LittleEndian.AppendUint32(s.b, v) }

func (s *block) pad() {
	for (len(s.b)-s.start)%4 != 0 {
		s.b = append(s.b, 0)
	}
}

func (s *block) option(code uint16, value []byte) {
	s.u16(code)
	s.u16(uint16(len(value)))
	s.b = append(s.b, value...)
	s.pad()
}

func (s *block) end() []byte {
	s.option(optionEnd, nil)
	n := uint32(len(s.b) - s.start + 4)
	s.u32(n)
	binary.LittleEndian.PutUint32(s.b[s.start+4:], n)
	return s.b
}

// moment splits a time as pcapng does.
func (s *block) moment(t time.Time) {
	n := uint64(t.UnixNano())
	s.u32(uint32(n >> 32))
	s.u32(uint32(n))
}

// appendStart appends the beginning of a stream: a section with one interface.
func appendStart(b []byte, about About, snap int) []byte {
	s := begin(b, blockSection)
	s.u32(byteOrderMagic)
	s.u16(1) // version 1.0
	s.u16(0)
	s.u32(0xffffffff) // the length of the section: unknown
	s.u32(0xffffffff)
	s.option(optionApplication, []byte(about.Program))
	s = begin(s.end(), blockInterface)
	s.u16(linkEthernet)
	s.u16(0)
	s.u32(uint32(snap))
	s.option(optionName, []byte(about.Name))
	s.option(optionDescription, []byte(about.Description))
	s.option(optionResolution, []byte{nanoseconds})
	return s.end()
}

// appendFrame appends a frame. It copies each byte once.
func appendFrame(b []byte, c *exn.CaptureFrame, self string, snap int) []byte {
	n := len(c.Frame)
	if snap > 0 {
		n = min(n, snap)
	}
	s := begin(b, blockPacket)
	s.u32(0) // the interface
	s.moment(c.Time)
	s.u32(uint32(n))
	s.u32(uint32(len(c.Frame)))
	at := len(s.b)
	s.b = append(s.b, c.Frame[:n]...)
	flags := uint32(flagInbound)
	if c.Sent {
		flags = flagOutbound
	}
	switch copied := s.b[at:]; {
	case len(copied) >= 6 && arp.MAC(copied) == arp.Broadcast:
		flags |= flagAllHost
	case c.Multicast:
		flags |= flagGroup
	default:
		flags |= flagUnicast
	}
	s.pad()
	s.option(optionFlags, binary.LittleEndian.AppendUint32(nil, flags))
	s.option(optionComment, appendComment(nil, c, self))
	return s.end()
}

// appendDropped appends how many wanted frames the capture has lost so far.
func appendDropped(b []byte, dropped uint64) []byte {
	s := begin(b, blockStatistics)
	s.u32(0) // the interface
	s.moment(time.Now())
	s.option(optionDropped, binary.LittleEndian.AppendUint64(nil, dropped))
	return s.end()
}
