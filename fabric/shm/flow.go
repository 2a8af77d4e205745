package shm

import (
	"sync/atomic"
	"time"

	"exnet/fabric"
)

// A flow is one direction between a port here and a port there: a ring of
// slots in the sender's channel region, with a lap parity in each status word
// in place of a shared head or tail.
//
// Invariants, where tail is the sender's private count of slots written, head the receiver's count
// of slots taken, and credit the published copy of head:
//
//	credit ≤ head ≤ tail ≤ credit + flowSlots
//
// The sender writes slot tail only when tail - credit < flowSlots, that is when the receiver is
// done with it. It writes the payload before it publishes the status word. The receiver loads the
// status word, and reads the payload only if the parity is that of its lap. Slot i holds the parity
// of lap i/flowSlots: 0 in odd laps and 1 in even laps, so the zeroed slots of a new ring read as
// not written yet. The receiver publishes credit after it has copied the payload out.
//
// A port may be closed while a message to it is in flight, and another port may have been opened
// under the same VPID when the message is found. So the status word in a slot also carries the
// generation of the port as the sender saw it, in bits that are reserved in fabric.Status. The
// receiver discards messages for another generation.
func parity(position uint64) uint64 { return ^(position / flowSlots) & 1 }

const (
	generationShift = 50
	generationBits  = 0x1fff << generationShift
)

// A txFlow is the sending end. It belongs to the transmit half of its port.
type txFlow struct {
	slots  *slotRing
	tail   uint64
	credit uint64 // the last value of the receiver's credit word
	port   *uint64
	seen   portWord // the port word at the last look
	count  *transmitCounters
	ch     *channel
	to     fabric.Address
	index  int
	// blocked is true while our record says that we wait for credit.
	blocked bool
	wants   uint64 // slots, while blocked
	waited  bool   // see roomAfterSetup
}

// room reports whether n slots are free. It looks at the credit word if necessary.
func (f *txFlow) room(n uint64) bool {
	return f.tail+n-f.credit <= flowSlots || f.refill(n)
}

func (f *txFlow) refill(n uint64) bool {
	rx := f.ch.rx.Load()
	if rx == nil {
		return false // the peer has not given us its region yet
	}
	c := atomic.LoadUint64(rx.credit(f.index))
	if c-f.credit > f.tail-f.credit {
		f.ch.drop(fabric.RegDroppedCredit)
		return false
	}
	f.credit = c
	return f.tail+n-c <= flowSlots
}

// setupPatience is how long a multicast waits, once, for a member whose side of the channel has not
// arrived yet. Scheduling takes that long; a stopped member takes longer.
const setupPatience = 10 * time.Millisecond

// roomAfterSetup waits for the receiver's side of a new channel. Without it there is room for one
// ring of messages only.
func (f *txFlow) roomAfterSetup() bool {
	if f.ch.rx.Load() != nil || f.waited {
		return false
	}
	f.waited = true
	for end := time.Now().Add(setupPatience); f.ch.rx.Load() == nil && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
	return f.room(1)
}

// block records that we wait for credit, and looks again. If it returns false, the receiver rings
// our transmit interrupt (irqPlus1) when it gives credit back. The store is a full fence, and the
// receiver has one between publishing credit and reading the record, so one of the two sees the
// other.
func (f *txFlow) block(n, irqPlus1 uint64) (room bool) {
	f.blocked, f.wants = true, n
	storeFence64(f.ch.tx.blocked(f.index), irqPlus1)
	if f.refill(n) {
		f.unblock()
		return true
	}
	return false
}

func (f *txFlow) unblock() {
	f.blocked = false
	storeRelease64(f.ch.tx.blocked(f.index), 0)
}

// publish makes the slot visible, whose payload is written. It ends with a full fence before wake
// looks at the epoch.
func (f *txFlow) publish(s *slot, src fabric.Address, d *fabric.VELODescriptor, n int) {
	st := uint64(fabric.MakeStatus(src, *d, n, parity(f.tail)))
	storeFence64(&s.status, st|f.seen.generation()<<generationShift&generationBits)
	f.tail++
}

func (f *txFlow) next() *slot { return &f.slots[f.tail%flowSlots] }

// look reads the target's port word. It precedes each publish.
func (f *txFlow) look() portWord {
	f.seen = portWord(atomic.LoadUint64(f.port))
	return f.seen
}

// wake rings the receiver if it sleeps. The caller has passed a full fence after what the receiver
// is woken for.
func (f *txFlow) wake() {
	if irq := portWord(atomic.LoadUint64(f.port)).interrupt(); irq >= 0 && f.ch.wake(irq) {
		f.count.raised++
	} else {
		f.count.suppressed++
	}
}

// An rxFlow is the receiving end. It belongs to the receive half of its port,
// or to the channel while no port is open.
type rxFlow struct {
	slots    *slotRing
	head     uint64
	returned uint64 // the value of our credit word
	credit   *uint64
	blocked  *uint64
	ch       *channel
	from     fabric.Address
	word     flowWord
	draining bool // the peer is gone; the flow goes when it is empty
}

// peek returns the next slot for port half r and its status word; ok is false if there is none. An
// invalid slot drops the channel.
func (f *rxFlow) peek(r *receiver) (s *slot, st fabric.Status, ok bool) {
	for {
		s = &f.slots[f.head%flowSlots]
		w := atomic.LoadUint64(&s.status)
		st = fabric.Status(w &^ generationBits)
		if st.Parity() != parity(f.head) {
			return nil, 0, false
		}
		if !st.Check() || st.Source() != f.from {
			f.ch.drop(f.dropReason())
			return nil, 0, false
		}
		if w&generationBits == r.generation {
			return s, st, true
		}
		r.count.discarded++
		f.advance()
	}
}

func (f *rxFlow) dropReason() fabric.Register {
	if f.word.unit() == fabric.UnitRMA {
		return fabric.RegDroppedRMA
	}
	return fabric.RegDroppedVELO
}

// ready reports whether there is a slot to take.
func (f *rxFlow) ready() bool {
	return fabric.Status(atomic.LoadUint64(&f.slots[f.head%flowSlots].status)).Parity() == parity(f.head) &&
		!f.ch.dropped.Load()
}

// advance consumes the slot. Its bytes were copied out.
func (f *rxFlow) advance() {
	f.head++
	if f.head-f.returned >= creditBatch {
		f.giveCredit()
	}
}

// giveCredit publishes head with a full fence, and wakes a sender that waits.
func (f *rxFlow) giveCredit() {
	f.returned = f.head
	storeFence64(f.credit, f.head)
	if w := atomic.LoadUint64(f.blocked); w != 0 {
		if irq := interruptIndex(w); irq >= 0 {
			f.ch.wake(irq)
		}
	}
}

// discard consumes what is there, for a port half that closes.
func (f *rxFlow) discard(r *receiver) {
	// The limit keeps a sender that goes on publishing from keeping us busy.
	for range flowSlots {
		if _, _, ok := f.peek(r); !ok {
			return
		}
		r.count.discarded++
		f.advance()
	}
}
