package shm

import (
	"encoding/binary"

	"exnet/fabric"
)

// Control messages travel on the SEQPACKET socket between two nodes, 40 bytes
// each, with at most one descriptor:
//
//	type u32, a u32, b u64, c u64, d u64, e u64 (little endian)
type message struct {
	kind    messageKind
	a       uint32
	b, c, d uint64
	e       uint64
}

type messageKind uint32

const (
	// msgHello opens a connection in both directions: a = version, b = node ID, d = magic;
	// descriptor: node region.
	msgHello messageKind = iota + 1
	// msgChannel passes the sender's channel region (descriptor).
	msgChannel
	// msgDoorbell passes the eventfd (descriptor) that wakes interrupt a.
	msgDoorbell
	// msgRing wakes interrupt a, if its doorbell is not known yet.
	msgRing
	// msgImport requests the memory of the window at NLA b; c is the memory's number.
	msgImport
	// msgImported answers msgImport: c = number, d = size, e = 1 if writable. It carries the
	// descriptor, or none if the window is gone (a = fabric.Fault).
	msgImported
	// msgFreed reports that memory c is freed.
	msgFreed
	// msgRegister is an immediate PUT to register a: b = data, c = enable,
	// d = source VPID | target VPID<<16 | mask<<32.
	msgRegister
	// msgRegistered reports that the register is written.
	msgRegistered
	// msgBye announces an orderly leave.
	msgBye
	msgEnd
)

const messageSize = 40

func (m *message) encode(b *[messageSize]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(m.kind))
	le.PutUint32(b[4:], m.a)
	le.PutUint64(b[8:], m.b)
	le.PutUint64(b[16:], m.c)
	le.PutUint64(b[24:], m.d)
	le.PutUint64(b[32:], m.e)
}

// decodeMessage checks what can be checked without the node's state.
func decodeMessage(b []byte, descriptors int) (m message, ok bool) {
	if len(b) != messageSize {
		return m, false
	}
	le := binary.LittleEndian
	m = message{messageKind(le.Uint32(b)), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}
	needs := 0
	switch m.kind {
	case msgHello:
		needs = 1
		ok = m.d == regionMagic && m.b <= uint64(fabric.MaxNodeID)
	case msgChannel:
		needs, ok = 1, true
	case msgDoorbell:
		needs = 1
		ok = m.a < maxInterrupts
	case msgRing:
		ok = m.a < maxInterrupts
	case msgImport:
		ok = m.c <= 1<<32-1
	case msgImported:
		ok = m.c <= 1<<32-1 && m.e <= 1
		if m.a == 0 {
			needs = 1
		}
	case msgFreed:
		ok = m.c <= 1<<32-1
	case msgRegister:
		ok = m.a < uint32(fabric.RegisterCount) && fabric.Register(m.a).Writable() && m.c <= 0xff &&
			fabric.VPID(m.d).Valid() && fabric.VPID(m.d>>16&0xffff).Valid() && m.d>>32 <= 7
	case msgRegistered, msgBye:
		ok = true
	}
	return m, ok && descriptors == needs
}
