package emu

import (
	"cmp"
	"fmt"
	"slices"

	"exnet/fabric"
)

var _ fabric.Node = (*node)(nil)

const (
	// groupAll is the group that no node can leave.
	groupAll uint64 = 1 << fabric.GroupAll

	// memoryMax bounds one allocation to what an int and a test machine can hold.
	memoryMax = 4 << 30
)

type node struct {
	net        *Network
	id         fabric.NodeID
	open       bool
	done       chan struct{}
	velo       [fabric.VPIDCount]*veloPort
	rma        [fabric.VPIDCount]*rmaPort
	interrupts []*interrupt
	watchers   []*watcher

	atu      *fabric.ATU
	memories []*memory // the index is the memory's name in the ATU
	windows  map[int]*window

	registers [fabric.RegisterCount]uint64
	groups    uint64                   // membership
	known     map[fabric.NodeID]uint64 // groups of the peers, as far as known
}

func (n *Network) newNode(id fabric.NodeID) *node {
	m := &node{
		net: n, id: id, open: true, done: make(chan struct{}),
		atu:     fabric.NewATU(make([]uint64, fabric.ATUWords), 1),
		windows: make(map[int]*window),
		groups:  groupAll,
		known:   make(map[fabric.NodeID]uint64),
	}
	n.nodes[id] = m
	for _, o := range n.others(id) {
		m.known[o.id] = o.groups
		o.known[id] = m.groups
		o.tell(fabric.Event{Node: id, Joined: true})
	}
	return m
}

// count adds to a counter of a node, if the node exists.
func (n *Network) count(id fabric.NodeID, r fabric.Register) {
	if m := n.nodes[id]; m != nil {
		m.registers[r]++
	}
}

func (m *node) lock() func() {
	m.net.mu.Lock()
	return m.net.mu.Unlock
}

// closed returns the error of operations on a closed node.
func (m *node) closed(what string) error {
	return fmt.Errorf("emu: %s: node %d is closed: %w", what, m.id, fabric.ErrClosed)
}

func (m *node) ID() fabric.NodeID { return m.id }

func (m *node) Peers() []fabric.NodeID {
	defer m.lock()()
	if !m.open {
		return nil
	}
	var ids []fabric.NodeID
	for _, o := range m.net.others(m.id) {
		ids = append(ids, o.id)
	}
	return ids
}

func (m *node) NewInterrupt() (fabric.Interrupt, error) {
	defer m.lock()()
	if !m.open {
		return nil, m.closed("new interrupt")
	}
	i := &interrupt{node: m, signal: make(chan struct{}, 1)}
	m.interrupts = append(m.interrupts, i)
	return i, nil
}

// own checks that an interrupt is nil or belongs to this node.
func (m *node) own(i fabric.Interrupt) (*interrupt, error) {
	if i == nil {
		return nil, nil
	}
	if own, ok := i.(*interrupt); ok && own.node == m {
		return own, nil
	}
	return nil, fmt.Errorf("emu: open port: the interrupt is not of node %d: %w", m.id, fabric.ErrRange)
}

func (m *node) OpenVELO(v fabric.VPID, irq fabric.PortInterrupts) (fabric.VELO, error) {
	defer m.lock()()
	v, err := vpid(m, fabric.UnitVELO, v, func(v fabric.VPID) bool { return m.velo[v] != nil })
	if err != nil {
		return nil, err
	}
	rx, err := m.own(irq.Receive)
	if err != nil {
		return nil, err
	}
	tx, err := m.own(irq.Transmit)
	if err != nil {
		return nil, err
	}
	m.velo[v] = newVELOPort(m, v, rx, tx)
	return m.velo[v], nil
}

func (m *node) OpenRMA(v fabric.VPID, irq fabric.PortInterrupts) (fabric.RMA, error) {
	defer m.lock()()
	v, err := vpid(m, fabric.UnitRMA, v, func(v fabric.VPID) bool { return m.rma[v] != nil })
	if err != nil {
		return nil, err
	}
	rx, err := m.own(irq.Receive)
	if err != nil {
		return nil, err
	}
	tx, err := m.own(irq.Transmit)
	if err != nil {
		return nil, err
	}
	m.rma[v] = newRMAPort(m, v, rx, tx)
	return m.rma[v], nil
}

