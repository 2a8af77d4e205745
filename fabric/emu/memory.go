package emu

import (
	"fmt"

	"exnet/fabric"
)

var (
	_ fabric.Memory = (*memory)(nil)
	_ fabric.Window = (*window)(nil)
)

type memory struct {
	node    *node
	name    uint32
	bytes   []byte
	most    fabric.Rights
	windows int // registered on it, including those still in use after Deregister
}

func (m *node) Alloc(size int, most fabric.Rights) (fabric.Memory, error) {
	if size < 1 || most > fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("emu: allocate %d bytes with rights %d: %w", size, most, fabric.ErrRange)
	}
	if size > memoryMax {
		return nil, fmt.Errorf("emu: allocate %d bytes: at most %d at once: %w", size, memoryMax, fabric.ErrMemory)
	}
	defer m.lock()()
	if !m.open {
		return nil, m.closed("allocate")
	}
	mem := &memory{node: m, name: uint32(len(m.memories)), bytes: make([]byte, size), most: most}
	m.memories = append(m.memories, mem)
	return mem, nil
}

// Import implements fabric.Node. Memory of one process needs no file.
func (m *node) Import(from fabric.Mapping, most fabric.Rights) (fabric.Memory, error) {
	if size := len(from.Bytes); size < 1 || size > memoryMax || most > fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("emu: import %d bytes with rights %d: %w", size, most, fabric.ErrRange)
	}
	defer m.lock()()
	if !m.open {
		return nil, m.closed("import")
	}
	mem := &memory{node: m, name: uint32(len(m.memories)), bytes: from.Bytes, most: most}
	m.memories = append(m.memories, mem)
	return mem, nil
}

func (mem *memory) Bytes() []byte { return mem.bytes }

func (mem *memory) Free() error {
	defer mem.node.lock()()
	if mem.windows > 0 {
		return fmt.Errorf("emu: free memory %d of node %d: deregister its %d windows and wait for their release: %w", mem.name, mem.node.id, mem.windows, fabric.ErrInUse)
	}
	mem.node.memories[mem.name] = nil
	return nil
}

type window struct {
	port     *rmaPort
	mem      *memory
	nla      fabric.NLA
	length   int
	users    int // operations under way
	leaving  bool
	released chan struct{}
}

func (p *rmaPort) Register(m fabric.Memory, spec fabric.WindowSpec) (fabric.Window, error) {
	mem, ok := m.(*memory)
	if !ok || mem.node != p.node {
		return nil, fmt.Errorf("emu: register window of %v: the memory is not of node %d: %w", p.address, p.address.Node, fabric.ErrRange)
	}
	defer p.node.lock()()
	if !p.open {
		return nil, fmt.Errorf("emu: register window: port %v is closed: %w", p.address, fabric.ErrClosed)
	}
	if p.node.memories[mem.name] != mem {
		return nil, fmt.Errorf("emu: register window of %v: the memory was freed: %w", p.address, fabric.ErrClosed)
	}
	if spec.Rights&^mem.most != 0 && spec.Rights <= fabric.RemoteRead|fabric.RemoteWrite {
		return nil, fmt.Errorf("emu: register window of %v with rights %v: allocate the memory with them, it has %v: %w", p.address, spec.Rights, mem.most, fabric.ErrRights)
	}
	nla, err := p.node.atu.Register(mem.name, len(mem.bytes), p.address.VPID, spec)
	if err != nil {
		return nil, fmt.Errorf("emu: port %v: %w", p.address, err)
	}
	w := &window{port: p, mem: mem, nla: nla, length: spec.Length, released: make(chan struct{})}
	p.node.windows[nla.Window()] = w
	p.windows[w] = struct{}{}
	mem.windows++
	p.node.registers[fabric.RegATUWindows]++
	return w, nil
}

func (w *window) NLA() fabric.NLA           { return w.nla }
func (w *window) Len() int                  { return w.length }
func (w *window) Released() <-chan struct{} { return w.released }

func (w *window) Deregister() error {
	defer w.port.node.lock()()
	w.deregister()
	return nil
}

func (w *window) deregister() {
	if w.leaving {
		return
	}
	w.leaving = true
	w.port.node.atu.Invalidate(w.nla)
	delete(w.port.windows, w)
	w.users++
	w.done()
}

// done ends one use of the window. The last use of a deregistered window releases it.
func (w *window) done() {
	if w.users--; w.users > 0 || !w.leaving {
		return
	}
	m := w.port.node
	m.atu.Release(w.nla)
	delete(m.windows, w.nla.Window())
	w.mem.windows--
	m.registers[fabric.RegATUWindows]--
	close(w.released)
}

// A use is a translated range of a window that an operation works on, piece by piece from its
// start. The window is not released before done.
type use struct {
	window *window
	pieces [][]byte
}

// use translates an address range.
func (m *node) use(a fabric.NLA, n int, v fabric.VPID, need fabric.Rights) (use, fabric.Fault) {
	tr, fault := m.atu.Table().Lookup(a, n, v, need)
	if fault != fabric.FaultNone {
		return use{}, fault
	}
	m.registers[fabric.RegTLBHits]++
	u := use{window: m.windows[a.Window()]}
	for {
		at, k, ok := tr.Next()
		if !ok {
			u.window.users++
			return u, fabric.FaultNone
		}
		u.pieces = append(u.pieces, u.window.mem.bytes[at:at+k])
	}
}

func (u *use) done() {
	if u.window != nil {
		u.window.done()
		u.window = nil
	}
}

// read copies the next bytes out; write copies them in.
func (u *use) read(b []byte)  { u.move(len(b), func(piece []byte) { b = b[copy(b, piece):] }) }
func (u *use) write(b []byte) { u.move(len(b), func(piece []byte) { b = b[copy(piece, b):] }) }

func (u *use) move(n int, f func(piece []byte)) {
	for n > 0 {
		piece := u.pieces[0][:min(n, len(u.pieces[0]))]
		f(piece)
		n -= len(piece)
		if u.pieces[0] = u.pieces[0][len(piece):]; len(u.pieces[0]) == 0 {
			u.pieces = u.pieces[1:]
		}
	}
}
