package exn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/emu"
	"exnet/mtu"
)

// A fakeDevice is a kernel made of two lists: what its programs send, and what they received.
type fakeDevice struct {
	kind    device.Kind
	mtu     int
	caps    exteth.Caps
	adopted bool

	mu      sync.Mutex
	out     []packet // to be read by the interface
	in      []packet // written by it
	notify  func()
	carrier bool
	fail    error // of each Write
	longest int   // the longest packet that Write takes; 0: any
	gone    bool
	sink    bool // forget what is written
	changed func([]netip.Prefix)
}

// WatchAddresses implements device.AddressWatcher. A test calls changed.
func (d *fakeDevice) WatchAddresses(f func([]netip.Prefix)) (func(), error) {
	d.changed = f
	return func() {}, nil
}

type packet struct {
	data []byte
	vnet exteth.VNet
}

func (d *fakeDevice) Name() string          { return "fake0" }
func (d *fakeDevice) Kind() device.Kind     { return d.kind }
func (d *fakeDevice) MTU() int              { return d.mtu }
func (d *fakeDevice) Offloads() exteth.Caps { return d.caps }

// SetOffloads implements device.Offloader. The test calls it on its own goroutine.
func (d *fakeDevice) SetOffloads(o exteth.Caps) error { d.caps = o; return nil }

func (d *fakeDevice) Adopted() bool { return d.adopted }
func (d *fakeDevice) FD() int       { return -1 }
func (d *fakeDevice) Close() error  { return nil }

func (d *fakeDevice) Notify(f func()) { d.notify = f }

func (d *fakeDevice) SetCarrier(up bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.carrier = up
	return nil
}

func (d *fakeDevice) Read(b []byte) (int, exteth.VNet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.gone:
		return 0, exteth.VNet{}, device.ErrGone
	case len(d.out) == 0:
		return 0, exteth.VNet{}, device.ErrEmpty
	}
	p := d.out[0]
	d.out = d.out[1:]
	return copy(b[device.Headroom:], p.data), p.vnet, nil
}

// ReadParts implements device.PartsReader.
func (d *fakeDevice) ReadParts(head, rest []byte) (int, exteth.VNet, error) {
	b := make([]byte, len(head)+len(rest))
	n, v, err := d.Read(b)
	if err == nil {
		copy(rest, b[copy(head, b):])
	}
	return n, v, err
}

func (d *fakeDevice) Write(b []byte, v exteth.VNet) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if d.longest > 0 && len(b) > d.longest {
		return device.ErrRefused
	}
	if !d.sink {
		d.in = append(d.in, packet{append([]byte(nil), b...), v})
	}
	return nil
}

// send makes a program send packets.
func (d *fakeDevice) send(packets ...[]byte) { d.sendAs(exteth.VNet{}, packets...) }

// sendAs makes a program send packets with the virtio header v.
func (d *fakeDevice) sendAs(v exteth.VNet, packets ...[]byte) {
	var all []packet
	for _, p := range packets {
		all = append(all, packet{p, v})
	}
	d.sendPackets(all...)
}

// sendPackets makes a program send packets at once, each with its own virtio header.
func (d *fakeDevice) sendPackets(packets ...packet) {
	d.mu.Lock()
	d.out = append(d.out, packets...)
	d.mu.Unlock()
	d.notify()
}

// take returns what the programs received, without the membership queries that the interface itself
// sends.
func (d *fakeDevice) take() (all []packet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.in {
		if !query(p.data) {
			all = append(all, p)
		}
	}
	d.in = nil
	return all
}

func query(p []byte) bool {
	return p[0]>>4 == 4 && p[9] == 2 && p[24] == 0x11 || p[0]>>4 == 6 && p[6] == 0 && len(p) > 48 && p[48] == 130
}

// A rig is a set of nodes on an emulated fabric, inside a synctest bubble.
type rig struct {
	t   *testing.T
	net *emu.Network
	n   []*rigNode
}

type rigNode struct {
	*Interface
	dev  *fakeDevice
	node fabric.Node
	end  context.CancelFunc
	err  chan error
}

// addr4 and addr6 are the addresses of a node of the rig.
func addr4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 2, 0, byte(n + 1)}) }
func addr6(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 0, 15: byte(n + 1)})
}

func prefixes(n int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(addr4(n), 24), netip.PrefixFrom(addr6(n), 64)}
}

