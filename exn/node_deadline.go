package exn

import (
	"sync"
	"time"
)

// A deadline is a moment that can be waited for and changed. With its zero value the moment never
// comes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed when the moment comes; nil: it never comes
}

// set changes the moment; the zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		// a timer that fired has closed its own channel, which is not used again
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

// wait returns a channel that is closed when the moment comes. The channel is for the present
// setting: the waiter must call wait again after each wake-up, and set must cause one.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}
