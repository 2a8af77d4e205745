package shm

import (
	"testing"

	"exnet/fabric"
)

// A message that is accepted is the one that was sent, and has the descriptor
// that its kind needs.
func FuzzMessage(f *testing.F) {
	for kind := msgHello; kind < msgEnd; kind++ {
		var b [messageSize]byte
		m := message{kind: kind, a: 1, b: 2, c: 3, d: regionMagic, e: 1}
		m.encode(&b)
		f.Add(b[:], 0)
		f.Add(b[:], 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, descriptors int) {
		m, ok := decodeMessage(b, descriptors)
		if !ok {
			return
		}
		var again [messageSize]byte
		m.encode(&again)
		if string(again[:]) != string(b) {
			t.Errorf("%x was decoded as %+v", b, m)
		}
		if m.kind == 0 || m.kind >= msgEnd || descriptors < 0 || descriptors > 1 {
			t.Errorf("accepted %+v with %d descriptors", m, descriptors)
		}
		switch m.kind {
		case msgRing, msgDoorbell:
			if m.a >= maxInterrupts {
				t.Errorf("interrupt %d", m.a)
			}
		case msgRegister:
			if r := fabric.Register(m.a); !r.Writable() {
				t.Errorf("write to register %v", r)
			}
		}
	})
}

func TestFlowWord(t *testing.T) {
	for _, u := range []fabric.Unit{fabric.UnitVELO, fabric.UnitRMA} {
		w := makeFlowWord(u, 255, 1)
		if !w.valid() || w.unit() != u || w.source() != 255 || w.target() != 1 {
			t.Errorf("%#x: %v %d %d", w, w.unit(), w.source(), w.target())
		}
		for _, bad := range []flowWord{0, w &^ 1, w | 4, w | 256<<8, w | 256<<24, w | 1<<63} {
			if bad.valid() {
				t.Errorf("%#x is valid", bad)
			}
		}
	}
}

func TestPortWord(t *testing.T) {
	for _, irq := range []int{-1, 0, maxInterrupts - 1} {
		w := makePortWord(irq, 7)
		if !w.open() || w.closed().open() || w.interrupt() != irq || w.generation() != 7 || w.closed().generation() != 7 {
			t.Errorf("%d: %#x", irq, w)
		}
	}
	if got := portWord(0xff01).interrupt(); got != -1 {
		t.Errorf("nonsense names interrupt %d", got)
	}
}
