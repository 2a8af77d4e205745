package shm

import (
	"fmt"
	"sync/atomic"

	"exnet/fabric"
)

// A veloPort implements fabric.VELO.
type veloPort struct{ port }

var _ fabric.VELO = (*veloPort)(nil)

// Send implements fabric.VELO.
func (p *veloPort) Send(d fabric.VELODescriptor, payload []byte) error {
	if len(payload) < 1 || len(payload) > fabric.VELOMaxPayload {
		return fabric.ErrLength
	}
	if !d.Valid() {
		return fabric.ErrRange
	}
	t := &p.tx
	if !t.enter() {
		return fabric.ErrClosed
	}
	if d.Multicast {
		err := p.multicast(&d, payload)
		t.leave()
		return err
	}
	f := t.last
	if f == nil || t.lastTo != d.To {
		var err error
		if f, err = t.flow(d.To); err != nil {
			t.leave()
			return err
		}
	}
	if !f.look().open() {
		t.leave()
		return noPort(d.To, fabric.UnitVELO)
	}
	if (f.tail-f.credit == flowSlots || f.blocked) && !t.room(f, 1) {
		t.leave()
		return fabric.ErrFull
	}
	p.post(f, &d, payload)
	t.count.sent++
	t.count.bytes += uint64(len(payload))
	t.leave()
	return nil
}

// post writes one message into a free slot.
func (p *veloPort) post(f *txFlow, d *fabric.VELODescriptor, payload []byte) {
	s := f.next()
	copy(s.data[:], payload)
	f.publish(s, p.tx.self, d, len(payload))
	if !d.Quiet {
		f.wake()
	}
}

// multicast sends a copy to each member but ourselves. A member without room or without the port
// loses its copy: waiting for the slowest member would stop all.
func (p *veloPort) multicast(d *fabric.VELODescriptor, payload []byte) error {
	t := &p.tx
	for _, peer := range *p.n.peerList.Load() {
		if atomic.LoadUint64(peer.region.groups())>>d.To.Node&1 == 0 {
			continue
		}
		f, err := t.flow(fabric.Address{Node: peer.id, VPID: d.To.VPID})
		if err != nil || !f.look().open() || !f.room(1) && !f.roomAfterSetup() {
			t.count.lost++
			continue
		}
		t.count.copies++
		p.post(f, d, payload)
	}
	t.count.sent++
	t.count.bytes += uint64(len(payload))
	return nil
}

// Poll implements fabric.VELO.
func (p *veloPort) Poll(into []fabric.Message) int {
	r := &p.rx
	if !r.enter() {
		return 0
	}
	r.discover()
	n := 0
	for empty := 0; n < len(into) && empty < len(r.sources); {
		f := r.nextSource()
		before := n
		for n < len(into) && n-before < quantum {
			s, st, ok := f.peek(r)
			if !ok {
				break
			}
			m := &into[n]
			m.Status = st
			copy(m.Data[:st.Len()], s.data[:])
			f.advance()
			r.count.bytes += uint64(st.Len())
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
	r.count.received += uint64(n)
	r.leave()
	return n
}

// Close implements fabric.VELO.
func (p *veloPort) Close() error {
	p.n.closePort(&p.port, &p.rx)
	return nil
}

func noPort(a fabric.Address, u fabric.Unit) error {
	return &portError{a, u}
}

// A portError names the port that is not open. It is formatted only when needed, since senders may
// expect the error.
type portError struct {
	to   fabric.Address
	unit fabric.Unit
}

func (e *portError) Error() string {
	return fmt.Sprintf("%v: no %v port %d on node %d", fabric.ErrNoPort, e.unit, e.to.VPID, e.to.Node)
}

func (e *portError) Unwrap() error { return fabric.ErrNoPort }
