package ofi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// Config says which fabric to attach to, and how.
type Config struct {
	Provider string        // tcp; others are untested
	Node     fabric.NodeID // or fabric.NodeAny for the lowest that is free and of this machine
	Members  []Member      // all nodes that may be attached
	Library  string        // of libfabric; empty for where the linker looks
	// Timeout is how long a host may be silent before its nodes count as dead.
	Timeout time.Duration // 0 means 10 s
}

const defaultTimeout = 10 * time.Second

func (c *Config) attachPatience() time.Duration { return time.Second }

func init() {
	fabric.AddBackend("ofi", func(p fabric.Place, id fabric.NodeID) (fabric.Node, error) {
		n, err := open(p, id)
		if err != nil {
			return nil, fmt.Errorf("fabric %v: %w", p, err)
		}
		return n, nil
	})
}

// open attaches as the text of [fabric.Open] says: the provider, and the
// options nodes (the file) and timeout.
func open(p fabric.Place, id fabric.NodeID) (*Node, error) {
	c := Config{Provider: p.Name, Node: id}
	for key := range p.Options {
		switch value := p.Options.Get(key); key {
		case "nodes":
			var err error
			if c.Members, err = ReadNodes(value); err != nil {
				return nil, err
			}
		case "timeout":
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Second {
				return nil, fmt.Errorf("the timeout %q is no time of at least 1s: %w", value, fabric.ErrRange)
			}
			c.Timeout = d
		default:
			return nil, fmt.Errorf("there is no option %q; nodes=FILE and timeout=10s are: %w", key, fabric.ErrRange)
		}
	}
	return Attach(c)
}

// Attach joins a fabric. It returns when it knows all nodes that are attached,
// or a second has passed.
func Attach(c Config) (*Node, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	prov, err := findProvider(c.Provider)
	if err != nil {
		return nil, err
	}
	if len(c.Members) == 0 {
		return nil, errors.New("ofi: nobody says which nodes there are; name a file of them (ofi:tcp?nodes=FILE)")
	}
	if err := checkMembers(c.Members); err != nil {
		return nil, fmt.Errorf("ofi: nodes: %w", err)
	}
	if err := libfabric.Load(c.Library); err != nil {
		return nil, fmt.Errorf("ofi: %w", err)
	}
	major, _ := libfabric.Version()
	e, own, err := listen(prov.engine(major), &c)
	if err != nil {
		return nil, err
	}
	n, err := start(c, e, e.Traits, own, prov.dials)
	if err != nil {
		e.Close()
		return nil, err
	}
	n.closeOnExec()
	if err := n.meet(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Sizes of an endpoint: 1 MiB of receive buffers, and as much that is under way.
const (
	receives = 256
	sends    = 256
	txFrames = 512 + reserved
)

// listen opens the endpoint of the node that was asked for.
func listen(engine string, c *Config) (*libfabric.Endpoint, fabric.NodeID, error) {
	found := false
	var last error
	for _, m := range c.Members {
		if c.Node != fabric.NodeAny && m.ID != c.Node {
			continue
		}
		found = true
		err := vacant(m.Address)
		if err == nil {
			var e *libfabric.Endpoint
			if e, err = libfabric.Open(libfabric.Settings{Provider: engine, Listen: m.Address, Receives: receives, Sends: sends}); err == nil {
				return e, m.ID, nil
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", fabric.ErrInUse, err)
		}
		last = fmt.Errorf("ofi: attach as node %d: %w", m.ID, err)
	}
	switch {
	case !found:
		return nil, 0, fmt.Errorf("ofi: node %d is not among the %d nodes of the fabric; add it to the file: %w", c.Node, len(c.Members), fabric.ErrNoNode)
	case c.Node == fabric.NodeAny:
		return nil, 0, fmt.Errorf("ofi: none of the %d nodes is free and of this machine: %w", len(c.Members), last)
	}
	return nil, 0, last
}

// vacant says why nobody can listen at an address, in words that the provider
// has not got.
func vacant(a netip.AddrPort) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(a))
	if err != nil {
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("another program, or another node with this ID, listens at %v (ss -tlnp shows it): %w", a, err)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("%v is no address of this machine (ip addr lists them): %w", a.Addr(), err)
		}
		return err
	}
	return l.Close()
}

