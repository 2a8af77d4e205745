package shm

import (
	"slices"

	"exnet/fabric"
)

// The ATU table of a peer is read in place. What has to be fetched is the memory to which a
// translation points. A port keeps the memories that it used.

type memoryKey struct {
	ch *channel
	id uint32
}

// An imported is a memory that can be accessed here: a mapped one of a peer's, or our own. It is
// pending until the peer has answered.
type imported struct {
	m        mapping
	writable bool
	pending  bool
	fault    fabric.Fault // the peer's refusal
	waiters  []*rmaPort
}

// maxImports limits the memories of one peer to the number of windows that it can have.
const maxImports = fabric.Windows

type tlb struct {
	all map[memoryKey]*imported
	// The last one of ours and of theirs: most operations use the same two.
	last [2]struct {
		key memoryKey
		mem *imported
	}
}

// translate finds the memory of a translation. If it is pending, the transmit interrupt is raised
// when it has come.
func (p *rmaPort) translate(ch *channel, a fabric.NLA, id uint32) (*imported, fabric.Fault) {
	key := memoryKey{ch, id}
	slot := &p.tlb.last[0]
	if ch != p.n.self {
		slot = &p.tlb.last[1]
	}
	if slot.mem != nil && slot.key == key {
		p.tx.count.tlbHits++
		return slot.mem, fabric.FaultNone
	}
	mem := p.tlb.all[key]
	if mem != nil {
		p.tx.count.tlbHits++
	} else {
		var fault fabric.Fault
		if mem, fault = p.n.fetch(p, ch, a, id); mem == nil {
			return nil, fault
		}
		p.tlb.all[key] = mem
	}
	slot.key, slot.mem = key, mem
	return mem, fabric.FaultNone
}

// fetch finds a memory in the node's tables, or requests it from the peer.
func (n *Node) fetch(p *rmaPort, ch *channel, a fabric.NLA, id uint32) (*imported, fabric.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ch == n.self {
		if m := n.memories[id]; m != nil {
			return &m.own, fabric.FaultNone
		}
		return nil, fabric.FaultStale
	}
	mem := ch.peer.imports[id]
	switch {
	case n.peers[ch.peer.id] != ch.peer:
		return nil, fabric.FaultNode
	case mem == nil && len(ch.peer.imports) >= maxImports:
		return nil, fabric.FaultMemory
	case mem == nil:
		p.tx.count.tlbMisses++
		p.tx.waits.Store(true)
		ch.peer.imports[id] = &imported{pending: true, waiters: []*rmaPort{p}}
		ch.peer.send(message{kind: msgImport, b: uint64(a), c: uint64(id)}, -1)
		return nil, pending
	case mem.pending:
		p.tx.waits.Store(true)
		if !slices.Contains(mem.waiters, p) {
			mem.waiters = append(mem.waiters, p)
		}
		return nil, pending
	case mem.fault != fabric.FaultNone:
		// request it again next time: this may have been for a window that is gone
		delete(ch.peer.imports, id)
		return nil, mem.fault
	}
	return mem, fabric.FaultNone
}

// forgetMemory removes a memory from the port's table. Afterwards the memory can be unmapped.
func (p *rmaPort) forgetMemory(key memoryKey) {
	p.tx.pause()
	defer p.tx.resume()
	delete(p.tlb.all, key)
	for i := range p.tlb.last {
		if p.tlb.last[i].key == key {
			p.tlb.last[i].mem = nil
		}
	}
}

// exportMemory answers a peer that requests the memory of a window.
func (n *Node) exportMemory(p *peer, a fabric.NLA, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := message{kind: msgImported, a: uint32(fabric.FaultStale), c: uint64(id)}
	owner, rights, ok := n.atu.Table().Memory(a)
	if m := n.memories[id]; ok && owner == id && m != nil {
		if rights == 0 {
			answer.a = uint32(fabric.FaultRights)
		} else {
			answer.a, answer.d = 0, uint64(len(m.m.b))
			if m.most&fabric.RemoteWrite != 0 {
				answer.e = 1
			}
			m.holders[p] = true
			p.send(answer, m.m.fd)
			return
		}
	}
	p.send(answer, -1)
}

// importMemory handles the peer's answer. It returns false if we had not asked the peer.
func (n *Node) importMemory(p *peer, answer message, fd int) bool {
	n.mu.Lock()
	mem := p.imports[uint32(answer.c)]
	if mem == nil || !mem.pending {
		n.mu.Unlock()
		return false
	}
	mem.pending = false
	if mem.fault = fabric.Fault(answer.a); mem.fault == fabric.FaultNone {
		size := int(answer.d)
		err := error(fabric.ErrMemory)
		if size > 0 && size <= fabric.MaxWindow {
			err = n.budget.reserve(size)
		}
		if err == nil {
			if mem.m, err = mapPeer(fd, size, answer.e == 1); err != nil {
				n.budget.release(size)
			}
		}
		if mem.writable = answer.e == 1; err != nil {
			mem.fault = fabric.FaultMemory
		}
	}
	waiters := mem.waiters
	mem.waiters = nil
	n.mu.Unlock()
	for _, w := range waiters {
		w.tx.tryAgain()
	}
	return true
}

// freedMemory unmaps a memory that its owner has freed.
func (n *Node) freedMemory(p *peer, id uint32) {
	n.mu.Lock()
	mem := p.imports[id]
	if mem == nil || mem.pending { // the answer will report that it is gone
		n.mu.Unlock()
		return
	}
	delete(p.imports, id)
	ports := n.rmaPorts()
	n.mu.Unlock()
	for _, w := range ports {
		w.forgetMemory(memoryKey{p.channel, id})
	}
	n.unmapImported(mem)
}

func (n *Node) unmapImported(mem *imported) {
	if size := len(mem.m.b); size > 0 {
		mem.m.unmap()
		n.budget.release(size)
	}
}
