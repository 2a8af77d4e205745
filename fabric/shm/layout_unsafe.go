package shm

import (
	"sync/atomic"
	"unsafe"

	"exnet/fabric"
)

// Layouts of the memory that processes share, and the only places that turn it into pointers. This
// is version 1. All words are 64 bits, in the byte order of the host. A word that is written while
// others read it has a cache line of its own, or shares one with words of the same writer.
//
// Node region (one per node, written by the node, read by all its peers):
//
//	0       unused: the hello that hands the region over says whose it is
//	64      group membership, one bit a group
//	4096    64 interrupt epochs, 64 bytes apart
//	8192    port words: of VELO 0, RMA 0, VELO 1, …, RMA 255
//	12288   port counters in the same order, 256 bytes each: transmit half, receive half
//	143360  node registers, RegisterCount words
//	147456  ATU table
//
// Channel region (one per node and peer, written by the node):
//
//	64      number of flows
//	128·f   record of flow f, 1 ≤ f < 1024:
//	        +0   flow word (transmit side)
//	        +8   blocked: 0, or 1 + the interrupt that waits for credit
//	        +16  NLA in the peer's ATU that an operation of ours is using, or 0
//	        +24  NLA in our own ATU that the same operation is using, or 0
//	        +64  credit (receive side): slots consumed of the PEER's flow f
//	131072  slots of flow f at 8192·f: 64 × 128 bytes
//
// Untouched pages cost nothing: a node region takes about 5 pages, a channel
// region 1 page and 2 per flow.
const (
	regionMagic   = 0x31_6d_68_73_74_65_6e_78 // "xnetshm1"
	regionVersion = 1

	maxInterrupts = 64
	maxFlows      = 1024
	flowSlots     = 64
	// A sender learns of consumed slots a quarter of the ring at a time. So it can always
	// continue sending while the credit word is on its way.
	creditBatch = flowSlots / 4

	offGroups    = 64
	offEpochs    = 4096
	offPorts     = 8192
	offCounters  = 12288
	offRegisters = offCounters + 2*fabric.VPIDCount*counterBlock
	offATU       = offRegisters + 4096
	counterBlock = 256
	nodeSize     = offATU + fabric.ATUWords*8

	offFlowCount = 64
	recordSize   = 128
	offCredit    = 64 // within a record
	offSlots     = maxFlows * recordSize
	flowBytes    = flowSlots * fabric.VELOSlot
	channelSize  = offSlots + maxFlows*flowBytes
)

// A region is mapped memory in one of the two layouts.
type region struct{ mapping }

// word returns the word at a byte offset, which is a constant of the layout or was checked.
func (r *region) word(off int) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(&r.b[0]), off))
}

func (r *region) groups() *uint64       { return r.word(offGroups) }
func (r *region) epoch(irq int) *uint64 { return r.word(offEpochs + irq*64) }

func (r *region) register(reg fabric.Register) *uint64 { return r.word(offRegisters + int(reg)*8) }

// portIndex puts the two ports of a VPID side by side: a program that uses one mostly uses both,
// and touches only one page.
func portIndex(u fabric.Unit, v fabric.VPID) int { return int(v)*2 + int(u) }

// port returns the port word: open[0] interrupt+1[15:8] generation[63:16].
func (r *region) port(u fabric.Unit, v fabric.VPID) *uint64 {
	return r.word(offPorts + portIndex(u, v)*8)
}

func (r *region) transmitCounters(u fabric.Unit, v fabric.VPID) *transmitCounters {
	return (*transmitCounters)(unsafe.Pointer(r.word(offCounters + portIndex(u, v)*counterBlock)))
}

func (r *region) receiveCounters(u fabric.Unit, v fabric.VPID) *receiveCounters {
	return (*receiveCounters)(unsafe.Pointer(r.word(offCounters + portIndex(u, v)*counterBlock + counterBlock/2)))
}

func (r *region) atu() fabric.ATUTable {
	return unsafe.Slice(r.word(offATU), fabric.ATUWords)
}

