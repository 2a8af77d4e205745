package ofi

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"exnet/fabric"
)

// A victim is a node with an honest peer and one that sends what it likes.
type victim struct {
	*Node
	honest, evil *peer
	rma          fabric.RMA
	local        fabric.NLA
}

func newVictim(t testing.TB) *victim {
	t.Helper()
	w := newNetwork(5)
	c := Config{Members: []Member{{66, netip.MustParseAddrPort("10.0.6.6:1")}}}
	n := w.nodes(t, 2, c)
	v := &victim{Node: n[0], honest: n[0].peers[2], evil: n[0].peers[66]}
	var err error
	if v.rma, err = v.OpenRMA(9, fabric.PortInterrupts{}); err != nil {
		t.Fatal(err)
	}
	if _, err = v.OpenVELO(9, fabric.PortInterrupts{}); err != nil {
		t.Fatal(err)
	}
	m, err := v.Alloc(1<<16, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	win, err := v.rma.Register(m, fabric.WindowSpec{Length: 1 << 15, Rights: fabric.RemoteRead | fabric.RemoteWrite})
	if err != nil {
		t.Fatal(err)
	}
	v.local = win.NLA()
	return v
}

// meet gives the evil peer a session, if it has none, and operations to answer.
func (v *victim) meet() {
	if v.evil.up {
		return
	}
	v.evil.it = party{66, 1, newNonce()}
	v.evil.establish()
	for _, c := range []fabric.Command{fabric.Put, fabric.Get, fabric.ImmediatePut} {
		d := &fabric.RMADescriptor{Command: c, Mask: 7, To: fabric.Address{Node: 66, VPID: 1}, Length: 100 << (c * 4), Local: v.local, Remote: 5 << 38, Enable: 1}
		d.Length = min(d.Length, 1<<15)
		v.accept(v.rma.(*rmaPort), d)
	}
}

// suffers hands a frame over and checks that nobody else notices.
func (v *victim) suffers(t testing.TB, b []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.receive(b)
	v.drive()
	if !v.honest.up {
		t.Fatal("the session with the honest peer is over")
	}
	if len(v.evil.outbox) > outboxMost || len(v.evil.gets) > mostOperations {
		t.Fatalf("the peer made us owe it %d records and %d GETs", len(v.evil.outbox), len(v.evil.gets))
	}
}

// numbered makes a data frame that the session takes.
func (v *victim) numbered(body []byte) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.meet()
	b := make([]byte, headerSize+len(body))
	h := header{kind: frameData, from: 66, session: v.evil.session.id, seq: v.evil.session.taken + 1}
	h.encode(b)
	copy(b[headerSize:], body)
	return b[:min(len(b), frameSize)]
}

// encoded is one record as it is on the wire.
func encoded(r record) []byte {
	b := make([]byte, r.size())
	r.encode(b)
	return b
}

// lies are records that no honest peer sends in this state.
func lies(v *victim) map[string]record {
	return map[string]record{
		"credit that was not used":         {kind: recCredit, dst: 1, x: 77},
		"credit of no unit":                {kind: recCredit, a: 9},
		"answer to nothing":                {kind: recReply, op: 1 << 20},
		"value for a PUT":                  {kind: recValue, op: v.ops[0].gen<<10 | 3},
		"data of no PUT":                   {kind: recPutData, x: 3, data: []byte{1, 2, 3}},
		"data of no GET":                   {kind: recGetData, op: 77, x: 3, data: []byte{1, 2, 3}},
		"grant that nobody asked for":      {kind: recGrant, op: 77, src: 4, z: 1 << 20},
		"revocation of no lease":           {kind: recRevoke, op: 5},
		"answer to no revocation":          {kind: recRevoked, op: windowName(v.local)},
		"PUT of no bytes":                  {kind: recPut, x: uint64(v.local)},
		"PUT of too many bytes":            {kind: recPut, x: uint64(v.local), y: 1 << 40},
		"immediate PUT of no bytes":        {kind: recImm, x: uint64(v.local)},
		"end of a PUT without a completer": {kind: recPutDone, x: uint64(v.local), y: 4},
		"answer to no close":               {kind: recFlushed, dst: 4},
		"message of no bytes":              {kind: recVELO, dst: 9},
		"message with bits that are not":   {kind: recVELO, dst: 9, op: 1<<30 | 1<<16, data: []byte{1}},
	}
}

// TestLies: each ends the session of the liar, is counted, and hurts nobody.
func TestLies(t *testing.T) {
	v := newVictim(t)
	for what, r := range lies(v) {
		before := uint64(0)
		dropped := func() (k uint64) {
			for r := fabric.RegDroppedVELO; r <= fabric.RegDroppedMemory; r++ {
				n, _ := v.ReadRegister(r)
				k += n
			}
			return k
		}
		f := v.numbered(encoded(r))
		before = dropped()
		v.suffers(t, f)
		if v.evil.up {
			t.Errorf("%s: the session goes on", what)
		}
		if dropped() != before+1 {
			t.Errorf("%s: counted %d times", what, dropped()-before)
		}
	}
	// Stale and foreign addresses are faults, not lies.
	for _, a := range []fabric.NLA{0, v.local + 1<<48, v.local + 1<<38, fabric.RegisterNLA(fabric.RegNodeID), ^fabric.NLA(0)} {
		v.suffers(t, v.numbered(encoded(record{kind: recImm, a: 7, dst: 9, op: 1, x: uint64(a), y: 1, z: 255})))
		if !v.evil.up {
			t.Errorf("a PUT to %v ended the session", a)
		}
	}
	f := v.numbered(nil)
	f[24] = 200 // acknowledges what was never sent
	v.suffers(t, f)
	if v.evil.up {
		t.Error("an acknowledgement of what was never sent: the session goes on")
	}
}

// TestGarbage: bytes of no frame, of another session and of other nodes.
func TestGarbage(t *testing.T) {
	v := newVictim(t)
	rng := rand.New(rand.NewPCG(6, 6))
	for range 20000 {
		b := make([]byte, rng.IntN(200))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if len(b) > headerSize && rng.IntN(2) == 0 {
			h := header{kind: uint8(1 + rng.IntN(4)), from: fabric.NodeID(rng.IntN(70)), session: rng.Uint64(), seq: 1}
			h.encode(b)
		}
		v.suffers(t, b)
		v.suffers(t, v.numbered(b))
	}
}

// FuzzReceive hands over frames of the evil peer: numbered ones, whose records
// are the input, or the input as it is.
func FuzzReceive(f *testing.F) {
	v := newVictim(f)
	for _, r := range lies(v) {
		f.Add(true, encoded(r))
		f.Add(false, v.numbered(encoded(r)))
	}
	f.Add(true, encoded(record{kind: recPut, a: 7, dst: 9, x: uint64(v.local), y: 8}))
	f.Add(true, encoded(record{kind: recGet, a: 7, dst: 9, x: uint64(v.local), y: 8}))
	f.Fuzz(func(t *testing.T, numbered bool, b []byte) {
		if numbered {
			b = v.numbered(b)
		}
		v.suffers(t, b[:min(len(b), frameSize)])
	})
}
