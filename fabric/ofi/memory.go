package ofi

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// A memory is anonymous memory of this process, or somebody's mapping.
type memory struct {
	n       *Node
	id      uint32
	b       []byte
	most    fabric.Rights
	kept    bool             // the mapping is its maker's
	local   libfabric.Region // where the provider wants to know local memory, too
	windows int              // not released yet
	freed   bool
}

var (
	_ fabric.Memory = (*memory)(nil)
	_ fabric.Window = (*window)(nil)
)

// Alloc implements fabric.Node.
func (n *Node) Alloc(size int, most fabric.Rights) (fabric.Memory, error) {
	if size < 1 || size > fabric.MaxWindow || most > fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("alloc %d bytes with rights %d: %w", size, most, fabric.ErrRange)
	}
	b, err := unix.Mmap(-1, 0, (size+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("alloc %d bytes: %w: %w", size, fabric.ErrMemory, err)
	}
	m, err := n.enterMemory(b, most, false)
	if err != nil {
		unix.Munmap(b)
	}
	return m, err
}

// Import implements fabric.Node. It needs no file.
func (n *Node) Import(from fabric.Mapping, most fabric.Rights) (fabric.Memory, error) {
	if size := len(from.Bytes); size < 1 || size > fabric.MaxWindow || most > fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("import %d bytes with rights %d: %w", size, most, fabric.ErrRange)
	}
	return n.enterMemory(from.Bytes, most, true)
}

func (n *Node) enterMemory(b []byte, most fabric.Rights, kept bool) (fabric.Memory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, n.errClosed("alloc")
	}
	m := &memory{n: n, b: b, most: most, kept: kept}
	if n.localRegions {
		var err error
		if m.local, err = n.engine.Register(b, false, false, rand.Uint64()); err != nil {
			return nil, fmt.Errorf("alloc: %w: %w; raise the limit of locked memory (ulimit -l unlimited)", fabric.ErrMemory, err)
		}
	}
	n.lastMemory++
	m.id = n.lastMemory
	n.memories[m.id] = m
	return m, nil
}

// Bytes implements fabric.Memory.
func (m *memory) Bytes() []byte { return m.b }

// Free implements fabric.Memory.
func (m *memory) Free() error {
	n := m.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.freed {
		return fabric.ErrClosed
	}
	if m.windows > 0 {
		return fmt.Errorf("free memory: %d windows are not released yet; deregister them and wait: %w", m.windows, fabric.ErrInUse)
	}
	m.freed = true
	delete(n.memories, m.id)
	if n.localRegions && !n.stopped {
		n.engine.Deregister(m.local)
	}
	if !m.kept {
		unix.Munmap(m.b)
	}
	m.b = nil
	return nil
}

// A window implements fabric.Window. users are the operations that touch its
// memory, and the grants to peers: it is released when there are none.
type window struct {
	port     *rmaPort
	mem      *memory
	nla      fabric.NLA
	spec     fabric.WindowSpec
	users    int
	leaving  bool
	gone     bool
	region   libfabric.Region
	exposed  bool // region is valid
	granted  map[*peer]bool
	released chan struct{}
}

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
	if n.closed || !p.open || mem.freed {
		return nil, fabric.ErrClosed
	}
	nla, err := n.atu.Register(mem.id, len(mem.b), p.address.VPID, spec)
	if err != nil {
		return nil, err
	}
	w := &window{port: p, mem: mem, nla: nla, spec: spec, granted: map[*peer]bool{}, released: make(chan struct{})}
	n.windows[nla.Window()] = w
	p.windows[w] = true
	mem.windows++
	n.count(fabric.RegATUWindows, 1)
	return w, nil
}

// NLA implements fabric.Window.
func (w *window) NLA() fabric.NLA { return w.nla }

// Len implements fabric.Window.
func (w *window) Len() int { return w.spec.Length }

// Released implements fabric.Window.
func (w *window) Released() <-chan struct{} { return w.released }

// Deregister implements fabric.Window.
func (w *window) Deregister() error {
	n := w.port.n
	n.mu.Lock()
	defer n.mu.Unlock()
	w.deregister()
	if !n.stopped {
		n.drive()
	}
	return nil
}

// deregister makes the address stale and revokes what peers were granted.
func (w *window) deregister() {
	if w.leaving {
		return
	}
	w.leaving = true
	n := w.port.n
	n.atu.Invalidate(w.nla)
	delete(w.port.windows, w)
	n.uncount(fabric.RegATUWindows, 1)
	for p := range w.granted {
		p.put(record{kind: recRevoke, op: windowName(w.nla), dst: uint8(w.port.address.VPID)})
	}
	w.users++
	w.drop()
}

// drop ends one use; the last of a window that leaves releases it. The provider
// refuses the key before the memory is its owner's again.
func (w *window) drop() {
	if w.users--; w.users > 0 || !w.leaving || w.gone {
		return
	}
	w.gone = true
	n := w.port.n
	if w.exposed && !n.stopped {
		n.engine.Deregister(w.region)
	}
	n.atu.Release(w.nla)
	n.windows[w.nla.Window()] = nil
	w.mem.windows--
	close(w.released)
}

// ungrant ends the grant to a peer, which has said that it will not use it any
// more, or with which there is no session any more.
func (w *window) ungrant(p *peer) {
	if w.granted[p] {
		delete(w.granted, p)
		delete(p.grants, w)
		w.drop()
	}
}

// A cursor is a range of a window that an operation works on, from its start.
// While it has a window, that is not released.
type cursor struct {
	window *window
	tr     fabric.Translation
	at, n  uint64 // of the piece at hand
	left   int
}

// aim translates a range and takes hold of its window.
func (n *Node) aim(a fabric.NLA, length int, v fabric.VPID, need fabric.Rights) (c cursor, f fabric.Fault) {
	tr, f := n.atu.Table().Lookup(a, length, v, need)
	if f != fabric.FaultNone {
		return cursor{}, f
	}
	w := n.windows[a.Window()]
	w.users++
	n.count(fabric.RegTLBHits, 1)
	return cursor{window: w, tr: tr, left: length}, fabric.FaultNone
}

// take returns the next bytes, at most so many and of one piece.
func (c *cursor) take(most int) []byte {
	if c.n == 0 {
		c.at, c.n, _ = c.tr.Next()
	}
	k := min(uint64(most), c.n)
	b := c.window.mem.b[c.at:][:k:k]
	c.at, c.n, c.left = c.at+k, c.n-k, c.left-int(k)
	return b
}

// write copies bytes in, read copies them out.
func (c *cursor) write(b []byte) {
	for len(b) > 0 {
		b = b[copy(c.take(len(b)), b):]
	}
}

func (c *cursor) read(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, c.take(len(b))):]
	}
}

// drop lets go of the window.
func (c *cursor) drop() {
	if c.window != nil {
		c.window.drop()
		c.window = nil
	}
}
