package shm

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// An rmaPort implements fabric.RMA. Post itself does each operation, by copying between our window
// and the peer's, which is mapped here.
type rmaPort struct {
	port
	// local carries our own notifications from Post to Poll. notices carries faults, and
	// notifications from other goroutines.
	local   *txFlow
	notices notices
	windows map[*window]bool // under Node.mu
	tlb     tlb              // of the transmit half
	// The owner writes its registers itself, when we send it a message. Operations posted after
	// that wait for the answer, to stay in order.
	writing      *peer
	writingUntil uint64 // the peer's count of answers at which writing ends
}

var (
	_ fabric.RMA     = (*rmaPort)(nil)
	_ fabric.InPlace = (*rmaPort)(nil)
)

// Post implements fabric.RMA.
func (p *rmaPort) Post(d *fabric.RMADescriptor) error { return p.post(d, nil) }

// A sink is the function that takes the bytes of a GET in place, and the error it returned.
type sink struct {
	use func(src []byte) error
	err error
}

// take passes one piece to the function. After an error it passes no more.
func (s *sink) take(src []byte) {
	if s.err == nil {
		s.err = s.use(src)
	}
}

// pending takes the place of a fault when a translation was requested and has not come yet. No
// notification ever carries it.
const pending fabric.Fault = 0xff

// GetInPlace implements fabric.InPlace.
func (p *rmaPort) GetInPlace(d *fabric.RMADescriptor, use func(src []byte) error) error {
	if d.Command != fabric.Get {
		return fabric.ErrRange
	}
	s := sink{use: use}
	if err := p.post(d, &s); err != nil {
		return err
	}
	return s.err
}

// Raise implements fabric.InPlace. Each notification for which it is called was published with a
// full fence after it, as wake requires.
func (p *rmaPort) Raise(to fabric.Address) {
	t := &p.tx
	if !t.enter() {
		return
	}
	defer t.leave()
	if f := t.flows[to]; f != nil {
		f.wake()
	}
}

// post does an operation; if there is a sink, a GET in place.
func (p *rmaPort) post(d *fabric.RMADescriptor, in *sink) error {
	if err := d.Check(); err != nil {
		return err
	}
	t := &p.tx
	if !t.enter() {
		return fabric.ErrClosed
	}
	defer t.leave()
	f, err := t.flow(d.To)
	if errors.Is(err, fabric.ErrNoNode) {
		return p.fault(d, fabric.FaultNode)
	} else if err != nil {
		return err
	}
	if p.writing != nil && !p.written() {
		t.count.full++
		return fabric.ErrFull
	}
	here, there := notificationsOf(d)
	if !t.room(p.local, here) || there && !t.room(f, 1) {
		return fabric.ErrFull
	}

	// Name the windows in use before looking them up: see inUse.
	if in == nil && d.Command != fabric.ImmediatePut {
		storeRelease64(f.ch.tx.usingOwn(f.index), useOf(d.Local))
	}
	storeFence64(f.ch.tx.usingPeer(f.index), useOf(d.Remote)) // for both
	fault := p.move(f, d, in)
	storeRelease64(f.ch.tx.usingPeer(f.index), 0)
	storeRelease64(f.ch.tx.usingOwn(f.index), 0)
	switch fault {
	case fabric.FaultNone:
	case pending:
		t.count.full++
		return fabric.ErrFull
	default:
		t.count.atuFaults++
		return p.fault(d, fault)
	}
	mask := d.Mask
	if _, reg := d.Remote.Register(); reg && d.Command == fabric.ImmediatePut && f.ch != t.n.self {
		// the owner writes the register, and notifies its own port
		mask &= fabric.NotifyRequester
	}
	p.finish(f, d, mask, in != nil)
	return nil
}

// notificationsOf returns how many notifications an operation writes here,
// and whether it writes one there.
func notificationsOf(d *fabric.RMADescriptor) (here uint64, there bool) {
	here = uint64(bits.OnesCount8(uint8(d.Mask & fabric.NotifyRequester)))
	if d.Command == fabric.Get {
		here += uint64(bits.OnesCount8(uint8(d.Mask & fabric.NotifyCompleter)))
		return here, d.Mask&fabric.NotifyResponder != 0
	}
	return here, d.Mask&fabric.NotifyCompleter != 0
}

