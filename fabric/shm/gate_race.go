//go:build race

package shm

import "sync"

// This gate is for the race detector, which cannot see the asymmetric fence of the real one
// (gate.go). It is a mutex with the same meaning.
type gate struct {
	mu     sync.Mutex
	closed bool
}

func (g *gate) enter() bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	return true
}

func (g *gate) leave()  { g.mu.Unlock() }
func (g *gate) pause()  { g.mu.Lock() }
func (g *gate) resume() { g.mu.Unlock() }

func (g *gate) close(last func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.closed = true
	last()
	return true
}
