package bare

import (
	"fmt"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
)

const (
	// ringSlots make a ring of 64 KiB: it stays in L2 with room to spare, and
	// is long enough that the sender seldom waits for room.
	ringSlots = 512
	// roomEvery is how many messages the receiver takes before it tells that
	// there is room again.
	roomEvery = ringSlots / 4

	// lookAway is how many times the receiver looks elsewhere, for about half
	// a microsecond, after it found the ring empty. A receiver that looks on
	// takes from the sender the very cache lines that it is about to write:
	// 30 million messages a second instead of 80 (measured on Zen 5).
	lookAway = 2000

	ringRoom  = 0    // the word that counts what was taken
	ringStart = 4096 // the slots
)

// A slot holds one message. The top bit of status is the lap parity, 1 in the
// first lap; it is written last.
type slot struct {
	status  atomic.Uint64
	payload [15]uint64
}

// A ring carries 8-byte messages from lead to follow.
type ring struct {
	pair
	slots []slot
	room  *atomic.Uint64
	next  uint64 // number of the next message
	limit uint64 // lead: messages below it have room
}

func newRing(role measure.Role, site *measure.Site, _ measure.Params) (measure.Half, error) {
	return &ring{
		pair:  pair{role, site},
		slots: measure.Overlay[slot](site.Shared, ringStart, ringSlots),
		room:  measure.Word(site.Shared, ringRoom),
		limit: ringSlots,
	}, nil
}

func (r *ring) Run(n int) (measure.Sample, error) {
	if r.role == measure.Follow {
		return measure.Sample{}, r.receive(r.next + uint64(n))
	}
	start := time.Now()
	end := r.next + uint64(n)
	for ; r.next < end; r.next++ {
		for r.next == r.limit {
			if r.site.Stopped() {
				return measure.Sample{}, measure.ErrStopped
			}
			r.limit = r.room.Load() + ringSlots
		}
		s := &r.slots[r.next%ringSlots]
		s.payload[0] = r.next
		s.status.Store(parity(r.next) | 8)
	}
	for r.room.Load() < end {
		if r.site.Stopped() {
			return measure.Sample{}, measure.ErrStopped
		}
	}
	return measure.Each(time.Since(start), n), nil
}

func (r *ring) receive(end uint64) error {
	for ; r.next < end; r.next++ {
		s := &r.slots[r.next%ringSlots]
		for s.status.Load() != parity(r.next)|8 {
			for range lookAway {
				if r.site.Stopped() {
					return measure.ErrStopped
				}
			}
		}
		if got := s.payload[0]; got != r.next {
			return fmt.Errorf("bare ring: message %d came where %d was due", got, r.next)
		}
		if (r.next+1)%roomEvery == 0 {
			r.room.Store(r.next + 1)
		}
	}
	r.room.Store(end)
	return nil
}

// parity is the top bit of the status words of the lap of message i.
func parity(i uint64) uint64 { return ^(i / ringSlots) << 63 }