// move does the copy. A fault means that nothing was touched, or only a part if the table of a
// window is invalid.
func (p *rmaPort) move(f *txFlow, d *fabric.RMADescriptor, in *sink) fabric.Fault {
	length, need := d.Length, fabric.RemoteWrite
	switch d.Command {
	case fabric.Get:
		need = fabric.RemoteRead
	case fabric.ImmediatePut:
		length = bits.Len8(d.Enable)
	}
	var here fabric.Translation
	var ours *imported
	var fault fabric.Fault
	if in == nil && d.Command != fabric.ImmediatePut {
		if here, fault = p.n.atu.Table().Lookup(d.Local, length, p.tx.self.VPID, 0); fault != fabric.FaultNone {
			return fault
		}
		if ours, fault = p.translate(p.n.self, d.Local, here.Memory); fault != fabric.FaultNone {
			return fault
		}
	}
	if d.Remote>>63 != 0 {
		return p.moveRegister(f, d, in, ours, here)
	}
	there, fault := f.ch.peer.region.atu().Lookup(d.Remote, length, d.To.VPID, need)
	if fault != fabric.FaultNone {
		return fault
	}
	theirs, fault := p.translate(f.ch, d.Remote, there.Memory)
	switch {
	case fault != fabric.FaultNone:
		return fault
	case need == fabric.RemoteWrite && !theirs.writable:
		return fabric.FaultRights
	case in != nil:
		return takePieces(in, theirs, there)
	case d.Command == fabric.ImmediatePut:
		return storeImmediate(theirs, there, d)
	case d.Command == fabric.Put:
		return copyPieces(theirs, there, ours, here)
	}
	return copyPieces(ours, here, theirs, there)
}

// copyPieces copies one translated range to another of the same length.
func copyPieces(dst *imported, to fabric.Translation, src *imported, from fabric.Translation) fabric.Fault {
	var d, s []byte
	for {
		if len(d) == 0 {
			at, n, ok := to.Next()
			if !ok {
				return fabric.FaultNone
			}
			if d, ok = dst.m.slice(at, n); !ok {
				return fabric.FaultRange
			}
		}
		if len(s) == 0 {
			at, n, ok := from.Next()
			if !ok {
				return fabric.FaultRange
			}
			if s, ok = src.m.slice(at, n); !ok {
				return fabric.FaultRange
			}
		}
		n := copy(d, s)
		d, s = d[n:], s[n:]
	}
}

func takePieces(in *sink, src *imported, from fabric.Translation) fabric.Fault {
	for {
		at, n, ok := from.Next()
		if !ok {
			return fabric.FaultNone
		}
		b, ok := src.m.slice(at, n)
		if !ok {
			return fabric.FaultRange
		}
		in.take(b)
	}
}

// storeImmediate writes the enabled bytes. If all eight are enabled and aligned, it writes them in
// one piece.
func storeImmediate(dst *imported, to fabric.Translation, d *fabric.RMADescriptor) fabric.Fault {
	for i := 0; ; {
		at, n, ok := to.Next()
		if !ok {
			return fabric.FaultNone
		}
		b, ok := dst.m.slice(at, n)
		if !ok {
			return fabric.FaultRange
		}
		if w, aligned := word8(b); aligned && d.Enable == 0xff {
			var le [8]byte
			binary.LittleEndian.PutUint64(le[:], d.Data)
			storeRelease64(w, binary.NativeEndian.Uint64(le[:]))
			return fabric.FaultNone
		}
		for k := range b {
			if d.Enable>>i&1 == 1 {
				b[k] = byte(d.Data >> (8 * i))
			}
			i++
		}
	}
}

// countPosted counts an operation that was accepted, with a fault or not.
func (p *rmaPort) countPosted(d *fabric.RMADescriptor) {
	c := p.tx.count
	switch d.Command {
	case fabric.Put:
		c.puts++
		c.putBytes += uint64(d.Length)
		c.packets += uint64(fabric.RMAPackets(d.Length))
	case fabric.Get:
		c.gets++
		c.getBytes += uint64(d.Length)
		c.packets += uint64(fabric.RMAPackets(d.Length))
	default:
		c.immediate++
	}
}

// byteCount returns the count that the notifications of an operation carry.
func byteCount(d *fabric.RMADescriptor) int {
	if d.Command == fabric.ImmediatePut {
		return bits.OnesCount8(d.Enable)
	}
	return d.Length
}

