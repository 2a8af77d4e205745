package shm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"

	"exnet/fabric"
)

// The register file is in the node region. Peers read it there directly. To write the writable
// registers, they send a control message to the owner.

// transmitRegisters and receiveRegisters are sums over a unit's ports.
var (
	transmitRegisters = map[fabric.Register]struct {
		unit  fabric.Unit
		field func(*transmitCounters) *uint64
	}{
		fabric.RegVELOSent:            {fabric.UnitVELO, func(c *transmitCounters) *uint64 { return &c.sent }},
		fabric.RegVELOSentBytes:       {fabric.UnitVELO, func(c *transmitCounters) *uint64 { return &c.bytes }},
		fabric.RegVELOFull:            {fabric.UnitVELO, func(c *transmitCounters) *uint64 { return &c.full }},
		fabric.RegVELOMulticastCopies: {fabric.UnitVELO, func(c *transmitCounters) *uint64 { return &c.copies }},
		fabric.RegVELOMulticastLost:   {fabric.UnitVELO, func(c *transmitCounters) *uint64 { return &c.lost }},
		fabric.RegRMAPuts:             {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.puts }},
		fabric.RegRMAPutBytes:         {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.putBytes }},
		fabric.RegRMAGets:             {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.gets }},
		fabric.RegRMAGetBytes:         {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.getBytes }},
		fabric.RegRMAImmediate:        {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.immediate }},
		fabric.RegRMAPackets:          {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.packets }},
		fabric.RegRMAFull:             {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.full }},
		fabric.RegTLBHits:             {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.tlbHits }},
		fabric.RegTLBMisses:           {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.tlbMisses }},
		fabric.RegATUFaults:           {fabric.UnitRMA, func(c *transmitCounters) *uint64 { return &c.atuFaults }},
	}
	receiveRegisters = map[fabric.Register]struct {
		unit  fabric.Unit
		field func(*receiveCounters) *uint64
	}{
		fabric.RegVELOReceived:      {fabric.UnitVELO, func(c *receiveCounters) *uint64 { return &c.received }},
		fabric.RegVELOReceivedBytes: {fabric.UnitVELO, func(c *receiveCounters) *uint64 { return &c.bytes }},
		fabric.RegVELODiscarded:     {fabric.UnitVELO, func(c *receiveCounters) *uint64 { return &c.discarded }},
		fabric.RegRMARequester:      {fabric.UnitRMA, func(c *receiveCounters) *uint64 { return &c.requester }},
		fabric.RegRMAResponder:      {fabric.UnitRMA, func(c *receiveCounters) *uint64 { return &c.responder }},
		fabric.RegRMACompleter:      {fabric.UnitRMA, func(c *receiveCounters) *uint64 { return &c.completer }},
		fabric.RegRMAFaults:         {fabric.UnitRMA, func(c *receiveCounters) *uint64 { return &c.faults }},
		fabric.RegRMADiscarded:      {fabric.UnitRMA, func(c *receiveCounters) *uint64 { return &c.discarded }},
	}
)

// readRegister reads a register of the node that owns the region.
func readRegister(r *region, reg fabric.Register) uint64 {
	if t, ok := transmitRegisters[reg]; ok {
		return r.sumTransmit(t.unit, t.field)
	}
	if t, ok := receiveRegisters[reg]; ok {
		return r.sumReceive(t.unit, t.field)
	}
	switch reg {
	case fabric.RegGroups:
		return atomic.LoadUint64(r.groups())
	case fabric.RegInterrupts:
		return sumBoth(r, func(c *transmitCounters) *uint64 { return &c.raised })
	case fabric.RegInterruptsSuppressed:
		return sumBoth(r, func(c *transmitCounters) *uint64 { return &c.suppressed })
	}
	return atomic.LoadUint64(r.register(reg))
}

func sumBoth(r *region, field func(*transmitCounters) *uint64) uint64 {
	return r.sumTransmit(fabric.UnitVELO, field) + r.sumTransmit(fabric.UnitRMA, field)
}

// writeRegister writes the enabled bytes of a writable register. The caller holds mu.
func (n *Node) writeRegister(reg fabric.Register, data uint64, enable uint8) {
	w := n.region.register(reg)
	if reg == fabric.RegGroups {
		w = n.region.groups()
	}
	v := fabric.MergeImmediate(atomic.LoadUint64(w), data, enable)
	if reg == fabric.RegGroups {
		v |= 1 << fabric.GroupAll
	}
	atomic.StoreUint64(w, v)
}

// ReadRegister implements fabric.Node.
func (n *Node) ReadRegister(reg fabric.Register) (uint64, error) {
	if reg >= fabric.RegisterCount {
		return 0, fmt.Errorf("%v: %w", reg, fabric.ErrRange)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, fabric.ErrClosed
	}
	return readRegister(&n.region, reg), nil
}

