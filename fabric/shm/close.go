package shm

import (
	"errors"
	"sync"
	"time"

	"exnet/fabric"
)

// Close implements fabric.Node. Memories stay mapped until they are freed.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		n.wg.Wait()
		return nil
	}
	n.closed = true
	close(n.done)
	ports, rma := n.openPorts(), n.rmaPorts()
	peers := *n.peerList.Load()
	n.mu.Unlock()

	// First tell the peers that this is not a crash.
	for _, p := range peers {
		p.send(message{kind: msgBye}, -1)
	}
	for _, p := range ports {
		p.tx.shut()
		p.rx.shut()
	}
	for k := range n.interrupts {
		if i := n.interrupts[k].Load(); i != nil {
			i.shut()
		}
	}
	n.listener.Close()
	var finished sync.WaitGroup
	for _, p := range peers {
		finished.Go(p.finish)
	}
	finished.Wait()
	n.mu.Lock()
	for conn := range n.connections {
		conn.Close() // including those of nodes that have not introduced themselves yet
	}
	n.mu.Unlock()
	n.events.close()
	n.wg.Wait()

	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range rma {
		for w := range r.windows {
			w.deregisterLocked()
		}
	}
	n.release()
	return nil
}

// Discard closes the node. It removes the fabric directory if this node made it and nobody else
// uses it. It is for a program that attached first and then failed.
func (n *Node) Discard() error { return errors.Join(n.Close(), n.dir.discard()) }

// farewell is how long a node that closes waits for a peer that does not read. Such a peer takes
// the node for crashed. With a much shorter wait, other peers on a busy machine would, too.
const farewell = time.Second

// finish lets the queue drain, and then ends the connection.
func (p *peer) finish() {
	end := time.Now().Add(farewell)
	p.conn.SetWriteDeadline(end)
	for ; time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		p.sendMu.Lock()
		empty := len(p.queue) == 0 && !p.busy
		p.sendMu.Unlock()
		if empty {
			break
		}
	}
	p.conn.CloseWrite()
	p.conn.CloseRead()
}

// Watch implements fabric.Node.
func (n *Node) Watch(f func(fabric.Event)) (stop func()) { return n.events.watch(f) }

// An eventQueue calls watchers in order, on one goroutine.
type eventQueue struct {
	mu       sync.Mutex
	some     *sync.Cond
	queue    []fabric.Event
	watchers map[int]func(fabric.Event)
	last     int
	closed   bool
}

func (q *eventQueue) init() {
	q.some = sync.NewCond(&q.mu)
	q.watchers = map[int]func(fabric.Event){}
}

func (q *eventQueue) add(e fabric.Event) {
	q.mu.Lock()
	if len(q.watchers) > 0 {
		q.queue = append(q.queue, e)
	}
	q.mu.Unlock()
	q.some.Signal()
}

func (q *eventQueue) watch(f func(fabric.Event)) func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	id := q.last
	q.watchers[id] = f
	return func() {
		q.mu.Lock()
		delete(q.watchers, id)
		q.mu.Unlock()
	}
}

func (q *eventQueue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.queue) == 0 && !q.closed {
			q.some.Wait()
		}
		if q.closed {
			return
		}
		e := q.queue[0]
		q.queue = q.queue[1:]
		for id := 1; id <= q.last; id++ {
			if f := q.watchers[id]; f != nil {
				q.mu.Unlock()
				f(e)
				q.mu.Lock()
			}
		}
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Signal()
}
