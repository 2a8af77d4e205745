package directsockets

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whatever was changed before wake, the sleeper has seen or is woken for, and no token is left for
// a later nap.
func TestNap(t *testing.T) {
	const changes, wakers = 20000, 3
	n := nap{bell: make(chan struct{}, 1)}
	var done atomic.Int64
	var all sync.WaitGroup
	for range wakers {
		all.Go(func() {
			for range changes {
				done.Add(1)
				n.wake()
			}
		})
	}
	deadline := time.After(time.Minute)
	for seen := int64(0); seen < changes*wakers; {
		n.begin()
		if done.Load() == seen {
			select {
			case <-n.bell:
				n.heard = true
			case <-deadline:
				t.Fatalf("asleep at %d, and there are %d", seen, done.Load())
			}
		}
		n.end()
		if len(n.bell) > 0 {
			t.Fatal("a token is left")
		}
		seen = done.Load()
	}
	all.Wait()
}