// vpid chooses or checks the VPID of a port to be opened.
func vpid(m *node, u fabric.Unit, v fabric.VPID, taken func(fabric.VPID) bool) (fabric.VPID, error) {
	if !m.open {
		return 0, m.closed("open port")
	}
	if v == fabric.VPIDAny {
		for v = 0; v.Valid() && taken(v); v++ {
		}
		if !v.Valid() {
			return 0, fmt.Errorf("emu: open %v port: all %d VPIDs of node %d are open, close one: %w", u, fabric.VPIDCount, m.id, fabric.ErrInUse)
		}
	}
	if !v.Valid() {
		return 0, fmt.Errorf("emu: open %v port %d: VPIDs are 0 to %d: %w", u, v, fabric.VPIDCount-1, fabric.ErrRange)
	}
	if taken(v) {
		return 0, fmt.Errorf("emu: open %v port %d of node %d: close it first or take another VPID: %w", u, v, m.id, fabric.ErrInUse)
	}
	return v, nil
}

func (m *node) Join(g fabric.Group) error {
	defer m.lock()()
	if !g.Valid() {
		return fmt.Errorf("emu: join group %d: groups are 0 to %d: %w", g, fabric.GroupCount-1, fabric.ErrRange)
	}
	return m.setGroups("join", m.groups|1<<g)
}

func (m *node) Leave(g fabric.Group) error {
	defer m.lock()()
	if !g.Valid() || g == fabric.GroupAll {
		return fmt.Errorf("emu: leave group %d: groups that can be left are 0 to %d: %w", g, fabric.GroupAll-1, fabric.ErrRange)
	}
	return m.setGroups("leave", m.groups&^(1<<g))
}

// setGroups sends the new membership to every peer.
func (m *node) setGroups(what string, groups uint64) error {
	if !m.open {
		return m.closed(what)
	}
	m.groups = groups | groupAll
	word := m.groups
	for _, o := range m.net.others(m.id) {
		m.net.link(m.id, o.id).put(&parcel{what: "groups", size: groupsPacket, lost: func() {}, arrive: func() {
			if m.net.nodes[m.id] == m {
				o.known[m.id] = word
			}
		}})
	}
	return nil
}

func (m *node) Members(g fabric.Group) []fabric.NodeID {
	defer m.lock()()
	if !g.Valid() || !m.open {
		return nil
	}
	ids := m.members(g)
	if m.groups>>g&1 == 1 {
		ids = append(ids, m.id)
		slices.Sort(ids)
	}
	return ids
}

// members returns the peers in a group, as far as known here, in ID order.
func (m *node) members(g fabric.Group) []fabric.NodeID {
	var ids []fabric.NodeID
	for id, groups := range m.known {
		if groups>>g&1 == 1 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cmp.Compare[fabric.NodeID])
	return ids
}

func (m *node) ReadRegister(r fabric.Register) (uint64, error) {
	defer m.lock()()
	if r >= fabric.RegisterCount {
		return 0, fmt.Errorf("emu: read %v of node %d: no such register: %w", r, m.id, fabric.ErrRange)
	}
	if !m.open {
		return 0, m.closed("read register")
	}
	return m.register(r), nil
}

func (m *node) WriteRegister(r fabric.Register, v uint64) error {
	defer m.lock()()
	switch {
	case r >= fabric.RegisterCount:
		return fmt.Errorf("emu: write %v of node %d: no such register: %w", r, m.id, fabric.ErrRange)
	case !r.Writable():
		return fmt.Errorf("emu: write %v of node %d: it is read-only: %w", r, m.id, fabric.ErrRights)
	case !m.open:
		return m.closed("write register")
	}
	m.setRegister(r, v)
	return nil
}

func (m *node) register(r fabric.Register) uint64 {
	switch r {
	case fabric.RegNodeID:
		return uint64(m.id)
	case fabric.RegGroups:
		return m.groups
	case fabric.RegPeers:
		return uint64(len(m.known))
	}
	return m.registers[r]
}

// setRegister writes a writable register.
func (m *node) setRegister(r fabric.Register, v uint64) {
	if r == fabric.RegGroups {
		m.setGroups("write register", v)
	} else {
		m.registers[r] = v
	}
}

func (m *node) Done() <-chan struct{} { return m.done }

func (m *node) Close() error {
	defer m.lock()()
	m.leave(false)
	return nil
}

// leave ends the node. What it sent is on its way and arrives; what is sent to it does not.
func (m *node) leave(crashed bool) {
	if !m.open {
		return
	}
	m.open = false
	close(m.done)
	delete(m.net.nodes, m.id)
	for v := range m.velo {
		m.velo[v].close()
		m.rma[v].close()
	}
	for _, i := range m.interrupts {
		i.close()
	}
	for _, w := range m.watchers {
		w.stop()
	}
	clear(m.known)
	for _, o := range m.net.others(m.id) {
		delete(o.known, m.id)
		if crashed {
			o.registers[fabric.RegPeersLost]++
		}
		o.tell(fabric.Event{Node: m.id, Crashed: crashed})
	}
}
