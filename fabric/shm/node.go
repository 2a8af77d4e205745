package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
)

// Config determines which fabric to attach to, and how.
type Config struct {
	// Dir is the fabric directory; empty means DefaultDir.
	Dir string
	// Node is the requested ID, or fabric.NodeAny for the lowest free one.
	Node fabric.NodeID
	// Memory limits the shared memory that the node may touch, in bytes. 0 means half of what
	// the machine, the cgroup and RLIMIT_AS allow.
	Memory int64
}

// A Node is an attachment to a fabric directory; it implements fabric.Node.
//
// Locks, in the order in which they are taken: a port half's gate by its owner, mu, an interrupt's
// mu, a channel's doorMu, a peer's sendMu. A goroutine that pauses a gate holds none of them, but
// may then take mu.
type Node struct {
	id       fabric.NodeID
	dir      *directory
	lock     *os.File
	listener *net.UnixListener
	region   region
	atu      *fabric.ATU
	budget   *budget
	self     *channel
	wg       sync.WaitGroup
	events   eventQueue
	done     chan struct{}

	// peerList is a copy of peers in ID order, for multicasts.
	peerList   atomic.Pointer[[]*peer]
	interrupts [maxInterrupts]atomic.Pointer[interrupt]

	greeting chan struct{} // one entry for each connection that has not introduced itself yet

	mu          sync.Mutex
	closed      bool
	connections map[*net.UnixConn]bool
	peers       map[fabric.NodeID]*peer
	ports       [2][fabric.VPIDCount]*port
	rma         map[*port]*rmaPort
	memories    map[uint32]*memory
	lastMemory  uint32
	lastSerial  uint32
	draining    []*window
	drains      bool
}

var _ fabric.Node = (*Node)(nil)

