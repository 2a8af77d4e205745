package exn

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/fabric"
	"exnet/fabric/emu"
	"exnet/napi"
)

// DRV-1: packets cross unchanged, small and large, in both families. The first ones resolve their
// neighbour.
func TestCross(t *testing.T) {
	simulate(t, 3, nil, func(r *rig) {
		for _, n := range []int{0, 1, 60, 480, 481, 1472, 9000, 65507} {
			for _, p := range [][]byte{udp(addr4(0), addr4(1), n, n), udp(addr6(0), addr6(1), min(n, 65487), n)} {
				r.n[0].dev.send(p)
				r.settle()
				r.n[1].want(t, p)
			}
		}
		r.n[2].want(t)
		s := r.n[0].Snapshot()
		if len(s.Neighbours) < 2 || s.Statistics.TXDropped+s.Statistics.TXErrors != 0 || !s.Carrier {
			t.Errorf("%+v", s)
		}
	})
}

// DRV-2, NAP-2, ITR-1: every poll mode moves the same packets, and the loop sleeps afterwards.
func TestModes(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"interrupt": func(c *Config) { c.Mode = napi.InterruptDriven },
		"interrupt with ITR": func(c *Config) {
			c.Mode, c.ITR = napi.InterruptDriven, napi.ITR{Policy: napi.ITRStatic, Rate: napi.BulkRate}
		},
		"NAPI with ITR": func(c *Config) { c.ITR = napi.ITR{Policy: napi.ITRDynamic} },
		"budgets of 1":  func(c *Config) { c.VELOBudget, c.RMABudget, c.DeviceBudget = 1, 1, 1 },
		"copying":       func(c *Config) { c.Copy = true },
		"all eager":     func(c *Config) { c.Eager = 6000 },
		"none eager":    func(c *Config) { c.Eager = 1 },
		"8 buffers":     func(c *Config) { c.Buffers = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 2, func(_ int, c *Config, _ *fakeDevice) { change(c) }, func(r *rig) {
				var all [][]byte
				for k := range 200 {
					all = append(all, udp(addr4(0), addr4(1), 1+k*23, k))
				}
				r.n[0].dev.send(all[0])
				r.settle()
				for rest := all[1:]; len(rest) > 0; {
					n := min(5, len(rest))
					r.n[0].dev.send(rest[:n]...)
					rest = rest[n:]
					time.Sleep(time.Millisecond)
				}
				r.settle()
				r.n[1].want(t, all...)
				before := r.n[0].Snapshot().NAPI.Loop.Turns
				time.Sleep(time.Minute)
				if turns := r.n[0].Snapshot().NAPI.Loop.Turns - before; turns > 100 {
					t.Errorf("%d turns in an idle minute", turns)
				}
			})
		})
	}
}

// The interface is usable within half a second. It loses its carrier when the fabric goes.
func TestLifecycle(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		n := r.n[0]
		if up := n.Snapshot().Uptime; up > 600*time.Millisecond {
			t.Errorf("ready after %v", up)
		}
		if !n.dev.carrier {
			t.Error("no carrier")
		}
		n.node.Close()
		if err := <-n.err; !errors.Is(err, ErrFabric) {
			t.Errorf("Run: %v", err)
		}
		if n.dev.carrier {
			t.Error("a carrier without a fabric")
		}
		n.err <- nil

		m := r.n[1]
		m.dev.mu.Lock()
		m.dev.gone = true
		m.dev.mu.Unlock()
		m.dev.notify()
		if err := <-m.err; !errors.Is(err, device.ErrGone) {
			t.Errorf("Run: %v", err)
		}
		m.err <- nil
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := m.Run(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("Run after Close: %v", err)
		}
		m.Snapshot() // after the end: it must not hang
	})
}

// The loop runs with the shortest time slice that the kernel gives (napi.ShortSlice), and wakes
// when its timers are due (napi.SharpTimers).
func TestSlice(t *testing.T) {
	simulate(t, 1, nil, func(r *rig) {
		var ours, loops *unix.SchedAttr
		var err, err2 error
		ours, err = unix.SchedGetAttr(0, 0)
		var late int
		var err3 error
		r.n[0].ask(func() {
			loops, err2 = unix.SchedGetAttr(0, 0)
			late, err3 = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		})
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		if want := min(ours.Runtime, uint64(100*time.Microsecond)); loops.Runtime != want {
			t.Errorf("the loop has slices of %d ns, want %d; others have %d", loops.Runtime, want, ours.Runtime)
		}
		if late != 1000 {
			t.Errorf("the loop's timers may be %d ns late", late)
		}
	})
}

// A cut link leaves the carrier up: the node is still attached, and packets move again when the
// link is restored.
func TestCarrierWithoutLinks(t *testing.T) {
	simulate(t, 2, nil, func(r *rig) {
		p := udp(addr4(0), addr4(1), 100, 1)
		for _, cut := range []bool{true, false} {
			setting := emu.Up
			if cut {
				setting = emu.Down
			}
			r.net.Link(fabric.NodeAny, fabric.NodeAny).Set(setting)
			r.n[0].dev.send(p)
			time.Sleep(10 * time.Second) // let all time-outs pass
			for _, n := range r.n {
				if !n.dev.carrier || !n.Snapshot().Carrier {
					t.Errorf("cut %v: no carrier", cut)
				}
			}
			if got := len(r.n[1].dev.take()); got != 0 && cut {
				t.Errorf("%d packets over links that are cut", got)
			}
		}
		r.n[0].dev.take() // for undelivered packets, their sender got errors
		r.n[0].dev.send(p)
		r.settle()
		r.n[1].want(t, p)
	})
}

// Close ends Run.
func TestCloseWhileRunning(t *testing.T) {
	simulate(t, 1, nil, func(r *rig) {
		if err := r.n[0].Interface.Close(); err != nil {
			t.Error(err)
		}
		if err := <-r.n[0].err; !errors.Is(err, ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		r.n[0].err <- nil
	})
}