// start makes a node of an engine, which it takes over unless it fails.
func start(c Config, e engine, t libfabric.Traits, own fabric.NodeID, dials bool) (*Node, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	n := &Node{
		config: c, id: own, instance: rand.Uint64() | 1, engine: e, waitFD: t.WaitFD,
		localRegions: t.LocalRegions, keySize: t.KeySize, mostUnderWay: t.Sends, dials: dials, now: time.Now(),
		peers: map[fabric.NodeID]*peer{}, interrupts: map[*interrupt]bool{}, memories: map[uint32]*memory{},
		groups: 1 << fabric.GroupAll, metSomebody: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
		atu: fabric.NewATU(make([]uint64, fabric.ATUWords), uint16(rand.Uint32())),
		ops: make([]operation, mostOperations),
	}
	for i := range n.ops {
		n.ops[i].at = int32(i)
		n.freeOps = append(n.freeOps, int32(i))
	}
	n.nowhere = n.newPeer(fabric.NodeAny, netip.AddrPort{})
	for _, m := range c.Members {
		p := n.newPeer(m.ID, m.Address)
		p.up = p.self
		n.peers[m.ID] = p
		n.list = append(n.list, p)
	}
	if err := n.allocate(t); err != nil {
		return nil, err
	}
	n.life, n.endLife = context.WithCancel(context.Background())
	n.dialer.Timeout = 2 * time.Second
	n.watchers.start()
	n.progress.n, n.progress.done = n, make(chan struct{})
	go n.progress.run()
	return n, nil
}

// allocate makes the buffers, and gives the provider those to receive into.
func (n *Node) allocate(t libfabric.Traits) (err error) {
	rx := min(t.Receives, receives)
	size := (rx + txFrames) * frameSize
	if n.memory, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("ofi: %d bytes of buffers: %w: %w", size, fabric.ErrMemory, err)
	}
	if n.progress.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Munmap(n.memory)
		return fmt.Errorf("ofi: %w: %w; raise the limit of open files (ulimit -n)", fabric.ErrMemory, os.NewSyscallError("eventfd", err))
	}
	if n.localRegions {
		if n.slab, err = n.engine.Register(n.memory, false, false, rand.Uint64()>>1); err != nil {
			unix.Munmap(n.memory)
			unix.Close(n.progress.wakeFD)
			return fmt.Errorf("ofi: %w: %w; raise the limit of locked memory (ulimit -l unlimited)", fabric.ErrMemory, err)
		}
	}
	buffer := func(i int) []byte { return n.memory[i*frameSize:][:frameSize:frameSize] }
	for i := range rx {
		n.rx = append(n.rx, buffer(i))
		n.repost(i)
	}
	for i := range txFrames {
		n.frames.all = append(n.frames.all, frame{b: buffer(rx + i)})
		n.frames.free = append(n.frames.free, int32(i))
	}
	return nil
}

// meet waits for the nodes that are there.
func (n *Node) meet() error {
	n.mu.Lock()
	absent := make(map[*peer]bool)
	unsure := 0
	for _, p := range n.list {
		if p.self {
			continue
		}
		unsure++
		n.wg.Go(func() {
			gone := n.absent(p)
			n.mu.Lock()
			absent[p] = gone
			n.mu.Unlock()
			n.met()
		})
	}
	n.mu.Unlock()
	patience := time.After(n.config.attachPatience())
	for {
		n.mu.Lock()
		waits := false
		var other *peer
		for _, p := range n.list {
			gone, known := absent[p]
			waits = waits || !p.up && p.other == 0 && !(known && gone)
			if p.other != 0 {
				other = p
			}
		}
		n.mu.Unlock()
		if other != nil {
			return fmt.Errorf("ofi: node %d at %v speaks version %d of the protocol, this program version %d; run the same exnet on both: %w",
				other.id, other.place, other.other, wireVersion, fabric.ErrVersion)
		}
		if !waits {
			return nil
		}
		select {
		case <-n.metSomebody:
		case <-patience:
			return nil
		}
	}
}