// Attach joins a fabric, and makes its directory if necessary. It returns when all nodes that were
// attached before are connected, or after a second.
func Attach(c Config) (*Node, error) {
	if c.Dir == "" {
		c.Dir = DefaultDir()
	}
	if c.Node != fabric.NodeAny && c.Node > fabric.MaxNodeID {
		return nil, fmt.Errorf("attach: node ID %d is above %d: %w", c.Node, fabric.MaxNodeID, fabric.ErrRange)
	}
	dir, unlock, err := enter(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	n, others, err := attachLocked(c, dir)
	unlock()
	if err != nil {
		return nil, fmt.Errorf("attach: %w", errors.Join(err, dir.discard()))
	}
	n.wg.Go(n.accept)
	n.wg.Go(n.events.run)
	var met sync.WaitGroup
	for _, id := range others {
		met.Add(1)
		n.wg.Go(func() { n.connect(id, met.Done) })
	}
	all := make(chan struct{})
	n.wg.Go(func() { met.Wait(); close(all) })
	select {
	case <-all:
	case <-time.After(time.Second):
	}
	return n, nil
}

// enter opens a fabric directory and locks it. If the directory is removed in between, by a node
// that made it and failed, enter makes it again.
func enter(path string) (dir *directory, unlock func(), err error) {
	const tries = 10 // each try meets another failure
	for range tries {
		if dir, err = openDirectory(path); err != nil {
			return nil, nil, err
		}
		if unlock, err = dir.lockAttach(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return dir, unlock, err
}

// attachLocked does what must happen before the next node may attach. It claims the ID and listens
// on the socket. Then later nodes find us and we find the earlier ones, so each pair connects once.
func attachLocked(c Config, dir *directory) (_ *Node, others []fabric.NodeID, err error) {
	id, lock, err := dir.claim(c.Node)
	if err != nil {
		return nil, nil, err
	}
	n := &Node{id: id, dir: dir, lock: lock, budget: newBudget(c.Memory), peers: map[fabric.NodeID]*peer{},
		rma: map[*port]*rmaPort{}, memories: map[uint32]*memory{}, done: make(chan struct{}),
		greeting: make(chan struct{}, maxGreetings), connections: map[*net.UnixConn]bool{}}
	n.events.init()
	n.peerList.Store(new([]*peer))
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if n.region.mapping, err = newMemfd("exnet-node", nodeSize, false); err != nil {
		return nil, nil, err
	}
	var first [2]byte // different in each life of the node
	rand.Read(first[:])
	n.atu = fabric.NewATU(n.region.atu(), binary.NativeEndian.Uint16(first[:]))
	*n.region.register(fabric.RegNodeID) = uint64(id)
	*n.region.groups() = 1 << fabric.GroupAll
	me := &peer{n: n, id: id, region: n.region}
	if n.self, err = n.newChannel(me); err != nil {
		return nil, nil, err
	}
	n.self.rx.Store(&n.self.tx)
	path := dir.socket(id)
	if n.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
		return nil, nil, limitError(err)
	}
	n.listener.SetUnlinkOnClose(false) // abandon does that, under the lock
	if err = os.Chmod(path, dir.fileMode()); err != nil {
		return nil, nil, err
	}
	ids, err := dir.ids()
	if err != nil {
		return nil, nil, err
	}
	for _, other := range ids {
		if _, live := dir.holder(other); other != id && live {
			others = append(others, other)
		}
	}
	return n, others, nil
}

// release frees what does not depend on peers.
func (n *Node) release() {
	if n.listener != nil {
		n.listener.Close()
	}
	if n.self != nil {
		n.self.close()
	}
	n.region.unmap()
	n.dir.abandon(n.id, n.lock)
}

// ID implements fabric.Node.
func (n *Node) ID() fabric.NodeID { return n.id }

// Done implements fabric.Node.
func (n *Node) Done() <-chan struct{} { return n.done }

// Dir returns the fabric directory.
func (n *Node) Dir() string { return n.dir.path }

// Peers implements fabric.Node.
func (n *Node) Peers() []fabric.NodeID {
	var ids []fabric.NodeID
	for _, p := range *n.peerList.Load() {
		ids = append(ids, p.id)
	}
	return ids
}

// Members implements fabric.Node.
func (n *Node) Members(g fabric.Group) []fabric.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []fabric.NodeID
	if n.closed || !g.Valid() {
		return nil
	}
	for _, p := range n.allPeers() {
		if atomic.LoadUint64(p.region.groups())>>g&1 == 1 {
			ids = append(ids, p.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// allPeers returns the peers and ourselves. The caller holds mu.
func (n *Node) allPeers() []*peer { return append([]*peer{n.self.peer}, *n.peerList.Load()...) }

// peersChanged publishes the table of peers. The caller holds mu.
func (n *Node) peersChanged() {
	list := make([]*peer, 0, len(n.peers))
	for _, p := range n.peers {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *peer) int { return int(a.id) - int(b.id) })
	n.peerList.Store(&list)
	atomic.StoreUint64(n.region.register(fabric.RegPeers), uint64(len(list)))
}

// NewInterrupt implements fabric.Node.
func (n *Node) NewInterrupt() (fabric.Interrupt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fabric.ErrClosed
	}
	for k := range n.interrupts {
		if n.interrupts[k].Load() != nil {
			continue
		}
		i, err := newInterrupt(n, k)
		if err != nil {
			return nil, err
		}
		for _, p := range n.peers {
			if p.channel == nil {
				continue
			}
			if err := i.connect(p.channel); err != nil {
				i.shut()
				return nil, fmt.Errorf("interrupt: %w", err)
			}
		}
		n.interrupts[k].Store(i)
		return i, nil
	}
	return nil, fmt.Errorf("interrupt: all %d are in use; close one, or share it between ports: %w", maxInterrupts, fabric.ErrMemory)
}

// raise wakes one of our own interrupts.
func (n *Node) raise(irq int) {
	if i := n.interrupts[irq].Load(); i != nil {
		i.nudge()
	}
}

// OpenVELO implements fabric.Node.
func (n *Node) OpenVELO(v fabric.VPID, irq fabric.PortInterrupts) (fabric.VELO, error) {
	p := &veloPort{}
	if err := n.openPort(&p.port, &p.rx, fabric.UnitVELO, v, irq); err != nil {
		return nil, err
	}
	return p, nil
}

// OpenRMA implements fabric.Node.
func (n *Node) OpenRMA(v fabric.VPID, irq fabric.PortInterrupts) (fabric.RMA, error) {
	p := &rmaPort{windows: map[*window]bool{}, tlb: tlb{all: map[memoryKey]*imported{}}}
	if err := n.openPort(&p.port, p, fabric.UnitRMA, v, irq); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fabric.ErrClosed
	}
	n.rma[&p.port] = p
	return p, nil
}

// rmaPorts returns the open RMA ports. The caller holds mu.
func (n *Node) rmaPorts() []*rmaPort {
	list := make([]*rmaPort, 0, len(n.rma))
	for _, p := range n.rma {
		list = append(list, p)
	}
	return list
}

// openPorts returns the open ports of both units. The caller holds mu.
func (n *Node) openPorts() []*port {
	var list []*port
	for u := range n.ports {
		for _, p := range n.ports[u] {
			if p != nil {
				list = append(list, p)
			}
		}
	}
	return list
}
