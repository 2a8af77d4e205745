package rawfabric

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
)

// wordsSize is the window with the one word that the other side sets: a page.
const wordsSize = 4096

// A transfer is what the halves of the RMA subjects have in common: a ring of
// buffers, and the sources that the writer copies into them.
type transfer struct {
	*end
	payload measure.Payload
	size    int
	room    uint64 // buffers
	next    uint64 // number of the next buffer
	op      fabric.RMADescriptor
	notes   []fabric.Notification
}

func newTransfer(e *end, p measure.Params) (transfer, error) {
	payload, err := measure.NewPayload(p.Size, p.Buffers+1)
	return transfer{end: e, payload: payload, size: p.Size, room: uint64(p.Buffers),
		notes: make([]fabric.Notification, p.Buffers)}, err
}

// slot is where buffer i lies in its ring.
func (t *transfer) slot(i uint64) int { return int(i%t.room) * t.size }

// fill prepares the sources in b.
func (t *transfer) fill(b []byte) {
	for i := range t.payload.Sources() {
		t.payload.Fill(b[i*t.size:], i)
	}
}

// source stamps and returns the source of buffer i in b, and where it is.
func (t *transfer) source(b []byte, i uint64) (src []byte, at int) {
	at = t.payload.Source(i) * t.size
	src = b[at:][:t.size]
	t.payload.Stamp(src, i)
	return src, at
}

// each calls step for the next n buffers.
func (t *transfer) each(n int, step func(i uint64) error) error {
	for end := t.next + uint64(n); t.next < end; t.next++ {
		if err := step(t.next); err != nil {
			return err
		}
	}
	return nil
}

// await spins until the other side has set the word to least.
func (t *transfer) await(w *atomic.Uint64, least uint64) error {
	for w.Load() < least {
		if t.site.Stopped() {
			return measure.ErrStopped
		}
	}
	return nil
}

// poll takes one or more notifications of the kind that is due.
func (t *transfer) poll(want fabric.Kind) ([]fabric.Notification, error) {
	for {
		n := t.rma.Poll(t.notes)
		for i := range n {
			if k := &t.notes[i]; k.Fault != fabric.FaultNone || k.Kind != want || k.Count != t.size {
				return nil, fmt.Errorf("RMA notification of %v %v, %d bytes, fault %v came where a %v one of %d bytes was due",
					k.Command, k.Kind, k.Count, k.Fault, want, t.size)
			}
		}
		if n > 0 {
			return t.notes[:n], nil
		}
		if t.site.Stopped() {
			return nil, measure.ErrStopped
		}
	}
}

// putLead writes into follow's buffers. Its window 0 has the tail word.
type putLead struct {
	transfer
	sources []byte
	local   fabric.NLA
	tail    *atomic.Uint64
}

// putFollow reads its buffers, window 0, and sets lead's tail word.
type putFollow struct {
	transfer
	buffers []byte
	base    fabric.NLA
}

func newPut(e *end, p measure.Params) (measure.Half, error) {
	t, err := newTransfer(e, p)
	if err != nil {
		return nil, err
	}
	if e.role == measure.Follow {
		m, w, err := e.share(p.Size*p.Buffers, fabric.RemoteWrite)
		if err != nil {
			return nil, err
		}
		return &putFollow{t, m.Bytes(), w.NLA()}, nil
	}
	words, _, err := e.share(wordsSize, fabric.RemoteWrite)
	if err != nil {
		return nil, err
	}
	m, w, err := e.share(p.Size*t.payload.Sources(), 0)
	if err != nil {
		return nil, err
	}
	t.fill(m.Bytes())
	return &putLead{t, m.Bytes(), w.NLA(), measure.Word(words.Bytes(), 0)}, nil
}

func (p *putLead) Run(n int) (measure.Sample, error) {
	start := time.Now()
	if err := p.each(n, p.write); err != nil {
		return measure.Sample{}, err
	}
	err := p.await(p.tail, p.next) // all of it was read
	return measure.Each(time.Since(start), n), err
}

func (p *putLead) write(i uint64) error {
	if i >= p.room {
		if err := p.await(p.tail, i-p.room+1); err != nil {
			return err
		}
	}
	_, at := p.source(p.sources, i)
	p.op = fabric.RMADescriptor{Command: fabric.Put, Mask: fabric.NotifyCompleter, To: p.peer.rma,
		Length: p.size, Local: p.local + fabric.NLA(at), Remote: p.peer.windows[0] + fabric.NLA(p.slot(i))}
	return p.post(&p.op)
}