// finish counts an operation and writes its notifications. If it is quiet, it raises no interrupt
// at the responder.
func (p *rmaPort) finish(f *txFlow, d *fabric.RMADescriptor, mask fabric.Mask, quiet bool) {
	p.countPosted(d)
	count := byteCount(d)
	note := fabric.Notification{Command: d.Command, Kind: fabric.KindRequester, Peer: d.To, Local: d.Local, Count: count}
	if mask&fabric.NotifyRequester != 0 {
		p.notify(p.local, &note, false)
	}
	switch {
	case d.Command == fabric.Get:
		if mask&fabric.NotifyResponder != 0 {
			p.notify(f, &fabric.Notification{Command: d.Command, Kind: fabric.KindResponder, Peer: p.tx.self, Local: fabric.LastPacket(d.Remote, count), Count: count}, quiet)
		}
		if mask&fabric.NotifyCompleter != 0 {
			note.Kind, note.Local = fabric.KindCompleter, fabric.LastPacket(d.Local, count)
			p.notify(p.local, &note, false)
		}
	case mask&fabric.NotifyCompleter != 0:
		p.notify(f, &fabric.Notification{Command: d.Command, Kind: fabric.KindCompleter, Peer: p.tx.self, Local: fabric.LastPacket(d.Remote, count), Count: count}, false)
	}
}

// notify writes a notification into a flow that has room. If it is quiet, it raises no interrupt.
func (p *rmaPort) notify(f *txFlow, n *fabric.Notification, quiet bool) {
	if !f.look().open() {
		return // a register access that names a port that is not open
	}
	s := f.next()
	w := n.Encode()
	binary.LittleEndian.PutUint64(s.data[0:], w[0])
	binary.LittleEndian.PutUint64(s.data[8:], w[1])
	f.publish(s, p.tx.self, &fabric.VELODescriptor{}, notificationSize)
	if !quiet {
		f.wake()
	}
}

const notificationSize = 16

// fault reports a failed operation to its requester.
func (p *rmaPort) fault(d *fabric.RMADescriptor, fault fabric.Fault) error {
	if !p.notices.add(&p.tx, fabric.Notification{Command: d.Command, Kind: fabric.KindRequester, Fault: fault, Peer: d.To, Local: d.Local, Count: byteCount(d)}) {
		p.tx.count.full++
		return fabric.ErrFull
	}
	p.countPosted(d)
	if p.rx.irq != nil {
		p.rx.irq.nudge()
	}
	return nil
}

// Poll implements fabric.RMA.
func (p *rmaPort) Poll(into []fabric.Notification) int {
	r := &p.rx
	if !r.enter() {
		return 0
	}
	defer r.leave()
	r.discover()
	n := p.notices.take(into)
	if n > 0 {
		p.tx.tryAgain()
	}
	for empty := 0; n < len(into) && empty < len(r.sources); {
		f := r.nextSource()
		before := n
		for n < len(into) && n-before < quantum {
			s, st, ok := f.peek(r)
			if !ok {
				break
			}
			note, ok := decodeSlot(s, st)
			if !ok || (note.Peer != f.from && f.ch != p.n.self) {
				f.ch.drop(fabric.RegDroppedRMA)
				break
			}
			f.advance()
			into[n] = note
			n++
		}
		switch {
		case n > before:
			empty = 0
		case f.draining:
			r.retire(f)
		default:
			empty++
		}
	}
	for i := range into[:n] {
		r.countNotification(&into[i])
	}
	return n
}

func decodeSlot(s *slot, st fabric.Status) (fabric.Notification, bool) {
	n, ok := fabric.DecodeNotification([2]uint64{
		binary.LittleEndian.Uint64(s.data[0:]), binary.LittleEndian.Uint64(s.data[8:])})
	return n, ok && st.Len() == notificationSize
}

func (r *receiver) countNotification(n *fabric.Notification) {
	switch n.Kind {
	case fabric.KindRequester:
		r.count.requester++
	case fabric.KindResponder:
		r.count.responder++
	case fabric.KindCompleter:
		r.count.completer++
	}
	if n.Fault != fabric.FaultNone {
		r.count.faults++
	}
}

// ready implements source for the receive half of an RMA port.
func (p *rmaPort) ready() bool { return p.notices.some.Load() || p.rx.ready() }

func (p *rmaPort) progress(ch *channel) (done, pending uint64) { return p.rx.progress(ch) }

// Close implements fabric.RMA.
func (p *rmaPort) Close() error {
	p.n.closePort(&p.port, p)
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	for w := range p.windows {
		w.deregisterLocked()
	}
	return nil
}

// notices are notifications that do not come through a flow.
type notices struct {
	some atomic.Bool
	mu   sync.Mutex
	list []fabric.Notification
}

// maxNotices limits what a port that is not polled collects.
const maxNotices = 256

func (q *notices) add(t *transmitter, n fabric.Notification) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) >= maxNotices {
		t.waits.Store(true)
		return false
	}
	q.list = append(q.list, n)
	q.some.Store(true)
	return true
}

func (q *notices) take(into []fabric.Notification) int {
	if !q.some.Load() {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(into, q.list)
	q.list = q.list[:copy(q.list, q.list[n:])]
	q.some.Store(len(q.list) > 0)
	return n
}
