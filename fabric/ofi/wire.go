package ofi

import (
	"encoding/binary"

	"exnet/fabric"
)

// A frame is one transfer of the provider: a header, and in a data frame
// records, one behind another.
//
//	0   version     of the format, 8 bits
//	1   kind        8 bits
//	2   from        the sender's node ID, 16 bits
//	4   flags       8 bits
//	5   0           24 bits
//	8   session     64 bits; 0 in a hello
//	16  seq         data: the frame's number; ack: the last one posted before it
//	24  ack         the last frame that the sender has taken
//
// All numbers are little endian.
const (
	frameSize   = 4096
	headerSize  = 32
	wireVersion = 1
)

// The kinds of frames.
const (
	frameHello = iota + 1
	frameData
	frameAck
	frameEnd
)

// The flags of an ack.
const (
	flagAnswer = 1 << iota // say what you have taken
	flagGap                // something behind what I have taken is missing
)

type header struct {
	version, kind, flags uint8
	from                 fabric.NodeID
	session, seq, ack    uint64
}

func (h *header) encode(b []byte) {
	b[0], b[1] = wireVersion, h.kind
	binary.LittleEndian.PutUint16(b[2:], uint16(h.from))
	b[4], b[5], b[6], b[7] = h.flags, 0, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.session)
	binary.LittleEndian.PutUint64(b[16:], h.seq)
	binary.LittleEndian.PutUint64(b[24:], h.ack)
}

// decodeHeader checks what can be checked without state. A hello of another
// version is legal, so that its sender can be told.
func decodeHeader(b []byte) (h header, ok bool) {
	if len(b) < headerSize || len(b) > frameSize {
		return h, false
	}
	h = header{
		version: b[0], kind: b[1], flags: b[4],
		from:    fabric.NodeID(binary.LittleEndian.Uint16(b[2:])),
		session: binary.LittleEndian.Uint64(b[8:]),
		seq:     binary.LittleEndian.Uint64(b[16:]),
		ack:     binary.LittleEndian.Uint64(b[24:]),
	}
	if h.from > fabric.MaxNodeID || b[5]|b[6]|b[7] != 0 {
		return h, false
	}
	if h.kind == frameHello {
		return h, true
	}
	return h, h.version == wireVersion && h.kind < frameEnd && h.kind != 0 && h.session != 0
}

// A hello is the body of a hello frame.
type hello struct {
	instance uint64 // of the sender
	mine     uint64 // the sender's nonce for the next session
	yours    uint64 // the receiver's as the sender knows it, or 0
	groups   uint64
}

const helloSize = 32

func (h *hello) encode(b []byte) {
	for i, v := range []uint64{h.instance, h.mine, h.yours, h.groups} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

func decodeHello(b []byte) (h hello, ok bool) {
	if len(b) != helloSize {
		return h, false
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	h = hello{at(0), at(1), at(2), at(3)}
	return h, h.mine != 0 && h.instance != 0
}

// The kinds of records. An operation has a number, op, which answers repeat.
const (
	recVELO    = iota + 1 // a message; op = tags and length; data
	recCredit             // a = unit, dst = VPID; x = how many were consumed in all
	recImm                // immediate PUT: a = mask, x = NLA, y = data, z = enable
	recReply              // operation op is over: a = fault
	recRead               // read a register: a = mask, x = NLA, y = length
	recValue              // op: a = fault, x = value
	recPut                // begin of a PUT: a = mask, x = NLA, y = length in all
	recPutData            // the next bytes of the PUT that began last: x = how many; data
	recGet                // a GET: a = mask, x = NLA, y = length
	recGetData            // op: the next bytes of the GET: x = how many; data
	recLease              // ask: dst = VPID, op = name of the window
	recGrant              // the answer, dst and op the same: a = fault, src = rights, and 4 if by RMA; x, y, z = address, key, length
	recRevoke             // op = name of a window whose grant ends
	recRevoked            // op = the same: it will not be used any more
	recPutDone            // a PUT by RMA is complete: a = mask, x = NLA, y = length
	recGetDone            // a GET by RMA likewise
	recGroups             // x = the sender's groups
	recBye                // the sender leaves
	recClosed             // a = unit, dst = VPID: a port was closed
	recFlushed            // the answer: what comes behind it was sent knowing that
	recEnd
)

// A record is the decoded form of all of them. On the wire it has 1 to 4 words
// of 8 bytes, see recordWords, and data, padded to 8 bytes:
//
//	0 kind  1 a  2 src  3 dst  4 op, 32 bits;  8 x  16 y  24 z
type record struct {
	kind, a  uint8
	src, dst uint8
	op       uint32
	x, y, z  uint64
	data     []byte
}

// recordWords is how many words of 8 bytes a record has before its data.
var recordWords = [recEnd]int{
	recVELO: 1, recCredit: 2, recImm: 4, recReply: 1, recRead: 3, recValue: 2, recPut: 3, recPutData: 2, recGet: 3,
	recGetData: 2, recLease: 1, recGrant: 4, recRevoke: 1, recRevoked: 1, recPutDone: 3, recGetDone: 3, recGroups: 2, recBye: 1, recClosed: 1, recFlushed: 1,
}

// size is the record's length on the wire.
func (r *record) size() int { return 8*recordWords[r.kind] + (len(r.data)+7)&^7 }

// dataLength is how many bytes of data a decoded head announces.
func (r *record) dataLength() int {
	switch r.kind {
	case recVELO:
		return int(r.op >> 16 & 0xff)
	case recPutData, recGetData:
		return int(r.x & 0xffff)
	}
	return 0
}

// encode writes the record, whose head says how many bytes of data it has.
func (r *record) encode(b []byte) int {
	b[0], b[1], b[2], b[3] = r.kind, r.a, r.src, r.dst
	binary.LittleEndian.PutUint32(b[4:], r.op)
	words := recordWords[r.kind]
	for i, v := range [3]uint64{r.x, r.y, r.z} {
		if i+1 < words {
			binary.LittleEndian.PutUint64(b[8+8*i:], v)
		}
	}
	n := copy(b[8*words:], r.data)
	clear(b[8*words+n : r.size()])
	return r.size()
}

// decode reads the first record of b and returns its length; 0 for garbage.
func (r *record) decode(b []byte) int {
	if len(b) < 8 || b[0] == 0 || b[0] >= recEnd {
		return 0
	}
	*r = record{kind: b[0], a: b[1], src: b[2], dst: b[3], op: binary.LittleEndian.Uint32(b[4:])}
	words := recordWords[r.kind]
	if len(b) < 8*words {
		return 0
	}
	for i, v := range [3]*uint64{&r.x, &r.y, &r.z} {
		if i+1 < words {
			*v = binary.LittleEndian.Uint64(b[8+8*i:])
		}
	}
	n := r.dataLength()
	end := 8*words + (n+7)&^7
	if len(b) < end {
		return 0
	}
	r.data = b[8*words:][:n:n]
	return end
}
