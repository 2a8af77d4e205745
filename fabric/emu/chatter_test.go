package emu

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exnet/fabric"
)

// chatter is a program whose nodes do what their messages say, each on one goroutine, over a
// network full of faults.
func chatter(t *testing.T, seed uint64) (trace string) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		const nodes = 4
		n := New(Config{Seed: seed, Trace: &out})
		defer n.Close()
		s, err := ParseScenario(strings.NewReader(`
			link * -> *   latency 2us jitter 3us bandwidth 10G errors 2e-5 retries 40 1us
			link 1 <-> 2  credit-delay 30us
			at 100us  link 3 -> *    down
			at 130us  link 3 -> *    up
			at 200us  link * -> 2    stall 100us
		`))
		if err != nil {
			t.Fatal(err)
		}
		n.Play(s)
		type station struct {
			velo fabric.VELO
			rma  fabric.RMA
			irq  fabric.Interrupt
			nla  fabric.NLA
		}
		stations := make([]station, nodes)
		var over atomic.Bool
		for i := range stations {
			m, err := n.Attach(fabric.NodeID(i))
			if err != nil {
				t.Fatal(err)
			}
			st := &stations[i]
			st.irq, _ = m.NewInterrupt()
			both := fabric.PortInterrupts{Receive: st.irq, Transmit: st.irq}
			st.velo, _ = m.OpenVELO(1, both)
			st.rma, _ = m.OpenRMA(1, both)
			mem, _ := m.Alloc(1<<16, fabric.RemoteRead|fabric.RemoteWrite)
			w, err := st.rma.Register(mem, fabric.WindowSpec{Rights: fabric.RemoteRead | fabric.RemoteWrite, Length: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			st.nla = w.NLA()
		}
		for i := range stations {
			go func() {
				st := stations[i]
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				var msgs [4]fabric.Message
				var notes [4]fabric.Notification
				act := func() {
					to := rng.IntN(nodes)
					if rng.IntN(2) == 0 {
						st.velo.Send(fabric.VELODescriptor{To: stations[to].velo.Address()}, make([]byte, 1+rng.IntN(120)))
					} else {
						st.rma.Post(&fabric.RMADescriptor{Command: fabric.Put + fabric.Command(rng.IntN(3)), Mask: 7, Enable: 1,
							To: stations[to].rma.Address(), Length: 1 + rng.IntN(20000), Local: st.nla, Remote: stations[to].nla})
					}
				}
				for range 5 {
					act()
				}
				for !over.Load() {
					for range st.velo.Poll(msgs[:]) + st.rma.Poll(notes[:]) {
						act()
					}
					if st.irq.Arm() {
						st.irq.Wait(-1)
					}
				}
			}()
		}
		time.Sleep(400 * us)
		over.Store(true)
		for _, st := range stations {
			st.irq.Wake()
		}
	})
	return out.String()
}

// TestEqualSeedsGiveEqualTraces checks the promise of determinism.
func TestEqualSeedsGiveEqualTraces(t *testing.T) {
	first := chatter(t, 7)
	for _, what := range []string{" sent velo ", " sent put ", " sent response ", " bad CRC ", " lost ", " sent credit "} {
		if !strings.Contains(first, what) {
			t.Errorf("nothing was%sin %d bytes of trace: the test is void", what, len(first))
		}
	}
	for range 3 {
		again := chatter(t, 7)
		if again == first {
			continue
		}
		a, b := strings.Split(first, "\n"), strings.Split(again, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("equal seeds differ in line %d of %d:\n%s\n%s", i, len(a), a[i], b[i])
			}
		}
		t.Fatalf("equal seeds give %d and %d lines", len(a), len(b))
	}
	if chatter(t, 8) == first {
		t.Error("the seed has no effect")
	}
}
