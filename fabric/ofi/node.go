package ofi

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// A Node implements fabric.Node. One lock, mu, guards all of it but what is
// atomic; no call below it blocks.
type Node struct {
	config   Config
	id       fabric.NodeID
	instance uint64 // another after each start

	mu           sync.Mutex
	engine       engine
	waitFD       int
	localRegions bool
	keySize      int
	dials        bool // the provider listens at a TCP port, whose refusal means death
	dialer       net.Dialer
	life         context.Context
	endLife      context.CancelFunc
	now          time.Time // of the last drive
	frames       frames
	rx           [][]byte
	slab         libfabric.Region // of frames and rx
	memory       []byte           // of both
	unposted     []int            // receive buffers that the provider did not take
	underWay     int              // operations that the provider has not completed
	mostUnderWay int
	refused      bool // the provider has refused something since the last drive
	urged        uint
	peers        map[fabric.NodeID]*peer
	list         []*peer // all, in ID order
	busy         []*peer
	nowhere      *peer // stands for nodes that are not attached
	veloPorts    [fabric.VPIDCount]*veloPort
	rmaPorts     [fabric.VPIDCount]*rmaPort
	wanting      []interface{ hasRoom() bool }
	interrupts   map[*interrupt]bool
	ops          []operation
	freeOps      []int32
	atu          *fabric.ATU
	windows      [fabric.Windows]*window
	memories     map[uint32]*memory
	lastMemory   uint32
	flushing     flushing // answers that peers owe
	groups       uint64
	scratch      uint64
	closing      bool // no new sessions
	closed       bool // ports are
	stopped      bool // the engine is
	closedFlag   atomic.Bool
	progress     progressThread
	watchers     watchers
	metSomebody  chan struct{} // something has changed that Attach may wait for
	done         chan struct{}
	gone         chan struct{}
	wg           sync.WaitGroup
	registers    [fabric.RegisterCount]atomic.Uint64
}

var _ fabric.Node = (*Node)(nil)

func (n *Node) count(r fabric.Register, k uint64)   { n.registers[r].Add(k) }
func (n *Node) uncount(r fabric.Register, k uint64) { n.registers[r].Add(-k) }
func (n *Node) isClosed() bool                      { return n.closedFlag.Load() }

func (n *Node) errClosed(what string) error {
	return fmt.Errorf("%s: node %d: %w", what, n.id, fabric.ErrClosed)
}

// room tells the ports that were refused something to try again.
func (n *Node) room(*peer) {
	left := n.wanting[:0]
	for _, p := range n.wanting {
		if !p.hasRoom() {
			left = append(left, p)
		}
	}
	n.wanting = left
}

// met wakes Attach.
func (n *Node) met() {
	select {
	case n.metSomebody <- struct{}{}:
	default:
	}
}

// ID implements fabric.Node.
func (n *Node) ID() fabric.NodeID { return n.id }

