package exteth

import (
	"time"

	"exnet/mtu"
)

// A queued frame waits for its peer.
type queued struct {
	buffer   *Buffer // nil: the bytes are in the queue
	off, n   int
	vnet     VNet
	group    bool
	sent     int // fragments that were sent already
	deadline time.Duration
}

// A frameQueue holds the frames that wait for one peer, in order. It copies frames that will be
// sent eagerly, so they hold no buffer. Its memory is allocated on first use, and kept.
type frameQueue struct {
	frames   []queued
	small    []byte // one slot per entry
	slot     int
	first, n int
}

func (q *frameQueue) head() *queued { return &q.frames[q.first] }

func (q *frameQueue) bytes() []byte {
	h := q.head()
	if h.buffer != nil {
		return h.buffer.Bytes[h.off : h.off+h.n]
	}
	return q.small[q.first*q.slot:][:h.n]
}

// enqueue makes a frame wait, or drops it where waiting would take buffers that other peers need.
func (e *Engine) enqueue(p *peer, frame *queued) error {
	q := &p.queue
	large := frame.n > e.cfg.Eager
	// Besides its window, a peer may hold half of the buffers free now. With its window of one,
	// a stalled peer so gets no more than two.
	most := p.window + max(1, min(p.window, len(e.tx.free)/2))
	if q.n == QueueFrames || large && p.out+p.waiting >= most {
		e.stats.count(TXQueueFull)
		return ErrDropped
	}
	if q.frames == nil {
		q.frames, q.slot = make([]queued, QueueFrames), e.cfg.Eager
		q.small = make([]byte, QueueFrames*q.slot)
	}
	i := (q.first + q.n) % QueueFrames
	q.frames[i] = *frame
	q.n++
	if large {
		frame.buffer.refs++
		p.waiting++
	} else {
		copy(q.small[i*q.slot:][:frame.n], frame.buffer.Bytes[frame.off:])
		q.frames[i].buffer = nil
	}
	if frame.group {
		e.multicastWaiting++
	}
	e.stats.count(TXQueued)
	return nil
}

// dequeue removes the head.
func (e *Engine) dequeue(p *peer) {
	h := p.queue.head()
	if h.buffer != nil {
		p.waiting--
		e.tx.release(h.buffer)
	}
	if h.group {
		e.multicastWaiting--
	}
	*h = queued{}
	p.queue.first = (p.queue.first + 1) % QueueFrames
	p.queue.n--
}

// expires returns when a frame that waits for a peer is dropped.
func (e *Engine) expires(p *peer, h *queued) time.Duration {
	if e.active == 1 && p.counted {
		return h.deadline + SoleQueueTime - QueueTime
	}
	return h.deadline
}

// flush sends what the peer has room for, and drops what waited too long.
func (e *Engine) flush(p *peer, now time.Duration) {
	for p.queue.n > 0 {
		h := p.queue.head()
		if now >= e.expires(p, h) {
			e.stats.count(TXQueueExpired)
			p.stalled = true
			e.settle(p)
		} else if e.transmit(p, h, p.queue.bytes(), now) == errWait {
			break
		}
		e.dequeue(p)
	}
	e.settle(p)
}

// fragments of both fit the user tag
var _ = [MaxEager + mtu.VNetHeader - maxFragments*Fragment]struct{}{}
