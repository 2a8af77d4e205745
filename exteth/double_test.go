package exteth

import (
	"errors"
	"slices"
	"testing"

	"exnet/fabric"
)

// A wire is a fabric for tests that decide themselves what happens when. Everything happens at once
// and in order, on the goroutine of the test, unless a setting of a double says otherwise.
type wire struct {
	nodes []*double
}

// A double is a node of a wire. It has one VELO port and one RMA port, with VPID 0.
type double struct {
	fabric.Node
	w      *wire
	id     fabric.NodeID
	groups uint64
	atu    *fabric.ATU
	memory [][]byte

	ring  []fabric.Message
	notes []fabric.Notification
	held  []heldGet

	// Settings.
	ringSize   int  // messages that fit in ring
	noteSize   int  // notifications that fit in its queue
	hold       bool // GETs of this node complete only when release is called
	mapped     bool // its RMA port implements InPlace; with split, sources come in two pieces
	split      bool
	deaf       bool // messages to this node vanish
	loseGroup  int  // how many multicast copies for this node are lost
	failGets   fabric.Fault
	untold     int // frames fetched in place from here for which no interrupt was raised yet
	untoldMost int // the most of them at any time
	raises     int // interrupts raised for them
	sends      int // messages sent
	sendFailed error
}

// A heldGet is a GET under way: its addresses are translated, its bytes are not read yet.
type heldGet struct {
	desc     fabric.RMADescriptor
	src, dst []byte
}

func newWire(n int) *wire {
	w := &wire{}
	for i := range n {
		w.nodes = append(w.nodes, &double{w: w, id: fabric.NodeID(i), groups: 1 << fabric.GroupAll,
			atu: fabric.NewATU(make([]uint64, fabric.ATUWords), 1), ringSize: 1 << 20, noteSize: 1 << 20})
	}
	return w
}

func (d *double) ID() fabric.NodeID { return d.id }

func (d *double) Peers() (p []fabric.NodeID) {
	for _, n := range d.w.nodes {
		if n != d && n.ringSize > 0 {
			p = append(p, n.id)
		}
	}
	return p
}

func (d *double) Members(g fabric.Group) (m []fabric.NodeID) {
	for _, n := range d.w.nodes {
		if n.groups>>g&1 == 1 {
			m = append(m, n.id)
		}
	}
	return m
}

type doubleVELO struct {
	fabric.VELO
	*double
}

func (d *double) OpenVELO(fabric.VPID, fabric.PortInterrupts) (fabric.VELO, error) {
	return doubleVELO{double: d}, nil
}
func (d doubleVELO) Address() fabric.Address { return fabric.Address{Node: d.id} }
func (d doubleVELO) Close() error            { return nil }

func (d doubleVELO) Send(desc fabric.VELODescriptor, payload []byte) error {
	if d.sendFailed != nil {
		return d.sendFailed
	}
	if len(payload) < 1 || len(payload) > fabric.VELOMaxPayload || !desc.Valid() {
		return fabric.ErrLength
	}
	m := fabric.Message{Status: fabric.MakeStatus(fabric.Address{Node: d.id}, desc, len(payload), 1)}
	copy(m.Data[:], payload)
	if desc.Multicast {
		for _, id := range d.Members(fabric.Group(desc.To.Node)) {
			switch n := d.w.nodes[id]; {
			case n == d.double:
			case n.loseGroup > 0:
				n.loseGroup--
			case len(n.ring) < n.ringSize:
				n.ring = append(n.ring, m)
			}
		}
		d.sends++
		return nil
	}
	if int(desc.To.Node) >= len(d.w.nodes) {
		return fabric.ErrNoNode
	}
	n := d.w.nodes[desc.To.Node]
	if len(n.ring) >= n.ringSize {
		return fabric.ErrFull
	}
	d.sends++
	if !n.deaf {
		n.ring = append(n.ring, m)
	}
	return nil
}

func (d doubleVELO) Poll(into []fabric.Message) int {
	n := copy(into, d.ring)
	d.ring = slices.Delete(d.ring, 0, n)
	return n
}

type doubleRMA struct {
	fabric.RMA
	*double
}

type doubleMapped struct{ doubleRMA }

func (d *double) OpenRMA(fabric.VPID, fabric.PortInterrupts) (fabric.RMA, error) {
	if d.mapped {
		return doubleMapped{doubleRMA{double: d}}, nil
	}
	return doubleRMA{double: d}, nil
}
func (d doubleRMA) Address() fabric.Address { return fabric.Address{Node: d.id} }
func (d doubleRMA) Close() error            { return nil }

func (d doubleRMA) Poll(into []fabric.Notification) int {
	n := copy(into, d.notes)
	d.notes = slices.Delete(d.notes, 0, n)
	return n
}

func (d *double) fault(desc *fabric.RMADescriptor, f fabric.Fault) {
	d.notes = append(d.notes, fabric.Notification{Command: desc.Command, Kind: fabric.KindRequester, Fault: f, Peer: desc.To, Local: desc.Local, Count: desc.Length})
}

