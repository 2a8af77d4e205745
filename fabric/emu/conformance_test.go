package emu

import (
	"math/rand/v2"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
)

const allocates = "emu allocates: it is for tests, and each packet is an event"

// everywhere applies settings to all links.
func everywhere(s ...Setting) func(*Network) {
	return func(n *Network) { n.Link(fabric.NodeAny, fabric.NodeAny).Set(s...) }
}

// again calls f from time to time for as long as the network lives.
func again(n *Network, rng *rand.Rand, most time.Duration, f func()) {
	n.At(1+time.Duration(rng.Int64N(int64(most))), func() {
		f()
		again(n, rng, most, f)
	})
}

const soundLinks = "NET-8 a sound network counts no errors"

// partOfEverything are the classes of faults of which make test plays only the sum.
var partOfEverything = map[string]bool{
	"latency and jitter": true, "bandwidth": true, "bit errors": true, "stalls": true, "down and up": true, "slow receivers": true,
}

// TestConformance runs the suite without faults and with each class of them.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults func(*Network)
		skip   map[string]string
	}{
		{"no faults", func(*Network) {}, nil},
		{"latency and jitter", everywhere(Latency(2*time.Microsecond), Jitter(20*time.Microsecond)), nil},
		{"bandwidth", everywhere(Latency(time.Microsecond), Bandwidth(10e9)), nil},
		{"bit errors", everywhere(Latency(time.Microsecond), BitErrors(1e-5)), map[string]string{
			soundLinks: "the errors are there to be counted",
		}},
		{"stalls", func(n *Network) {
			everywhere(Latency(time.Microsecond))(n)
			rng := rand.New(rand.NewPCG(1, 1))
			again(n, rng, 100*time.Microsecond, func() {
				n.Link(fabric.NodeID(rng.IntN(6)), fabric.NodeAny).Set(Stall(time.Duration(rng.IntN(50_000))))
			})
		}, nil},
		{"down and up", func(n *Network) {
			// An outage is shorter than the retries; otherwise RMA fails, as it should.
			everywhere(Latency(time.Microsecond), Retries(100, time.Microsecond))(n)
			rng := rand.New(rand.NewPCG(1, 1))
			again(n, rng, 200*time.Microsecond, func() {
				l := n.Link(fabric.NodeID(rng.IntN(6)), fabric.NodeAny)
				l.Set(Down)
				n.At(time.Duration(rng.IntN(90_000)), func() { l.Set(Up) })
			})
		}, map[string]string{
			soundLinks: "what is sent into an outage is sent again and counted",
		}},
		{"slow receivers", everywhere(Latency(time.Microsecond), CreditDelay(50*time.Microsecond)), nil},
		{"everything", func(n *Network) {
			everywhere(Latency(time.Microsecond), Jitter(5*time.Microsecond), Bandwidth(25e9), BitErrors(1e-6), CreditDelay(20*time.Microsecond))(n)
			rng := rand.New(rand.NewPCG(1, 1))
			again(n, rng, 100*time.Microsecond, func() {
				n.Link(fabric.NodeID(rng.IntN(6)), fabric.NodeAny).Set(Stall(time.Duration(rng.IntN(20_000))))
			})
		}, map[string]string{
			soundLinks: "the errors are there to be counted",
		}},
	} {
		if testing.Short() && partOfEverything[c.name] {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var total LinkStats
			fabrictest.Run(t, fabrictest.Harness{
				Virtual:   true,
				Allocates: allocates,
				Skip:      c.skip,
				Fabric: func(t *testing.T) fabrictest.Attach {
					n := New(Config{Seed: 1})
					t.Cleanup(func() {
						n.Close()
						total.add(account(t, n))
					})
					c.faults(n)
					return n.Attach
				},
			})
			if hit := total.CRCErrors+total.Lost > 0; hit != (c.skip != nil) {
				t.Errorf("the faults hit %d and lost %d of %d packets", total.CRCErrors, total.Lost, total.Packets)
			}
			if total.Failures > 0 {
				t.Errorf("%d operations or messages were given up", total.Failures)
			}
		})
	}
}

// account checks that every packet and byte of a network was delivered, hit or lost, and returns
// the sums.
func account(t *testing.T, n *Network) *LinkStats {
	s := n.Link(fabric.NodeAny, fabric.NodeAny).Stats()
	if s.Packets != s.Delivered+s.CRCErrors+s.Lost || s.Bytes != s.DeliveredBytes+s.CRCErrorBytes+s.LostBytes {
		t.Errorf("the accounts are wrong: %+v", s)
	}
	return &s
}

// TestConformanceInRealTime runs the suite outside a bubble.
func TestConformanceInRealTime(t *testing.T) {
	fabrictest.Run(t, fabrictest.Harness{
		Allocates: allocates,
		Fabric: func(t *testing.T) fabrictest.Attach {
			n := New(Config{Seed: 1})
			t.Cleanup(n.Close)
			return n.Attach
		},
	})
}
