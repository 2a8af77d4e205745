package lane

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ext-ds.md, section 5: if two threads each store a word and then load the other's, at least one
// sees the other's store. All sleeping and all withdrawing depends on that.
func TestStoreIsAFence(t *testing.T) {
	m, fd, err := New(small, false)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	defer m.Unmap()
	const over = -1
	a, b := &m.Control(0).zcopyBusy, &m.Control(1).zcopyWithdrawn
	var round, done atomic.Int64
	var seen uint64 // value of a, as seen by the thread that stores b
	go func() {
		for i := int64(1); ; i++ {
			for now := round.Load(); now != i; now = round.Load() {
				if now == over {
					done.Store(over)
					return
				}
			}
			b.Store(1)
			seen = a.Load()
			done.Store(i)
		}
	}()
	end, missed := time.Now().Add(time.Second), 0
	i := int64(0)
	for ; time.Now().Before(end); i++ {
		a.Store(0)
		b.Store(0)
		round.Store(i + 1)
		for range i % 32 { // the other thread sees the round later
			done.Load()
		}
		a.Store(1)
		mine := b.Load()
		for done.Load() != i+1 {
		}
		if mine == 0 && seen == 0 {
			missed++
		}
	}
	round.Store(over)
	for done.Load() != over {
	}
	if missed > 0 {
		t.Errorf("in %d of %d rounds neither saw the other", missed, i)
	}
	t.Logf("%d rounds", i)
}
