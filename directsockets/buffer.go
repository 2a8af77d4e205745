package directsockets

import (
	"sync"
	"sync/atomic"
)

// bufferLeast is EXN_DS_BUFFER: the size from which a part of a write is announced from its Buffer
// instead of copied. Below about 1 MiB, sleeping until the peer has read it takes longer than
// copying.
func bufferLeast() int { return int(bufferFrom.Load()) }

var bufferFrom atomic.Int64

// A Buffer is memory from which the process at the other end can copy directly. A large Write from
// it copies nothing. It sleeps until the reader has copied all but what fits into the connection's
// window, as a Write sleeps while the socket buffer is full. Writes of less than some MiB gain
// nothing from it.
//
//	b := c.Buffer(64 << 20)
//	defer b.Release()
//	n, err := file.Read(b.Bytes())
//	c.Write(b.Bytes()[:n])
//
// It serves all connections to the same process that share this connection's channel. For any other
// connection it is ordinary memory. The peer may read its contents at any time, but cannot change
// them.
type Buffer struct {
	mu sync.Mutex
	b  []byte
	ch *channel // nil for ordinary memory
}

// Buffer returns memory of this size, which is zero or holds what an earlier Buffer held. It is
// ordinary memory, and [Buffer.Registered] reports false, if the connection has no lane yet, if its
// peer does not know buffers, or if EXN_DS_WINDOWS or EXN_DS_MEMORY leave no room. So ask once the
// connection is busy, or ask again.
func (c *Conn) Buffer(size int) *Buffer {
	if c.home != nil && size > 0 {
		c.home.mu.Lock()
		defer c.home.mu.Unlock()
		if ch := c.ch; ch != nil && c.engaged() && ch.takes {
			if b := ch.pool.Lend(size); b != nil {
				ch.refs.Add(1)
				return &Buffer{b: b, ch: ch}
			}
		}
	}
	return &Buffer{b: make([]byte, size)}
}

// Bytes returns the memory, or nil after Release.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b
}

// Registered reports whether the peer can copy from the Buffer directly.
func (b *Buffer) Registered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch != nil
}

// Release gives the memory back. The program must not use what Bytes returned any more, and no
// Write from it may be in progress. The connection may have been closed long before. A Buffer that
// is dropped without Release keeps its memory until the program ends.
func (b *Buffer) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		b.ch.pool.Return(b.b)
		b.ch.release()
	}
	b.b, b.ch = nil, nil
}

// lent returns where in our windows b lies, if it lies within one Buffer of this channel.
func (ch *channel) lent(b []byte) (at uint64, ok bool) {
	if !ch.takes {
		return 0, false
	}
	return ch.pool.Lent(b)
}
