package faults

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/shm"
	"exnet/test/exn"
)

// A liar is a node of the fabric without a daemon. It sends arbitrary messages.
type liar struct {
	node *shm.Node
	velo fabric.VELO
	rand *rand.Rand
}

func newLiar(t *testing.T, f *exn.Fleet) *liar {
	t.Helper()
	node, err := shm.Attach(shm.Config{Dir: f.Fabric, Node: 66})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	velo, err := node.OpenVELO(0, fabric.PortInterrupts{})
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return &liar{node, velo, rand.New(rand.NewPCG(seed, 0))}
}

// lie sends a message of random length and contents, of any type.
func (l *liar) lie(to fabric.NodeID) error {
	payload := make([]byte, 1+l.rand.IntN(fabric.VELOMaxPayload))
	for i := range payload {
		payload[i] = byte(l.rand.Uint32())
	}
	d := fabric.VELODescriptor{
		To:      fabric.Address{Node: to},
		MTT:     uint8(l.rand.IntN(16)),
		UserTag: uint8(l.rand.IntN(64)),
	}
	switch l.rand.IntN(4) {
	case 0: // an Ethernet frame to a node, or nearly
		copy(payload, []byte{0x2e, 0x87, 4, 7, 0, byte(to), 0x2e, 0x87, 4, 7, 0, byte(l.rand.IntN(4)), 8, byte(l.rand.IntN(8))})
	case 1: // an advert of memory that does not exist, of any possible length
		if len(payload) >= 22 {
			payload = payload[:22]
			payload[10], payload[11] = byte(l.rand.IntN(2)), 0
		}
	case 2:
		d.Multicast, d.To.Node = true, fabric.NodeID(l.rand.IntN(64))
	}
	return l.velo.Send(d, payload)
}

// hear takes what is sent to the liar, so that no node waits for it.
func (l *liar) hear() {
	var messages [64]fabric.Message
	for l.velo.Poll(messages[:]) > 0 {
	}
}

// Messages of a hostile node end no daemon and disturb no other connection. They are counted and
// dropped.
func TestLiar(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 2})
	f.OnlyExn("there is no fabric to lie on")
	a, b := f.Nodes[0], f.Nodes[1]
	l := newLiar(t, f)
	flows := []*exn.Flow{a.Flow(b, b.IPv4), b.Flow(a, a.IPv6)}
	messages := 50_000
	if !testing.Short() {
		messages = 300_000
	}
	for sent, begin := 0, time.Now(); sent < messages; {
		err := l.lie(fabric.NodeID(1 + l.rand.IntN(2)))
		switch {
		case err == nil:
			sent++
		case errors.Is(err, fabric.ErrFull):
			l.hear()
			time.Sleep(100 * time.Microsecond)
			if time.Since(begin) > 10*time.Minute {
				t.Fatalf("only %d lies were listened to", sent)
			}
		default:
			t.Fatal(err)
		}
	}
	for _, flow := range flows {
		flow.Await(some)
		flow.Stop()
	}
	for _, n := range f.Nodes {
		s := n.Snapshot()
		if s.Counters["rx_bad_message"] == 0 || s.Statistics.RXErrors == 0 {
			t.Errorf("%v has counted no bad messages: %v", n, s.Counters)
		}
	}
}

// A liar dies in the middle of sending, again and again. It leaves nothing behind.
func TestLiarsComeAndGo(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 2})
	f.OnlyExn("there is no fabric to join")
	a, b := f.Nodes[0], f.Nodes[1]
	rounds := 20
	if !testing.Short() {
		rounds = 1000
	}
	visit := func() {
		l := newLiar(t, f)
		for range 50 {
			if err := l.lie(fabric.NodeID(1 + l.rand.IntN(2))); err != nil && !errors.Is(err, fabric.ErrFull) {
				t.Fatal(err)
			}
		}
		if err := l.node.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		visit() // by now everything that stays allocated is there
	}
	before := a.Needs()
	for range rounds {
		visit()
	}
	flow := a.Flow(b, b.IPv4)
	flow.Await(some)
	flow.Stop()
	// State of a node that died goes within a time-out of the protocol.
	after := a.Needs()
	for begin := time.Now(); grown(before, after) && time.Since(begin) < time.Minute; after = a.Needs() {
		time.Sleep(100 * time.Millisecond)
	}
	if grown(before, after) {
		t.Errorf("after %d visits the daemon needs %+v, before %+v", rounds, after, before)
	}
}

// grown reports whether a daemon uses more than before, beyond a few buffers and a garbage
// collection that is still due.
func grown(before, after exn.Needs) bool {
	const heap = 8 << 20
	return after.Descriptors > before.Descriptors+2 || after.Goroutines > before.Goroutines+2 || after.HeapBytes > before.HeapBytes+heap
}
