package fabric

// VELO: small messages. A message is one 128-byte slot in the ring of the
// receiving port: an 8-byte status word and up to 120 bytes of payload
// (VEL-1, VEL-3). Software describes a message by an 8-byte descriptor.

const (
	// VELOSlot is the size of a ring slot in bytes.
	VELOSlot = 128
	// VELOStatusLen is the size of the status word in bytes.
	VELOStatusLen = 8
	// VELOMaxPayload is the largest payload in bytes.
	VELOMaxPayload = VELOSlot - VELOStatusLen
)

// A VELODescriptor tells where a message goes and how it is marked (VEL-2). The length is that of
// the payload, which is passed separately.
type VELODescriptor struct {
	To        Address // with Multicast: To.Node is the Group, To.VPID the port at each member
	UserTag   uint8   // 6 bits
	MTT       uint8   // message type tag, 4 bits
	Multicast bool
	Quiet     bool // raise no interrupt at the receiver (INT = 0)

	// After makes the message wait for the data of every PUT that this node posted to the
	// target node before: a receiver that polls the message sees the data. Without After, the
	// message may overtake the data. The flag stays with the sender and has no bit in the
	// descriptor.
	After bool
}

// Valid reports whether every field fits its bits and range.
func (d VELODescriptor) Valid() bool {
	if d.UserTag >= 1<<6 || d.MTT >= 1<<4 || !d.To.VPID.Valid() {
		return false
	}
	return !d.Multicast || d.To.Node < GroupCount
}

// Encode returns the descriptor's two 32-bit words, with word0 in the low half. word0: MC[31]
// VPID[25:16] node[15:0]. word1: len[27:16] utag[15:10] INT[4] MTT[3:0].
func (d VELODescriptor) Encode(length int) uint64 {
	w0 := uint32(d.To.Node) | uint32(d.To.VPID&0x3ff)<<16
	if d.Multicast {
		w0 |= 1 << 31
	}
	w1 := uint32(d.MTT&0xf) | uint32(d.UserTag&0x3f)<<10 | uint32(length&0xfff)<<16
	if !d.Quiet {
		w1 |= 1 << 4
	}
	return uint64(w0) | uint64(w1)<<32
}

// DecodeVELODescriptor is the inverse of Encode. ok is false when a reserved
// bit is set or a field is outside its range.
func DecodeVELODescriptor(v uint64) (d VELODescriptor, length int, ok bool) {
	w0, w1 := uint32(v), uint32(v>>32)
	d = VELODescriptor{
		To:        Address{NodeID(w0), VPID(w0 >> 16 & 0x3ff)},
		UserTag:   uint8(w1 >> 10 & 0x3f),
		MTT:       uint8(w1 & 0xf),
		Multicast: w0>>31 == 1,
		Quiet:     w1>>4&1 == 0,
	}
	length = int(w1 >> 16 & 0xfff)
	reserved := w0&0x7c00_0000 | w1&0xf000_03e0
	return d, length, reserved == 0 && d.Valid() && length >= 1 && length <= VELOMaxPayload
}

// A Status is the status word in front of a slot's payload. Bit layout:
//
//	valid[63] 0[62:50] len[49:38] utag[37:32] MTT[31:28] INT[27] MC[26] VPID[25:16] node[15:0]
//
// Valid is the lap parity: 1 on the first pass over a ring, 0 on the second, and so on. So a ring
// needs no clearing, and a new, zeroed ring is empty. It is the last bit to be written, with
// release order.
type Status uint64

// MakeStatus builds the status word of a message from src; valid is the lap parity.
func MakeStatus(src Address, d VELODescriptor, length int, valid uint64) Status {
	v := uint64(src.Node) | uint64(src.VPID&0x3ff)<<16 | uint64(d.MTT&0xf)<<28 |
		uint64(d.UserTag&0x3f)<<32 | uint64(length&0xfff)<<38 | (valid&1)<<63
	if d.Multicast {
		v |= 1 << 26
	}
	if !d.Quiet {
		v |= 1 << 27
	}
	return Status(v)
}

// Source returns the sending port.
func (s Status) Source() Address { return Address{NodeID(s), VPID(s >> 16 & 0x3ff)} }

// Multicast reports whether the message was sent to a group.
func (s Status) Multicast() bool { return s>>26&1 == 1 }

// Interrupt reports whether the sender asked for an interrupt.
func (s Status) Interrupt() bool { return s>>27&1 == 1 }

// MTT returns the message type tag.
func (s Status) MTT() uint8 { return uint8(s >> 28 & 0xf) }

// UserTag returns the user tag.
func (s Status) UserTag() uint8 { return uint8(s >> 32 & 0x3f) }

// Len returns the payload length, which is unchecked until Check returns true.
func (s Status) Len() int { return int(s >> 38 & 0xfff) }

// Parity returns the lap parity.
func (s Status) Parity() uint64 { return uint64(s >> 63) }

// Check reports whether an honest sender can have written the word: VPID and length are legal, and
// reserved bits are zero.
func (s Status) Check() bool {
	return s>>50&0x1fff == 0 && s.Source().VPID.Valid() && s.Len() >= 1 && s.Len() <= VELOMaxPayload
}

// A Message is a received VELO message. The payload is a private copy.
type Message struct {
	Status Status
	Data   [VELOMaxPayload]byte
}

// Payload returns the bytes of the message.
func (m *Message) Payload() []byte { return m.Data[:min(m.Status.Len(), VELOMaxPayload)] }

// VELO is an open VELO port.
type VELO interface {
	// Address returns the port's own address.
	Address() Address

	// Send posts one message. It returns nil if the message is on its way, ErrFull if there is
	// no room, or ErrLength, ErrRange, ErrNoNode, ErrNoPort or ErrClosed. A multicast goes to
	// every member but the sender. It returns nil even if a member whose ring is full has lost
	// its copy (counted in RegVELOMulticastLost).
	Send(d VELODescriptor, payload []byte) error

	// Poll takes up to len(into) messages, fairly among the sources, and returns how many. It
	// never blocks.
	Poll(into []Message) int

	// Close frees the VPID. Messages that were not polled are lost, and counted.
	Close() error
}
