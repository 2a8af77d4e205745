package exteth

import (
	"fmt"

	"exnet/fabric"
	"exnet/mtu"
)

const (
	// Headroom is the room in front of an IP packet in a buffer. It holds the MAC header and
	// the virtio header, rounded up so that the packet starts a cache line.
	Headroom = 64
	// DefaultBuffers is the best of those measured: 8 buffers halve the throughput of one
	// stream, and 256 no longer fit the cache.
	DefaultBuffers = 64
	// MinBuffers let a loop send while others are being fetched. MaxBuffers leave three quarters of
	// a node's windows to its receive half and to other users of the fabric.
	MinBuffers, MaxBuffers = 4, fabric.Windows / 4
	// DefaultBufferSize fits a 65,536-byte packet and its headroom in whole pages: 68 KiB.
	DefaultBufferSize = 17 * 4096
)

var _ = [DefaultBufferSize - Headroom - int(mtu.DefaultLink)]struct{}{} // it fits

// A Buffer is memory that other nodes can fetch from. The borrower ([Engine.Borrow]) writes a frame
// anywhere in Bytes and passes it to [Engine.Send], or returns it with [Engine.Return].
type Buffer struct {
	Bytes []byte // all of it

	window   fabric.Window
	offset   int // in the pool's memory
	refs     int // the borrower, each queue entry and each advert hold one
	poisoned bool
}

func (b *Buffer) nla(off int) fabric.NLA { return b.window.NLA() + fabric.NLA(off) }

// A pool is registered memory cut into buffers. Each buffer has its own window, so that one buffer
// can be poisoned: after a time-out its address is made stale before the memory is reused, and a
// late GET fails instead of reading another frame (RDV-3). The buffer returns to use when nobody
// accesses the memory any more.
type pool struct {
	rma    fabric.RMA
	memory fabric.Memory
	rights fabric.Rights
	size   int
	all    []*Buffer
	free   []*Buffer // a stack: the buffer used last is still in the cache
	limbo  []*Buffer // poisoned; not released or not registered again yet
}

func newPool(node fabric.Node, rma fabric.RMA, n, size int, rights fabric.Rights) (*pool, error) {
	memory, err := node.Alloc(n*size, rights)
	if err != nil {
		return nil, fmt.Errorf("exteth: %d buffers of %d bytes: %w", n, size, err)
	}
	p := &pool{rma: rma, memory: memory, rights: rights, size: size,
		all: make([]*Buffer, n), free: make([]*Buffer, n), limbo: make([]*Buffer, 0, n)}
	for i := range n {
		b := &Buffer{offset: i * size, Bytes: memory.Bytes()[i*size : (i+1)*size : (i+1)*size]}
		if err := p.register(b); err != nil {
			p.close()
			return nil, fmt.Errorf("exteth: register buffer %d of %d: %w", i+1, n, err)
		}
		p.all[i], p.free[n-1-i] = b, b
	}
	return p, nil
}

func (p *pool) register(b *Buffer) error {
	w, err := p.rma.Register(p.memory, fabric.WindowSpec{Rights: p.rights, Offset: b.offset, Length: p.size})
	if err != nil {
		return err
	}
	b.window = w
	return nil
}

// take returns a free buffer with one reference, or nil.
func (p *pool) take() *Buffer {
	n := len(p.free)
	if n == 0 {
		return nil
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	b.refs = 1
	return b
}

// release drops one reference.
func (p *pool) release(b *Buffer) {
	if b.refs--; b.refs > 0 {
		return
	}
	if b.poisoned {
		// The only possible error is that the port is closed, and then the address is stale
		// anyway.
		_ = b.window.Deregister()
		p.limbo = append(p.limbo, b)
		p.revive()
		return
	}
	p.free = append(p.free, b)
}

// poison makes the buffer's address stale before the memory is reused. That happens when the last
// reference goes, so other nodes that know the address can still fetch.
func (p *pool) poison(b *Buffer) { b.poisoned = true }

// revive makes released buffers usable again.
func (p *pool) revive() {
	keep := p.limbo[:0]
	for _, b := range p.limbo {
		select {
		case <-b.window.Released():
			if p.register(b) == nil {
				b.poisoned = false
				p.free = append(p.free, b)
				continue
			}
			// No room in the table: try again later.
		default:
		}
		keep = append(keep, b)
	}
	p.limbo = keep
}

// close deregisters the windows. It frees the memory if it can; otherwise closing the node does.
func (p *pool) close() {
	for _, b := range p.all {
		if b != nil && b.window != nil {
			_ = b.window.Deregister()
		}
	}
	_ = p.memory.Free()
}
