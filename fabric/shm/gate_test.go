package shm

import (
	"runtime"
	"sync"
	"testing"
)

// Owner and others never hold a gate at the same time, and each sees what the
// other has done. The guarded words are plain on purpose.
func TestGate(t *testing.T) {
	var g gate
	var a, b, entered int
	stop := make(chan bool)
	var owner, others sync.WaitGroup
	owner.Go(func() {
		for g.enter() {
			a++
			if b++; a != b {
				t.Error("the owner found a change half done")
			}
			entered++
			g.leave()
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	const rounds = 2000
	for range 2 {
		others.Go(func() {
			for range rounds {
				g.pause()
				if a != b {
					t.Error("found a change of the owner half done")
				}
				a += 1000
				b += 1000
				g.resume()
			}
		})
	}
	others.Wait()
	close(stop)
	owner.Wait()
	if want := 2*rounds*1000 + entered; a != want || b != want {
		t.Errorf("%d and %d, want %d", a, b, want)
	}
	// The second close returns only when the first is done.
	closing, done := make(chan bool), false
	go g.close(func() {
		closing <- true
		runtime.Gosched()
		done = true
	})
	<-closing
	if g.close(func() { t.Error("closed twice") }) || !done || g.enter() {
		t.Error("closing does not work once and for good")
	}
}
