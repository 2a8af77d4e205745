package fabrictest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
)

// A rig holds a point's test and its fabric.
type rig struct {
	*testing.T
	virtual   bool
	allocates string
	attach    Attach
	memories  []fabric.Memory
}

func newRig(t *testing.T, h Harness) *rig {
	r := &rig{T: t, virtual: h.Virtual, allocates: h.Allocates, attach: h.Fabric(t)}
	r.Cleanup(r.free)
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// wants checks that an error is one of the wanted ones, by errors.Is.
func (r *rig) wants(what string, err error, want ...error) {
	r.Helper()
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	r.Errorf("%s: %v, want %v", what, err, want)
}

// node attaches a node and closes it at the end.
func (r *rig) node(id fabric.NodeID) fabric.Node {
	r.Helper()
	n, err := r.attach(id)
	r.check(err)
	r.Cleanup(func() { n.Close() })
	return n
}

// alloc allocates memory that is freed at the end, after all nodes are closed, when nobody uses it
// any more.
func (r *rig) alloc(n fabric.Node, size int, most fabric.Rights) fabric.Memory {
	r.Helper()
	mem, err := n.Alloc(size, most)
	r.check(err)
	r.memories = append(r.memories, mem)
	return mem
}

// free frees the memory that is left.
func (r *rig) free() {
	for _, m := range r.memories {
		if err := m.Free(); err != nil && !errors.Is(err, fabric.ErrClosed) {
			r.Errorf("free memory of a closed node: %v", err)
		}
	}
}

// nodes attaches nodes 1 to n.
func (r *rig) nodes(n int) []fabric.Node {
	r.Helper()
	nodes := make([]fabric.Node, n)
	for i := range nodes {
		nodes[i] = r.node(fabric.NodeID(i + 1))
	}
	r.eventually("all nodes know each other", func() bool {
		return !slices.ContainsFunc(nodes, func(m fabric.Node) bool { return len(m.Peers()) != n-1 })
	})
	return nodes
}

// together runs the functions concurrently. Their errors fail the test.
func (r *rig) together(fs ...func() error) {
	r.Helper()
	r.check(parallel(fs...))
}

func parallel(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// eventually waits until cond holds.
func (r *rig) eventually(what string, cond func() bool) {
	r.Helper()
	for end := time.Now().Add(limit); !cond(); {
		if time.Now().After(end) {
			r.Fatalf("%s: not after %v", what, limit)
		}
		time.Sleep(time.Millisecond)
	}
}

// settle waits until everything under way has happened.
func (r *rig) settle() { time.Sleep(r.settling()) }

// pause waits for a tiny time, often none.
func (r *rig) pause(rng *rand.Rand) {
	switch k := rng.IntN(8); {
	case k == 0 || r.virtual:
		time.Sleep(time.Duration(rng.IntN(3000)))
	case k < 4:
		for i := rng.IntN(2000); i > 0; i-- {
			rng.Uint64()
		}
	}
}

// register reads a register of a node.
func (r *rig) register(n fabric.Node, reg fabric.Register) uint64 {
	r.Helper()
	v, err := n.ReadRegister(reg)
	r.check(err)
	return v
}

// counts waits until a register has a value.
func (r *rig) counts(n fabric.Node, reg fabric.Register, want uint64) {
	r.Helper()
	var got uint64
	for range 50 {
		if got = r.register(n, reg); got == want {
			return
		}
		r.settle()
	}
	r.Errorf("node %d: %v is %d, want %d", n.ID(), reg, got, want)
}

// random returns n bytes that depend only on the seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, (n+7)/8*8)
	rng := rand.NewPCG(seed, 17)
	for i := 0; i < len(b); i += 8 {
		v := rng.Uint64()
		for k := range 8 {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	return b[:n]
}

// A velo is a VELO port whose halves have interrupts of their own.
type velo struct {
	fabric.VELO
	rx, tx  fabric.Interrupt
	buf     [8]fabric.Message
	pending []fabric.Message
	refused int // calls of Send that send had to repeat
}

func (r *rig) velo(n fabric.Node, v fabric.VPID) *velo {
	r.Helper()
	rx, tx := r.interrupt(n), r.interrupt(n)
	p, err := n.OpenVELO(v, fabric.PortInterrupts{Receive: rx, Transmit: tx})
	r.check(err)
	return &velo{VELO: p, rx: rx, tx: tx}
}

func (r *rig) interrupt(n fabric.Node) fabric.Interrupt {
	r.Helper()
	irq, err := n.NewInterrupt()
	r.check(err)
	r.Cleanup(func() { irq.Close() })
	return irq
}

// send sends a message, and sleeps while there is no room.
func (p *velo) send(d fabric.VELODescriptor, payload []byte) error {
	for {
		err := p.Send(d, payload)
		if !errors.Is(err, fabric.ErrFull) {
			return err
		}
		p.refused++
		if p.tx.Arm() && !p.tx.Wait(limit) {
			return fmt.Errorf("sender %v: no transmit interrupt in %v", p.Address(), limit)
		}
	}
}

// next returns the next message, and sleeps until there is one.
func (p *velo) next() (fabric.Message, error) {
	for len(p.pending) == 0 {
		if n := p.Poll(p.buf[:]); n > 0 {
			p.pending = p.buf[:n]
		} else if p.rx.Arm() && !p.rx.Wait(limit) {
			return fabric.Message{}, fmt.Errorf("receiver %v: no interrupt in %v, and then %d messages", p.Address(), limit, p.Poll(p.buf[:]))
		}
	}
	m := p.pending[0]
	p.pending = p.pending[1:]
	return m, nil
}

// rest returns how many messages are left when everything has arrived.
func (r *rig) rest(p *velo) int {
	r.settle()
	return len(p.pending) + p.Poll(p.buf[:])
}

// to returns the descriptor of a plain message.
func to(a fabric.Address) fabric.VELODescriptor { return fabric.VELODescriptor{To: a} }

// An rma is an RMA port whose halves have interrupts of their own.
type rma struct {
	fabric.RMA
	node    fabric.Node
	rx, tx  fabric.Interrupt
	bell    *region // target of PUTs that only signal; see flush
	buf     [8]fabric.Notification
	pending []fabric.Notification
	refused int // calls of Post that post had to repeat
}

func (r *rig) rma(n fabric.Node, v fabric.VPID) *rma {
	r.Helper()
	rx, tx := r.interrupt(n), r.interrupt(n)
	p, err := n.OpenRMA(v, fabric.PortInterrupts{Receive: rx, Transmit: tx})
	r.check(err)
	port := &rma{RMA: p, node: n, rx: rx, tx: tx}
	port.bell = r.region(port, 8, fabric.RemoteWrite)
	return port
}

// post posts an operation, and sleeps while there is no room.
func (p *rma) post(d fabric.RMADescriptor) error {
	return p.retry(func() error { return p.Post(&d) })
}

// retry repeats an operation that is refused with ErrFull.
func (p *rma) retry(operation func() error) error {
	for {
		err := operation()
		if !errors.Is(err, fabric.ErrFull) {
			return err
		}
		p.refused++
		if p.tx.Arm() && !p.tx.Wait(limit) {
			return fmt.Errorf("RMA %v: no transmit interrupt in %v", p.Address(), limit)
		}
	}
}

// next returns the next notification, and sleeps until there is one.
func (p *rma) next() (fabric.Notification, error) {
	for len(p.pending) == 0 {
		if n := p.Poll(p.buf[:]); n > 0 {
			p.pending = p.buf[:n]
		} else if p.rx.Arm() && !p.rx.Wait(limit) {
			return fabric.Notification{}, fmt.Errorf("RMA %v: no interrupt in %v, and then %d notifications", p.Address(), limit, p.Poll(p.buf[:]))
		}
	}
	n := p.pending[0]
	p.pending = p.pending[1:]
	return n, nil
}

// flush sends an immediate PUT to the target's bell, and returns the notifications that came before
// it, here and there.
func (r *rig) flush(p, target *rma) (here, there []fabric.Notification) {
	r.Helper()
	r.check(p.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyRequester | fabric.NotifyCompleter,
		To: target.Address(), Remote: target.bell.win.NLA(), Enable: 0x80}))
	// If a port is both ends, both notifications come in one queue.
	bells := func(n fabric.Notification) bool {
		return n.Command == fabric.ImmediatePut && n.Count == 1 && n.Fault == fabric.FaultNone
	}
	until := func(q *rma, k fabric.Kind) (before []fabric.Notification) {
		for {
			n, err := q.next()
			r.check(err)
			if bells(n) && n.Kind == k {
				return before
			}
			before = append(before, n)
		}
	}
	here = until(p, fabric.KindRequester)
	if p != target {
		return here, until(target, fabric.KindCompleter)
	}
	if i := slices.IndexFunc(here, bells); i >= 0 {
		return slices.Delete(here, i, i+1), nil
	}
	return append(here, until(p, fabric.KindCompleter)...), nil
}

// A region is registered memory.
type region struct {
	mem   fabric.Memory
	win   fabric.Window
	bytes []byte
}

// region registers fresh memory of size bytes as one contiguous window.
func (r *rig) region(p *rma, size int, rights fabric.Rights) *region {
	r.Helper()
	return r.window(p, size, fabric.WindowSpec{Rights: rights, Length: size})
}

// window registers a part of fresh memory of size bytes.
func (r *rig) window(p *rma, size int, w fabric.WindowSpec) *region {
	r.Helper()
	mem := r.alloc(p.node, size, w.Rights)
	win, err := p.Register(mem, w)
	r.check(err)
	return &region{mem, win, mem.Bytes()}
}

// released waits until nobody accesses a window any more.
func (r *rig) released(w fabric.Window) {
	r.Helper()
	select {
	case <-w.Released():
	case <-time.After(limit):
		r.Fatalf("window %v: not released after %v", w.NLA(), limit)
	}
}