// WriteRegister implements fabric.Node.
func (n *Node) WriteRegister(reg fabric.Register, v uint64) error {
	switch {
	case reg >= fabric.RegisterCount:
		return fmt.Errorf("%v: %w", reg, fabric.ErrRange)
	case !reg.Writable():
		return fmt.Errorf("register %v is read-only: %w", reg, fabric.ErrRights)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fabric.ErrClosed
	}
	n.writeRegister(reg, v, 0xff)
	return nil
}

// Join implements fabric.Node.
func (n *Node) Join(g fabric.Group) error { return n.setGroup(g, true) }

// Leave implements fabric.Node.
func (n *Node) Leave(g fabric.Group) error { return n.setGroup(g, false) }

func (n *Node) setGroup(g fabric.Group, member bool) error {
	if !g.Valid() || g == fabric.GroupAll && !member {
		return fmt.Errorf("group %d: %w", g, fabric.ErrRange)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fabric.ErrClosed
	}
	if member {
		atomic.OrUint64(n.region.groups(), 1<<g)
	} else {
		atomic.AndUint64(n.region.groups(), ^(uint64(1) << g))
	}
	return nil
}

// moveRegister does an operation on the target's register file.
func (p *rmaPort) moveRegister(f *txFlow, d *fabric.RMADescriptor, in *sink, ours *imported, here fabric.Translation) fabric.Fault {
	reg, ok := d.Remote.Register()
	switch {
	case !ok || d.Command == fabric.Get && d.Length != 8:
		return fabric.FaultRange
	case d.Command == fabric.Put || d.Command == fabric.ImmediatePut && !reg.Writable():
		return fabric.FaultRights
	}
	if d.Command == fabric.Get {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], readRegister(&f.ch.peer.region, reg))
		if in != nil {
			in.take(b[:])
			return fabric.FaultNone
		}
		return copyOut(ours, here, b[:])
	}
	if f.ch == p.n.self {
		p.n.mu.Lock()
		p.n.writeRegister(reg, d.Data, d.Enable)
		p.n.mu.Unlock()
	} else {
		to := f.ch.peer
		p.n.mu.Lock() // counted in the order in which they are sent
		p.writing, p.writingUntil = to, to.registersSent.Add(1)
		to.send(message{kind: msgRegister, a: uint32(reg), b: d.Data, c: uint64(d.Enable),
			d: uint64(p.tx.self.VPID) | uint64(d.To.VPID)<<16 | uint64(d.Mask)<<32}, -1)
		p.n.mu.Unlock()
	}
	return fabric.FaultNone
}

// written reports whether the last register write has been answered. If not, the transmit interrupt
// is raised when it is.
func (p *rmaPort) written() bool {
	p.tx.waits.Store(true)
	if p.writing.registersDone.Load() < p.writingUntil && !p.writing.gone.Load() {
		return false
	}
	p.writing = nil // waits stays set: it may be for a memory, too
	return true
}

// registerDone handles the owner's answer. It returns false if we had not asked.
func (n *Node) registerDone(p *peer) bool {
	if p.registersDone.Add(1) > p.registersSent.Load() {
		return false
	}
	n.mu.Lock()
	ports := n.rmaPorts()
	n.mu.Unlock()
	for _, r := range ports {
		r.tx.tryAgain()
	}
	return true
}

// copyOut copies bytes to where a translation points.
func copyOut(dst *imported, to fabric.Translation, b []byte) fabric.Fault {
	for {
		at, n, ok := to.Next()
		if !ok {
			return fabric.FaultNone
		}
		piece, ok := dst.m.slice(at, n)
		if !ok {
			return fabric.FaultRange
		}
		b = b[copy(piece, b):]
	}
}

// registerWritten applies a peer's immediate PUT to one of our registers.
func (n *Node) registerWritten(p *peer, m message) {
	src, dst, mask := fabric.VPID(m.d&0xffff), fabric.VPID(m.d>>16&0xffff), fabric.Mask(m.d>>32)
	n.mu.Lock()
	n.writeRegister(fabric.Register(m.a), m.b, uint8(m.c))
	var to *rmaPort
	for _, r := range n.rmaPorts() {
		if r.tx.self.VPID == dst {
			to = r
		}
	}
	n.mu.Unlock()
	p.send(message{kind: msgRegistered}, -1)
	if to == nil || mask&fabric.NotifyCompleter == 0 {
		return
	}
	count := bits.OnesCount64(m.c)
	note := fabric.Notification{Command: fabric.ImmediatePut, Kind: fabric.KindCompleter,
		Peer: fabric.Address{Node: p.id, VPID: src}, Local: fabric.RegisterNLA(fabric.Register(m.a)), Count: count}
	if to.notices.add(&to.tx, note) && to.rx.irq != nil {
		to.rx.irq.nudge()
	}
}