func (p *putFollow) Run(n int) (measure.Sample, error) {
	for end := p.next + uint64(n); p.next < end; {
		notes, err := p.poll(fabric.KindCompleter)
		if err != nil {
			return measure.Sample{}, err
		}
		for i := range notes {
			if err := p.read(&notes[i], p.next); err != nil {
				return measure.Sample{}, err
			}
			p.next++
		}
	}
	return measure.Sample{}, nil
}

func (p *putFollow) read(n *fabric.Notification, i uint64) error {
	at := p.slot(i)
	if want := fabric.LastPacket(p.base+fabric.NLA(at), p.size); n.Local != want {
		return fmt.Errorf("RMA completer notification of buffer %d names %v instead of %v", i, n.Local, want)
	}
	if err := p.payload.Check(p.buffers[at:][:p.size], i); err != nil {
		return err
	}
	return p.set(0, i+1, 0)
}

// getLead reads follow's buffers. Its window 0 has the head word.
type getLead struct {
	transfer
	head    *atomic.Uint64
	sink    []byte
	local   fabric.NLA
	inPlace fabric.InPlace         // or nil: GET into the sink
	use     func(src []byte) error // made once: a closure per operation would be garbage
}

// getFollow writes its buffers, window 0, and sets lead's head word.
type getFollow struct {
	transfer
	buffers, sources []byte
	freed            uint64
}

func newGet(e *end, p measure.Params) (measure.Half, error) { return newReader(e, p, false) }

func newRead(e *end, p measure.Params) (measure.Half, error) { return newReader(e, p, true) }

func newReader(e *end, p measure.Params, inPlace bool) (measure.Half, error) {
	t, err := newTransfer(e, p)
	if err != nil {
		return nil, err
	}
	if e.role == measure.Follow {
		m, _, err := e.share(p.Size*p.Buffers, fabric.RemoteRead)
		if err != nil {
			return nil, err
		}
		src, _, err := e.share(p.Size*t.payload.Sources(), 0) // registered only to be memory of the same kind
		if err != nil {
			return nil, err
		}
		t.fill(src.Bytes())
		return &getFollow{transfer: t, buffers: m.Bytes(), sources: src.Bytes()}, nil
	}
	words, _, err := e.share(wordsSize, fabric.RemoteWrite)
	if err != nil {
		return nil, err
	}
	m, w, err := e.share(p.Size, 0)
	if err != nil {
		return nil, err
	}
	g := &getLead{transfer: t, head: measure.Word(words.Bytes(), 0), sink: m.Bytes(), local: w.NLA()}
	g.use = func(src []byte) error { return g.payload.Check(src, g.next) }
	if inPlace {
		var ok bool
		if g.inPlace, ok = e.rma.(fabric.InPlace); !ok {
			return nil, errors.New("the peers' memory is not mapped on this backend, so there is no GET in place: leave rma-get-in-place out with --test")
		}
	}
	return g, nil
}

func (g *getLead) Run(n int) (measure.Sample, error) {
	start := time.Now()
	err := g.each(n, g.read)
	return measure.Each(time.Since(start), n), err
}

func (g *getLead) read(i uint64) error {
	if err := g.await(g.head, i+1); err != nil {
		return err
	}
	g.op = fabric.RMADescriptor{Command: fabric.Get, Mask: fabric.NotifyResponder, To: g.peer.rma,
		Length: g.size, Local: g.local, Remote: g.peer.windows[0] + fabric.NLA(g.slot(i))}
	if g.inPlace != nil {
		for {
			err := g.inPlace.GetInPlace(&g.op, g.use)
			if err == nil {
				return nil
			}
			if err := g.retry(err); err != nil {
				return fmt.Errorf("RMA get in place: %w", err)
			}
		}
	}
	g.op.Mask |= fabric.NotifyCompleter
	if err := g.post(&g.op); err != nil {
		return err
	}
	if _, err := g.poll(fabric.KindCompleter); err != nil {
		return err
	}
	return g.payload.Check(g.sink, i)
}

func (g *getFollow) Run(n int) (measure.Sample, error) {
	if err := g.each(n, g.write); err != nil {
		return measure.Sample{}, err
	}
	return measure.Sample{}, g.awaitFreed(g.next)
}

func (g *getFollow) write(i uint64) error {
	if i >= g.room {
		if err := g.awaitFreed(i - g.room + 1); err != nil {
			return err
		}
	}
	src, _ := g.source(g.sources, i)
	copy(g.buffers[g.slot(i):], src)
	return g.set(0, i+1, 0)
}

// awaitFreed polls the responder notifications of the GETs that read us.
func (g *getFollow) awaitFreed(least uint64) error {
	for g.freed < least {
		notes, err := g.poll(fabric.KindResponder)
		if err != nil {
			return err
		}
		g.freed += uint64(len(notes))
	}
	return nil
}
