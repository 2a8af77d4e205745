package emu

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"exnet/fabric"
)

// Config configures a network.
type Config struct {
	Seed  uint64    // of all random numbers
	Trace io.Writer // gets a line per event on a link; must not use the network; may be nil
}

// A Network is a fabric with its faults. Its methods may be called from anywhere, even from
// functions given to At.
type Network struct {
	cfg Config

	mu     sync.Mutex // guards the fields below, and everything in the package
	closed bool
	clock  clock
	nodes  map[fabric.NodeID]*node
	links  map[[2]fabric.NodeID]*link
	rules  []rule // settings for links to come
}

// A rule is a lasting setting, also for links that do not exist yet.
type rule struct {
	from, to fabric.NodeID
	setting  Setting
}

// New makes a network without nodes. Links are perfect until set otherwise:
// no latency, unlimited bandwidth, no errors.
func New(cfg Config) *Network {
	return &Network{
		cfg:   cfg,
		clock: clock{start: time.Now()},
		nodes: make(map[fabric.NodeID]*node),
		links: make(map[[2]fabric.NodeID]*link),
	}
}

// Attach makes a node with the given ID, or with the lowest free one for fabric.NodeAny. Its errors
// wrap fabric.ErrInUse or fabric.ErrClosed.
func (n *Network) Attach(id fabric.NodeID) (fabric.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("emu: attach node: the network is closed: %w", fabric.ErrClosed)
	}
	if id == fabric.NodeAny {
		for id = 0; n.nodes[id] != nil; id++ {
		}
	}
	if n.nodes[id] != nil || id > fabric.MaxNodeID {
		return nil, fmt.Errorf("emu: attach node %d: take another ID or close that node first: %w", id, fabric.ErrInUse)
	}
	return n.newNode(id), nil
}

// others returns the attached nodes except one, in ID order.
func (n *Network) others(id fabric.NodeID) []*node {
	var ns []*node
	for _, m := range n.nodes {
		if m.id != id {
			ns = append(ns, m)
		}
	}
	slices.SortFunc(ns, func(a, b *node) int { return cmp.Compare(a.id, b.id) })
	return ns
}

// At calls f when d has passed. f must not block.
func (n *Network) At(d time.Duration, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.schedule(n.clock.now()+max(span(d), 1), rankScript, func() {
		n.mu.Unlock()
		defer n.mu.Lock()
		f()
	})
}

// Crash makes a node vanish. Peers see that it left without saying so, and what it had not put on
// the wire is lost. If there is no such node, nothing happens.
func (n *Network) Crash(id fabric.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[id]
	if m == nil {
		return
	}
	m.leave(true)
	for _, l := range n.matching(id, fabric.NodeAny) {
		l.abandon(fabric.FaultNode)
	}
}

// Close closes all nodes and stops time.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.others(fabric.NodeAny) {
		m.leave(false)
	}
	n.closed = true
	if n.clock.timer != nil {
		n.clock.timer.Stop()
	}
	n.clock.queue = nil
}

// link returns the link between two nodes, which need not be attached.
func (n *Network) link(from, to fabric.NodeID) *link {
	l := n.links[[2]fabric.NodeID{from, to}]
	if l == nil {
		l = newLink(n, from, to)
		n.links[[2]fabric.NodeID{from, to}] = l
		for _, r := range n.rules {
			if r.matches(l) {
				r.setting.apply(l)
			}
		}
	}
	return l
}

// matches reports whether the rule applies to a link. NodeAny stands for every node. A node's link
// to itself matches only a rule that names the node.
func (r rule) matches(l *link) bool {
	if r.from == fabric.NodeAny || r.to == fabric.NodeAny {
		return l.from != l.to && (r.from == fabric.NodeAny || r.from == l.from) && (r.to == fabric.NodeAny || r.to == l.to)
	}
	return r.from == l.from && r.to == l.to
}

// matching returns the existing links that match a pattern, in order.
func (n *Network) matching(from, to fabric.NodeID) []*link {
	var ls []*link
	for l := range maps.Values(n.links) {
		if (rule{from: from, to: to}).matches(l) {
			ls = append(ls, l)
		}
	}
	slices.SortFunc(ls, func(a, b *link) int { return cmp.Compare(a.rank, b.rank) })
	return ls
}