// simulate runs a test with n nodes in virtual time, all of them ready.
func simulate(t *testing.T, n int, change func(k int, c *Config, d *fakeDevice), test func(r *rig)) {
	t.Helper()
	if raced {
		// Under the race detector, Go 1.26 runs the timers of a bubble on several
		// processors with one context of the detector, which crashes (go.dev/issue/78156).
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, net: emu.New(emu.Config{Seed: 1})}
		defer r.net.Close()
		r.net.Link(fabric.NodeAny, fabric.NodeAny).Set(emu.Latency(2 * time.Microsecond))
		for k := range n {
			r.start(k, change)
		}
		for _, node := range r.n {
			<-node.Ready()
		}
		r.settle()
		for _, node := range r.n {
			node.dev.take()
		}
		test(r)
		for _, node := range r.n {
			node.stop(t)
		}
	})
}

// start attaches node k, with node ID k+1, and runs its interface.
func (r *rig) start(k int, change func(k int, c *Config, d *fakeDevice)) *rigNode {
	r.t.Helper()
	node, err := r.net.Attach(fabric.NodeID(k + 1))
	if err != nil {
		r.t.Fatal(err)
	}
	dev := &fakeDevice{mtu: int(mtu.MaxTUN), caps: exteth.CapAll}
	// No busy polling: a polling loop does not sleep, and virtual time would stand still.
	cfg := Config{Node: node, Addresses: prefixes(k), BusyPoll: -1}
	if change != nil {
		change(k, &cfg, dev)
	}
	i, err := Open(cfg, dev)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	n := &rigNode{Interface: i, dev: dev, node: node, end: end, err: make(chan error, 1)}
	go func() { n.err <- i.Run(ctx) }()
	if k < len(r.n) {
		r.n[k] = n
	} else {
		r.n = append(r.n, n)
	}
	return n
}

// stop stops a node in an orderly way.
func (n *rigNode) stop(t *testing.T) {
	t.Helper()
	n.end()
	if err := <-n.err; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("node %d: %v", n.node.ID(), err)
	}
	n.leave(t)
}

func (n *rigNode) leave(t *testing.T) {
	t.Helper()
	if err := n.Interface.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := n.node.Close(); err != nil {
		t.Errorf("close node: %v", err)
	}
}

// settle waits until everything under way has arrived.
func (r *rig) settle() { time.Sleep(10 * time.Millisecond) }

// counter returns a counter by name.
func (n *rigNode) counter(name string) uint64 {
	v, ok := n.Snapshot().Counters[name]
	if !ok {
		panic("no counter " + name)
	}
	return v
}

// udp makes a UDP packet with a payload of n bytes that depend on seed.
func udp(from, to netip.Addr, n, seed int) []byte {
	var p []byte
	length := mtu.UDPHeader + n
	if from.Is4() {
		p = append(p, 0x45, 0)
		p = binary.BigEndian.AppendUint16(p, uint16(mtu.IPv4Header+length))
		p = append(p, byte(seed>>8), byte(seed), 0x40, 0, 64, 17, 0, 0)
	} else {
		p = append(p, 0x60, 0, 0, 0)
		p = binary.BigEndian.AppendUint16(p, uint16(length))
		p = append(p, 17, 64)
	}
	p = append(append(p, from.AsSlice()...), to.AsSlice()...)
	p = append(p, 0x12, 0x34, 0x56, 0x78)
	p = binary.BigEndian.AppendUint16(p, uint16(length))
	p = append(p, 0, 0)
	for k := range n {
		p = append(p, byte(k*7+seed))
	}
	return p
}

// want fails the test unless the node's programs received exactly these packets.
func (n *rigNode) want(t *testing.T, packets ...[]byte) {
	t.Helper()
	got := n.dev.take()
	if len(got) != len(packets) {
		t.Fatalf("node %d got %d packets, want %d:\n%s", n.node.ID(), len(got), len(packets), describe(got))
	}
	for k, p := range packets {
		if string(got[k].data) != string(p) {
			t.Fatalf("node %d: packet %d differs:\n got %x\nwant %x", n.node.ID(), k, got[k].data, p)
		}
	}
}

func describe(packets []packet) (s string) {
	for _, p := range packets {
		s += fmt.Sprintf("%d bytes %x\n", len(p.data), p.data[:min(len(p.data), 64)])
	}
	return s
}

var macOf = arp.DefaultPrefix.MAC
