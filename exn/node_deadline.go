package exn

import (
	"sync"
	"time"
)

// A deadline is a moment that can be waited for and moved. Its zero value never comes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed at the moment; nil while there is none
}

// set moves the moment; zero is never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		// A timer that fired closed its own channel, which is not used again.
		d.timer.Stop()
		d.timer = nil
	}
	if t.IsZero() {
		d.past = nil
		return
	}
	past := make(chan struct{})
	d.past = past
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(past) })
	} else {
		close(past)
	}
}

// wait returns a channel that is closed at the moment. It is that of the present
// setting: who waits looks again after each wake-up, and set must cause one.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}
