package measure

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrStopped is what a half returns when it was stopped while it waited.
var ErrStopped = errors.New("measure: stopped")

// A Site is what a peer process offers to its halves.
type Site struct {
	// Shared is memory that both processes have mapped, zeroed at the start
	// of the Duo. It costs what is touched.
	Shared []byte

	// Bells are blocking eventfds: LeadBell wakes lead, FollowBell follow.
	LeadBell, FollowBell int

	yard *Yardstick // looked at beside runs, where nothing else tells whether they are noisy

	meter *Meter // of the half; nil: nobody looks

	stopped atomic.Bool
	mu      sync.Mutex
	onStop  []func()
}

// Stopped reports whether a half has to give up. It costs one load of a word
// that nobody writes meanwhile.
func (s *Site) Stopped() bool { return s.stopped.Load() }

// OnStop has f called, by another goroutine, when the Duo ends: for halves
// that sleep.
func (s *Site) OnStop(f func()) {
	s.mu.Lock()
	s.onStop = append(s.onStop, f)
	s.mu.Unlock()
	if s.Stopped() {
		f()
	}
}

// Stop makes the halves give up. It is called once.
func (s *Site) Stop() {
	s.stopped.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onStop {
		f()
	}
}
