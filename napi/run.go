package napi

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// A Sleeper waits for interrupts on behalf of the loop: a ppoll on the doorbells of all sources, or
// a [Doorbell].
type Sleeper interface {
	// Sleep waits until the interrupt of an armed source fires, until Wake, or until d has
	// passed. With d = 0 it only checks; with d = Forever there is no limit. It calls Raise on
	// each source that fired. It may return early without a reason, and late; returning late
	// only makes the gap between interrupts longer. An error ends Run.
	Sleep(d time.Duration) error
	// Wake ends the Sleep under way or, if there is none, the next one. Any goroutine may call
	// it.
	Wake()
}

// schedule is how often the loop passes through Go's scheduler. After 10 ms without that, Go's
// monitor takes a goroutine for one that runs too long. It tries to preempt it and, if the
// goroutine sleeps just then, takes its processor away; after that the monitor wakes every 20 µs
// for a while (measured: up to 9 % of a CPU).
const schedule = 5 * time.Millisecond

// Run drives the engine until ctx is done or the Sleeper fails, and then masks every source. It
// returns the cause of ctx, or the Sleeper's error. It calls yield when there was nothing to do, or
// when the loop had the CPU for a slice: use [OSYield] on a thread of its own, runtime.Gosched
// among goroutines.
func (e *Engine) Run(ctx context.Context, sleeper Sleeper, yield func()) error {
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("napi: run: %w", ErrRunning)
	}
	defer e.running.Store(false)
	defer e.maskAll()

	// Once Run has returned, the caller may close the Sleeper: a Wake under way must have
	// returned by then.
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		e.stopped.Store(true)
		sleeper.Wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken
		}
		e.stopped.Store(false)
	}()

	var scheduled time.Duration
	for !e.stopped.Load() {
		if e.turned-scheduled >= schedule {
			scheduled = e.turned
			runtime.Gosched()
		}
		switch next := e.Turn(); next.Do {
		case Yield:
			yield()
		case Sleep, Rest:
			if err := sleeper.Sleep(next.For); err != nil {
				return fmt.Errorf("napi: wait for interrupts: %w", err)
			}
		}
	}
	return context.Cause(ctx)
}
