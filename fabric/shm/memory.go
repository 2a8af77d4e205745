package shm

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A memory is shareable memory of this node. It is a memfd of its own, which a peer receives when
// it first uses a window of it.
type memory struct {
	n    *Node
	id   uint32
	most fabric.Rights
	m    mapping
	kept bool     // the mapping belongs to its maker, who also unmaps it
	own  imported // m as our own operations see it
	// Under Node.mu: windows counts the windows that are not released yet, and holders are the
	// peers that have received the memory.
	windows int
	holders map[*peer]bool
}

var _ fabric.Memory = (*memory)(nil)

// Alloc implements fabric.Node.
func (n *Node) Alloc(size int, most fabric.Rights) (fabric.Memory, error) {
	if size < 1 || size > fabric.MaxWindow || most > fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("alloc %d bytes with rights %d: %w", size, most, fabric.ErrRange)
	}
	rounded := (size + 4095) &^ 4095
	if err := n.budget.reserve(rounded); err != nil {
		return nil, err
	}
	m, err := newMemfd("exnet-memory", rounded, most&fabric.RemoteWrite != 0)
	if err != nil {
		n.budget.release(rounded)
		return nil, err
	}
	return n.enterMemory(m, most, false)
}

// Import implements fabric.Node.
func (n *Node) Import(from fabric.Mapping, most fabric.Rights) (fabric.Memory, error) {
	size := len(from.Bytes)
	if size < 1 || size%4096 != 0 || most > fabric.RemoteRead|fabric.RemoteWrite || from.File == 0 {
		return nil, fmt.Errorf("import %d bytes of file %d with rights %d: a memfd of whole pages is needed: %w", size, from.File, most, fabric.ErrRange)
	}
	fd, err := importable(from)
	if err != nil {
		return nil, fmt.Errorf("import memory: %w", err)
	}
	if err := n.budget.reserve(size); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return n.enterMemory(mapping{b: from.Bytes, fd: fd}, most, true)
}

// enterMemory enters a mapping, whose bytes are reserved in the budget, into the table.
func (n *Node) enterMemory(m mapping, most fabric.Rights, kept bool) (fabric.Memory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastMemory++
	mem := &memory{n: n, id: n.lastMemory, most: most, m: m, kept: kept,
		own: imported{m: mapping{b: m.b, fd: -1}, writable: true}, holders: map[*peer]bool{}}
	if n.closed {
		mem.giveBack()
		return nil, fabric.ErrClosed
	}
	n.memories[mem.id] = mem
	return mem, nil
}

// giveBack ends the mapping, or only our registration of it.
func (m *memory) giveBack() {
	m.n.budget.release(len(m.m.b))
	if m.kept {
		m.m.b = nil
	}
	m.m.unmap()
}

func (m *memory) Bytes() []byte { return m.m.b }

// Free implements fabric.Memory.
func (m *memory) Free() error {
	n := m.n
	n.mu.Lock()
	if n.memories[m.id] != m { // it has been freed already
		n.mu.Unlock()
		return fabric.ErrClosed
	}
	if m.windows > 0 {
		n.mu.Unlock()
		return fmt.Errorf("free memory: %d windows are not released yet; deregister them and wait: %w", m.windows, fabric.ErrInUse)
	}
	delete(n.memories, m.id)
	for p := range m.holders {
		p.send(message{kind: msgFreed, c: uint64(m.id)}, -1)
	}
	ports := n.rmaPorts()
	n.mu.Unlock()
	for _, p := range ports {
		p.forgetMemory(memoryKey{n.self, m.id})
	}
	m.giveBack()
	return nil
}

// A window implements fabric.Window.
type window struct {
	port     *rmaPort
	mem      *memory
	nla      fabric.NLA
	length   int
	released chan struct{}
	stale    bool // under Node.mu
}

var _ fabric.Window = (*window)(nil)

