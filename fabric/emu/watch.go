package emu

import (
	"slices"

	"exnet/fabric"
)

// A watcher is a goroutine that calls a function for each event, in order.
type watcher struct {
	net     *Network
	f       func(fabric.Event)
	events  []fabric.Event
	stopped bool
	signal  chan struct{} // there are events, or stopped is set
}

func (m *node) Watch(f func(fabric.Event)) (stop func()) {
	defer m.lock()()
	if !m.open {
		return func() {}
	}
	w := &watcher{net: m.net, f: f, signal: make(chan struct{}, 1)}
	m.watchers = append(m.watchers, w)
	go w.run()
	return func() {
		defer m.lock()()
		w.stop()
		m.watchers = slices.DeleteFunc(m.watchers, func(o *watcher) bool { return o == w })
	}
}

// tell queues an event for the watchers.
func (m *node) tell(e fabric.Event) {
	for _, w := range m.watchers {
		w.events = append(w.events, e)
		w.notify()
	}
}

func (w *watcher) stop() {
	w.stopped = true
	w.notify()
}

func (w *watcher) notify() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *watcher) run() {
	for range w.signal {
		for {
			e, stopped, ok := w.next()
			if stopped {
				return
			}
			if !ok {
				break
			}
			w.f(e)
		}
	}
}

func (w *watcher) next() (e fabric.Event, stopped, ok bool) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if len(w.events) > 0 && !w.stopped {
		e, ok = w.events[0], true
		w.events = w.events[1:]
	}
	return e, w.stopped, ok
}