func (r *region) flowCount() *uint64      { return r.word(offFlowCount) }
func (r *region) flowWord(f int) *uint64  { return r.word(f * recordSize) }
func (r *region) blocked(f int) *uint64   { return r.word(f*recordSize + 8) }
func (r *region) usingPeer(f int) *uint64 { return r.word(f*recordSize + 16) }
func (r *region) usingOwn(f int) *uint64  { return r.word(f*recordSize + 24) }
func (r *region) credit(f int) *uint64    { return r.word(f*recordSize + offCredit) }
func (r *region) slots(f int) *slotRing {
	return (*slotRing)(unsafe.Pointer(r.word(offSlots + f*flowBytes)))
}

// A slot is one message: status word and payload.
type slot struct {
	status uint64
	data   [fabric.VELOMaxPayload]byte
}

type slotRing [flowSlots]slot

// A port word tells whether a port is open and which interrupt to ring.
type portWord uint64

func makePortWord(irq int, generation uint64) portWord {
	return portWord(1 | uint64(irq+1)<<8 | generation<<16)
}

func (w portWord) open() bool         { return w&1 == 1 }
func (w portWord) closed() portWord   { return w &^ 1 }
func (w portWord) generation() uint64 { return uint64(w >> 16) }

// interrupt returns the interrupt index, or -1 for a port that is only polled or for an invalid
// value.
func (w portWord) interrupt() int { return interruptIndex(uint64(w >> 8 & 0xff)) }

// interruptIndex decodes "0, or 1 + index" as read from shared memory.
func interruptIndex(v uint64) int {
	if v > maxInterrupts {
		return -1
	}
	return int(v) - 1
}

// A flow word describes a flow to its receiver: valid[0] unit[1] source
// VPID[17:8] target VPID[33:24].
type flowWord uint64

func makeFlowWord(u fabric.Unit, src, dst fabric.VPID) flowWord {
	return flowWord(1 | uint64(u)<<1 | uint64(src)<<8 | uint64(dst)<<24)
}

func (w flowWord) unit() fabric.Unit   { return fabric.Unit(w >> 1 & 1) }
func (w flowWord) source() fabric.VPID { return fabric.VPID(w >> 8 & 0x3ff) }
func (w flowWord) target() fabric.VPID { return fabric.VPID(w >> 24 & 0x3ff) }

func (w flowWord) valid() bool {
	return w == makeFlowWord(w.unit(), w.source(), w.target()) && w.source().Valid() && w.target().Valid()
}

// Counters of a port's halves. Each half has one writer at a time, so plain
// stores do; aligned words do not tear, and readers use atomic loads.
type (
	transmitCounters struct {
		sent, bytes, full, copies, lost uint64 // VELO
		puts, putBytes, gets, getBytes  uint64 // RMA from here
		immediate, packets              uint64
		tlbHits, tlbMisses, atuFaults   uint64
		raised, suppressed              uint64 // interrupts at the receivers
	}
	receiveCounters struct {
		received, bytes, discarded              uint64
		requester, responder, completer, faults uint64
	}
)

// Both must fit half a block each.
var (
	_ [counterBlock/2 - unsafe.Sizeof(transmitCounters{})]byte
	_ [counterBlock/2 - unsafe.Sizeof(receiveCounters{})]byte
	_ [4096 - fabric.RegisterCount*8]byte
	_ [fabric.VELOSlot - unsafe.Sizeof(slot{})]byte
	_ [unsafe.Sizeof(slot{}) - fabric.VELOSlot]byte
)

// sumTransmit and sumReceive add up one counter over the ports of a unit.
func (r *region) sumTransmit(u fabric.Unit, f func(*transmitCounters) *uint64) (n uint64) {
	for v := range fabric.VPID(fabric.VPIDCount) {
		n += atomic.LoadUint64(f(r.transmitCounters(u, v)))
	}
	return n
}

func (r *region) sumReceive(u fabric.Unit, f func(*receiveCounters) *uint64) (n uint64) {
	for v := range fabric.VPID(fabric.VPIDCount) {
		n += atomic.LoadUint64(f(r.receiveCounters(u, v)))
	}
	return n
}
