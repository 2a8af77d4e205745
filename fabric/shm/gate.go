//go:build !race

package shm

import (
	"runtime"
	"sync"
	"sync/atomic"

	"exnet/internal/late"
)

// A gate guards one half of a port. It is a lock that costs its owner two plain stores, and others
// a system call. The owner is the one goroutine that uses the half. Other goroutines change the
// half's tables when peers come and go, or take it away when the port is closed.
//
// Invariant: at most one of {owner between enter and leave, a goroutine
// between pause and resume} at a time.
//
// Ordering (Dekker with an asymmetric fence): the owner stores busy, then loads paused. The other
// goroutine stores paused, calls membarrier, then loads busy. The barrier also acts on the owner's
// processor. If the owner stored busy before it, the other sees busy and waits. If the owner stored
// it afterwards, its load of paused comes afterwards as well, sees paused, and the owner backs off.
// The release store in leave orders the owner's changes before those of the other.
type gate struct {
	busy   uint32 // written only by the owner
	paused atomic.Uint32
	mu     sync.Mutex // between goroutines that pause
	closed bool       // under mu
}

const (
	gatePaused = 1
	gateClosed = 2
)

// enter begins a call of the owner. It returns false if the half is closed.
func (g *gate) enter() bool {
	for {
		if g.busy != 0 {
			panic("fabric/shm: two goroutines use one half of a port at the same time")
		}
		storeRelease32(&g.busy, 1)
		p := g.paused.Load()
		if p == 0 {
			return true
		}
		storeRelease32(&g.busy, 0)
		if p&gateClosed != 0 {
			return false
		}
		// A pause lasts only as long as its holder changes a table.
		late.Yield()
		runtime.Gosched()
	}
}

// leave ends the call.
func (g *gate) leave() { storeRelease32(&g.busy, 0) }

// pause keeps the owner out until resume. It waits for a call of the owner to end.
func (g *gate) pause() {
	g.mu.Lock()
	g.paused.Or(gatePaused)
	membarrier()
	for atomic.LoadUint32(&g.busy) != 0 {
		late.Yield()
		runtime.Gosched()
	}
}

func (g *gate) resume() {
	g.paused.And(^uint32(gatePaused))
	g.mu.Unlock()
}

// close keeps the owner out for good, waits for a call of the owner to end, and then calls last,
// once, before any close returns. It reports whether this call closed the gate.
func (g *gate) close(last func()) bool {
	g.pause()
	defer g.resume()
	if g.closed {
		return false
	}
	g.closed = true
	g.paused.Or(gateClosed)
	last()
	return true
}
