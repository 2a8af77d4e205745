package ofi

import (
	"slices"
	"sync"

	"exnet/fabric"
)

// watchers tell of nodes that join and leave, on a goroutine of their own and
// in order.
type watchers struct {
	mu     sync.Mutex
	some   *sync.Cond
	all    []*watcher
	events []told
	closed bool
	done   chan struct{}
}

type watcher struct{ f func(fabric.Event) }

// A told is an event and those who watched when it happened.
type told struct {
	event fabric.Event
	to    []*watcher
}

func (w *watchers) start() {
	w.some = sync.NewCond(&w.mu)
	w.done = make(chan struct{})
	go w.run()
}

func (w *watchers) run() {
	defer close(w.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.events) == 0 {
			if w.closed {
				return
			}
			w.some.Wait()
		}
		e := w.events[0]
		w.events = w.events[1:]
		for _, to := range e.to {
			if slices.Contains(w.all, to) {
				w.mu.Unlock()
				to.f(e.event)
				w.mu.Lock()
			}
		}
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	w.closed = true
	w.some.Broadcast()
	w.mu.Unlock()
	<-w.done
}

// tellWatchers queues an event.
func (n *Node) tellWatchers(e fabric.Event) {
	w := &n.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) > 0 && !w.closed {
		w.events = append(w.events, told{e, slices.Clone(w.all)})
		w.some.Signal()
	}
}

// Watch implements fabric.Node.
func (n *Node) Watch(f func(fabric.Event)) (stop func()) {
	w := &n.watchers
	own := &watcher{f}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, own)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = slices.DeleteFunc(w.all, func(o *watcher) bool { return o == own })
	}
}