func (d *double) room(desc *fabric.RMADescriptor) bool {
	return len(d.notes) < d.noteSize && len(d.w.nodes[desc.To.Node].notes) < d.w.nodes[desc.To.Node].noteSize
}

// source finds the bytes of a GET.
func (d *double) source(desc *fabric.RMADescriptor) ([]byte, fabric.Fault) {
	n := d.w.nodes[desc.To.Node]
	if d.failGets != fabric.FaultNone {
		return nil, d.failGets
	}
	tr, f := n.atu.Table().Lookup(desc.Remote, desc.Length, desc.To.VPID, fabric.RemoteRead)
	if f != fabric.FaultNone {
		return nil, f
	}
	at, l, _ := tr.Next()
	return n.memory[tr.Memory][at : at+l], fabric.FaultNone
}

func (d *double) notify(desc *fabric.RMADescriptor) {
	n := d.w.nodes[desc.To.Node]
	if desc.Mask&fabric.NotifyResponder != 0 {
		n.notes = append(n.notes, fabric.Notification{Command: fabric.Get, Kind: fabric.KindResponder, Peer: fabric.Address{Node: d.id},
			Local: fabric.LastPacket(desc.Remote, desc.Length), Count: desc.Length})
	}
	if desc.Mask&fabric.NotifyCompleter != 0 {
		d.notes = append(d.notes, fabric.Notification{Command: fabric.Get, Kind: fabric.KindCompleter, Peer: desc.To,
			Local: fabric.LastPacket(desc.Local, desc.Length), Count: desc.Length})
	}
}

func (d doubleRMA) Post(desc *fabric.RMADescriptor) error {
	if err := desc.Check(); err != nil {
		return err
	}
	if !d.room(desc) {
		return fabric.ErrFull
	}
	src, f := d.source(desc)
	if f != fabric.FaultNone {
		d.fault(desc, f)
		return nil
	}
	tr, f := d.atu.Table().Lookup(desc.Local, desc.Length, 0, 0)
	if f != fabric.FaultNone {
		d.fault(desc, f)
		return nil
	}
	at, l, _ := tr.Next()
	d.held = append(d.held, heldGet{*desc, src, d.memory[tr.Memory][at : at+l]})
	if !d.hold {
		d.release()
	}
	return nil
}

// release completes all held GETs.
func (d *double) release() {
	for len(d.held) > 0 {
		d.complete()
	}
}

// complete completes the oldest held GET.
func (d *double) complete() {
	h := d.held[0]
	d.held = slices.Delete(d.held, 0, 1)
	copy(h.dst, h.src)
	d.notify(&h.desc)
}

func (d doubleMapped) GetInPlace(desc *fabric.RMADescriptor, use func([]byte) error) error {
	if !d.room(desc) {
		return fabric.ErrFull
	}
	src, f := d.source(desc)
	if f != fabric.FaultNone {
		d.fault(desc, f)
		return nil
	}
	var err error
	if d.split && len(src) > 1 {
		err = use(src[:len(src)/2])
		src = src[len(src)/2:]
	}
	err = errors.Join(err, use(src))
	d.notify(desc)
	there := d.w.nodes[desc.To.Node]
	there.untold++
	there.untoldMost = max(there.untoldMost, there.untold)
	return err
}

func (d doubleMapped) Raise(to fabric.Address) {
	there := d.w.nodes[to.Node]
	there.untold = 0
	there.raises++
}

type doubleMemory struct {
	bytes []byte
	id    uint32
}

func (m doubleMemory) Bytes() []byte { return m.bytes }
func (m doubleMemory) Free() error   { return nil }

func (d *double) Alloc(size int, _ fabric.Rights) (fabric.Memory, error) {
	b := make([]byte, size)
	d.memory = append(d.memory, b)
	return doubleMemory{b, uint32(len(d.memory) - 1)}, nil
}

type doubleWindow struct {
	fabric.Window
	d   *double
	nla fabric.NLA
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (w doubleWindow) NLA() fabric.NLA { return w.nla }

// Released waits for the GETs under way (ATU-4).
func (w doubleWindow) Released() <-chan struct{} {
	const offset = fabric.MaxWindow - 1
	for _, n := range w.d.w.nodes {
		for _, h := range n.held {
			if n == w.d && h.desc.Local&^offset == w.nla || h.desc.To.Node == w.d.id && h.desc.Remote&^offset == w.nla {
				return nil
			}
		}
	}
	return closed
}

func (w doubleWindow) Deregister() error {
	w.d.atu.Invalidate(w.nla)
	w.d.atu.Release(w.nla)
	return nil
}

func (d doubleRMA) Register(m fabric.Memory, spec fabric.WindowSpec) (fabric.Window, error) {
	dm := m.(doubleMemory)
	nla, err := d.atu.Register(dm.id, len(dm.bytes), 0, spec)
	return doubleWindow{d: d.double, nla: nla}, err
}

// newEngine makes an engine on a double. It fails the test on errors.
func newEngine(t testing.TB, d *double, cfg Config) *Engine {
	t.Helper()
	if cfg.Receive == nil {
		cfg.Receive = func(*Frame) error { return nil }
	}
	e, err := New(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
