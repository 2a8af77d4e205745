//go:build !race

package shm

import (
	"runtime"
	"sync"
	"sync/atomic"

	"exnet/internal/late"
)

// A gate guards one half of a port: a lock that costs its owner two plain
// stores, and others a system call. The owner is the one goroutine that uses
// the half; the others change the half's tables when peers come and go, or
// take it away when the port is closed.
//
// Invariant: at most one of {owner between enter and leave, a goroutine
// between pause and resume} at a time.
//
// Ordering (Dekker with an asymmetric fence): the owner stores busy, then
// loads paused; the other stores paused, passes membarrier, then loads busy.
// The barrier acts on the owner's processor too. If the owner's store of busy
// came before it, the other sees busy and waits; if it came after, the
// owner's load of paused comes after as well, sees it, and backs off. The
// release store on leave orders the owner's changes before the other's.
type gate struct {
	busy   uint32 // written by the owner only
	paused atomic.Uint32
	mu     sync.Mutex // between those who pause
	closed bool       // under mu
}

const (
	gatePaused = 1
	gateClosed = 2
)

// enter begins a call of the owner. It returns false when the half is closed.
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
		// The pause lasts as long as its holder changes a table.
		late.Yield()
		runtime.Gosched()
	}
}

// leave ends it.
func (g *gate) leave() { storeRelease32(&g.busy, 0) }

// pause keeps the owner out until resume and waits for the call it is in.
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

// close keeps the owner out for good, waits for the call it is in, and then
// calls last: once, and before close returns to anybody. It reports whether
// this call did it.
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