func (w *window) NLA() fabric.NLA           { return w.nla }
func (w *window) Len() int                  { return w.length }
func (w *window) Released() <-chan struct{} { return w.released }

// Register implements fabric.RMA.
func (p *rmaPort) Register(m fabric.Memory, spec fabric.WindowSpec) (fabric.Window, error) {
	mem, ok := m.(*memory)
	if !ok || mem.n != p.n {
		return nil, fmt.Errorf("register window: the memory is not from this node's Alloc: %w", fabric.ErrRange)
	}
	if spec.Rights&^mem.most != 0 {
		return nil, fmt.Errorf("register window: rights %v, but the memory was allocated with %v; Alloc it with more: %w", spec.Rights, mem.most, fabric.ErrRights)
	}
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.rma[&p.port] == nil || n.memories[mem.id] != mem {
		return nil, fabric.ErrClosed
	}
	nla, err := n.atu.Register(mem.id, len(mem.m.b), p.tx.self.VPID, spec)
	if err != nil {
		return nil, err
	}
	w := &window{port: p, mem: mem, nla: nla, length: spec.Length, released: make(chan struct{})}
	p.windows[w] = true
	mem.windows++
	atomic.AddUint64(n.region.register(fabric.RegATUWindows), 1)
	return w, nil
}

// Deregister implements fabric.Window.
func (w *window) Deregister() error {
	n := w.port.n
	n.mu.Lock()
	defer n.mu.Unlock()
	w.deregisterLocked()
	return nil
}

func (w *window) deregisterLocked() {
	n := w.port.n
	if w.stale {
		return
	}
	w.stale = true
	delete(w.port.windows, w)
	if n.closed { // the table is going, or gone
		w.mem.windows--
		close(w.released)
		return
	}
	atomic.AddUint64(n.region.register(fabric.RegATUWindows), ^uint64(0))
	n.atu.Invalidate(w.nla) // a full fence: see inUse
	if n.inUse(w.nla) {
		n.draining = append(n.draining, w)
		n.drain()
		return
	}
	w.releaseLocked()
}

func (w *window) releaseLocked() {
	w.port.n.atu.Release(w.nla)
	w.mem.windows--
	close(w.released)
}

// A requester names the window that it uses in its own region, fences, and then looks the window
// up. We make the window stale, fence, and then look for our windows in the requesters' regions. So
// either the requester finds the window stale, or we find it named.
const useMark = 1 << 63

func useOf(a fabric.NLA) uint64 { return uint64(a)&^(fabric.MaxWindow-1) | useMark }

// inUse reports whether an operation is using a window of ours. The caller holds mu.
func (n *Node) inUse(a fabric.NLA) bool {
	want := useOf(a)
	for _, p := range n.allPeers() {
		ch := p.channel
		if ch == nil {
			continue
		}
		for i := range len(ch.txFlows) { // our own operations, there
			if atomic.LoadUint64(ch.tx.usingOwn(i+1)) == want {
				return true
			}
		}
		rx := ch.rx.Load()
		if rx == nil {
			continue
		}
		for i := range min(atomic.LoadUint64(rx.flowCount()), maxFlows-1) { // its operations, here
			if atomic.LoadUint64(rx.usingPeer(int(i)+1)) == want {
				return true
			}
		}
	}
	return false
}

// drain releases windows as soon as nobody uses them. The caller holds mu.
func (n *Node) drain() {
	if n.drains || len(n.draining) == 0 {
		return
	}
	n.drains = true
	n.wg.Go(func() {
		for {
			time.Sleep(time.Millisecond) // an operation takes up to about a millisecond
			n.mu.Lock()
			left := n.draining[:0]
			for _, w := range n.draining {
				if n.inUse(w.nla) && !n.closed {
					left = append(left, w)
				} else {
					w.releaseLocked()
				}
			}
			clear(n.draining[len(left):])
			n.draining = left
			n.drains = len(left) > 0
			n.mu.Unlock()
			if len(left) == 0 {
				return
			}
		}
	})
}
