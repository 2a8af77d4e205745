package directsockets

import (
	"sync"
	"sync/atomic"
)

// bufferLeast is EXN_DS_BUFFER: the shortest part of a write that is announced out of a
// Buffer. To sleep until it is read costs more time than copying up to about 1 MiB.
func bufferLeast() int { return int(bufferFrom.Load()) }

var bufferFrom atomic.Int64

// A Buffer is memory from which the process at the other end can copy by itself. A Write of
// much out of it copies nothing; it sleeps until the reader has copied all but what the
// connection's window holds, as a Write does whose socket buffer is full. It is not
// needed, and gains nothing, for writes of less than some MiB.
//
//	b := c.Buffer(64 << 20)
//	defer b.Release()
//	n, err := file.Read(b.Bytes())
//	c.Write(b.Bytes()[:n])
//
// It serves all connections with that process that share the channel of this one. To any
// other it is memory like all memory. What is in it the peer may read at any time, but
// not change.
type Buffer struct {
	mu sync.Mutex
	b  []byte
	ch *channel // nil: ordinary memory
}

// Buffer gives memory of so many bytes, zero or what was in a former Buffer. It is
// ordinary memory, and [Buffer.Registered] says so, if the connection has no lane now, or
// its peer knows no buffers, or EXN_DS_WINDOWS or EXN_DS_MEMORY leave no room. So
// ask when the connection is busy, or again.
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

// Bytes are the memory, nil after Release.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b
}

// Registered says that it is not ordinary memory.
func (b *Buffer) Registered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch != nil
}

// Release gives the memory back. Nobody may use what Bytes gave from then on, and no Write out
// of it may be under way; the connection may have ended long ago. A Buffer that is
// dropped without it keeps its memory until the program ends.
func (b *Buffer) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		b.ch.pool.Return(b.b)
		b.ch.release()
	}
	b.b, b.ch = nil, nil
}

// lent says where in our windows b lies, if it lies in one Buffer of this channel.
func (ch *channel) lent(b []byte) (at uint64, ok bool) {
	if !ch.takes {
		return 0, false
	}
	return ch.pool.Lent(b)
}
