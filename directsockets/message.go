package directsockets

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"exnet/directsockets/internal/lane"
)

// Control messages: ext-ds.md, section 2.
const messageSize = 256

const (
	msgHello    = 1 // first, from both sides; with memory and doorbells
	msgAttach   = 2 // join this connection; with a proof
	msgAttachOK = 3 // done; with a proof
	msgAttachNo = 4 // not done
)

type message struct {
	kind, version    uint32
	lane, generation uint32
	reason           uint32
	geometry         lane.Geometry // HELLO: of the sender's file
	size             uint64
	inode, peerInode uint64
	tuple            tuple // as the sender sees it
	v6               bool
	name             string // HELLO: the sender's listener
	features         uint32 // HELLO
}

const nameSize = 64 // with the 0 that ends it

// Features: a peer with takesBuffers knows the slot Buffer. A peer with takesDates wants to know
// when slots were posted, which helps if it waits for several lanes at once. Nobody does that here,
// so we do not ask for it.
const (
	takesBuffers = 1
	takesDates   = 2
)

func (m *message) encode() []byte {
	b := make([]byte, messageSize)
	order := binary.NativeEndian
	for i, v := range []uint32{m.kind, m.version, m.lane, m.generation, m.reason, m.geometry.Lanes, m.geometry.Slots, m.geometry.Window} {
		order.PutUint32(b[4*i:], v)
	}
	order.PutUint64(b[32:], m.size)
	order.PutUint64(b[40:], m.inode)
	order.PutUint64(b[48:], m.peerInode)
	if m.tuple.local.IsValid() {
		local, remote := wire(m.tuple.local), wire(m.tuple.remote)
		copy(b[56:72], local[:16])
		copy(b[72:88], remote[:16])
		copy(b[88:90], local[16:])
		copy(b[90:92], remote[16:])
	}
	if m.v6 {
		b[92] = 1
	}
	copy(b[96:96+nameSize-1], m.name)
	order.PutUint32(b[160:], m.geometry.Windows)
	order.PutUint32(b[164:], m.features)
	return b
}

// decode is the inverse of encode. It returns false if the name is not terminated.
func (m *message) decode(b *[messageSize]byte) bool {
	order := binary.NativeEndian
	u32 := func(at int) uint32 { return order.Uint32(b[at:]) }
	end := func(address, port int) netip.AddrPort {
		a := netip.AddrFrom16([16]byte(b[address : address+16])).Unmap()
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[port:]))
	}
	name, _, ended := bytes.Cut(b[96:96+nameSize], []byte{0})
	*m = message{
		kind: u32(0), version: u32(4), lane: u32(8), generation: u32(12), reason: u32(16),
		geometry: lane.Geometry{Lanes: u32(20), Slots: u32(24), Window: u32(28), Windows: u32(160)},
		size:     order.Uint64(b[32:]), inode: order.Uint64(b[40:]), peerInode: order.Uint64(b[48:]),
		tuple: tuple{end(56, 88), end(72, 90)}, v6: b[92] != 0,
		name: string(name), features: u32(164),
	}
	return ended
}