// Peers implements fabric.Node.
func (n *Node) Peers() (ids []fabric.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.list {
		if p.up && !p.self {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// Members implements fabric.Node.
func (n *Node) Members(g fabric.Group) (ids []fabric.NodeID) {
	if !g.Valid() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.list {
		groups := p.groups
		if p.self {
			groups = n.groups
		}
		if p.up && member(g, groups) {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// Join implements fabric.Node.
func (n *Node) Join(g fabric.Group) error {
	return n.change(g, func(m uint64) uint64 { return m | 1<<g })
}

// Leave implements fabric.Node.
func (n *Node) Leave(g fabric.Group) error {
	if g == fabric.GroupAll {
		return fmt.Errorf("leave group %d: every node is in it: %w", g, fabric.ErrRange)
	}
	return n.change(g, func(m uint64) uint64 { return m &^ (1 << g) })
}

func (n *Node) change(g fabric.Group, f func(uint64) uint64) error {
	if !g.Valid() {
		return fmt.Errorf("group %d is above %d: %w", g, fabric.GroupCount-1, fabric.ErrRange)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.errClosed("change groups")
	}
	n.setGroups(f(n.groups))
	return nil
}

func (n *Node) setGroups(groups uint64) {
	n.groups = groups | 1<<fabric.GroupAll
	for _, p := range n.list {
		if p.up && !p.self {
			p.put(record{kind: recGroups, x: n.groups})
		}
	}
	n.progress.kick()
	if !n.stopped {
		for _, p := range n.list {
			if p.up && p.posts == 0 && !p.self {
				n.post(p)
			}
		}
	}
}

// ReadRegister implements fabric.Node.
func (n *Node) ReadRegister(r fabric.Register) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, n.errClosed("read register")
	}
	return n.readRegister(r)
}

func (n *Node) readRegister(r fabric.Register) (uint64, error) {
	switch {
	case r >= fabric.RegisterCount:
		return 0, fmt.Errorf("read %v: %w", r, fabric.ErrRange)
	case r == fabric.RegNodeID:
		return uint64(n.id), nil
	case r == fabric.RegGroups:
		return n.groups, nil
	case r == fabric.RegScratch:
		return n.scratch, nil
	}
	return n.registers[r].Load(), nil
}

// WriteRegister implements fabric.Node.
func (n *Node) WriteRegister(r fabric.Register, v uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return n.errClosed("write register")
	case r >= fabric.RegisterCount:
		return fmt.Errorf("write %v: %w", r, fabric.ErrRange)
	case !r.Writable():
		return fmt.Errorf("write %v: it is read-only: %w", r, fabric.ErrRights)
	}
	n.writeRegister(r, v)
	return nil
}

func (n *Node) writeRegister(r fabric.Register, v uint64) {
	if r == fabric.RegGroups {
		n.setGroups(v)
	} else {
		n.scratch = v
	}
}

// Done implements fabric.Node.
func (n *Node) Done() <-chan struct{} { return n.done }

// closePatience bounds how long Close waits for what was sent to be taken.
const closePatience = 3 * time.Second

// Close implements fabric.Node. What was sent arrives, where the peer takes it
// within closePatience.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		<-n.gone
		return nil
	}
	n.now = time.Now()
	n.drive()
	n.closing = true
	for v := range fabric.VPIDCount {
		if p := n.veloPorts[v]; p != nil {
			n.closeVELO(p)
		}
		if p := n.rmaPorts[v]; p != nil {
			n.closeRMA(p)
		}
	}
	n.closed = true
	n.closedFlag.Store(true)
	close(n.done)
	for i := range n.interrupts {
		i.close()
	}
	for _, p := range n.list {
		if p.up && !p.self {
			p.leave()
		}
	}
	end := time.Now().Add(closePatience)
	for n.anyUp() && time.Now().Before(end) {
		n.drive()
		n.mu.Unlock()
		time.Sleep(time.Millisecond / 4)
		n.mu.Lock()
	}
	n.stop()
	n.mu.Unlock()
	n.endLife()
	ringEventfd(n.progress.wakeFD)
	<-n.progress.done
	n.wg.Wait()
	n.mu.Lock()
	n.engine.Close()
	n.release()
	unix.Close(n.progress.wakeFD)
	n.mu.Unlock()
	n.watchers.close()
	close(n.gone)
	return nil
}

// leave says goodbye behind all that was sent. The session is over when the
// peer has acknowledged it.
func (p *peer) leave() {
	p.put(record{kind: recBye})
	p.leaving = true
	p.n.touch(p)
}

// anyUp reports whether a peer has not taken everything yet.
func (n *Node) anyUp() bool {
	return slices.ContainsFunc(n.list, func(p *peer) bool {
		return p.up && !p.self && (len(p.outbox) > 0 || p.open != none || p.session.acked < p.session.sealed || p.posts > 0)
	})
}

// stop ends everything but the engine: no operation is begun from now on.
func (n *Node) stop() {
	for _, p := range n.list {
		if !p.self {
			p.end(false)
		}
	}
	n.stopped = true
}

// release ends what the engine had, which is closed.
func (n *Node) release() {
	for i := range n.ops {
		if o := &n.ops[i]; o.used {
			o.posts = 0
			n.free(o)
		}
	}
	for _, w := range n.windows {
		if w != nil && !w.gone { // of nobody's port any more
			w.users = 0
			w.users++
			w.leaving = true
			w.drop()
		}
	}
	unix.Munmap(n.memory)
}
