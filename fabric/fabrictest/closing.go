package fabrictest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"exnet/fabric"
)

// closing closes everything twice, concurrently and while it is in use. Later operations return
// ErrClosed, and nothing panics or hangs.
func closing(r *rig) {
	moment := r.settling() / 1000
	n := r.nodes(3)
	for round := range 3 {
		a, b := r.velo(n[0], 1), r.velo(n[1], 1)
		ra, rb := r.rma(n[0], 1), r.rma(n[1], 1)
		spare := r.region(ra, 100, 0)
		target := rb.bell.win.NLA()
		until := func(op func() error) func() error {
			return func() error {
				for end := time.Now().Add(limit); time.Now().Before(end); {
					if err := op(); errors.Is(err, fabric.ErrClosed) {
						return nil
					} else if err != nil && !errors.Is(err, fabric.ErrFull) && !errors.Is(err, fabric.ErrNoPort) && !errors.Is(err, fabric.ErrNoNode) {
						return err
					}
					time.Sleep(moment)
				}
				return fmt.Errorf("an operation on a closed port never says %v", fabric.ErrClosed)
			}
		}
		done := make(chan struct{})
		polling := func(poll func() int) func() error {
			return func() error {
				for {
					select {
					case <-done:
						return nil
					default:
						poll()
						time.Sleep(moment)
					}
				}
			}
		}
		closeAll := func() error {
			time.Sleep(50 * moment)
			var errs []error
			for range 2 {
				errs = append(errs, a.Close(), rb.Close(), b.Close(), ra.Close())
			}
			return errors.Join(errs...)
		}
		r.together(
			until(func() error { return a.Send(to(b.Address()), []byte{1}) }),
			until(func() error { return b.Send(to(a.Address()), []byte{1}) }),
			until(func() error {
				return ra.Post(&fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: allNotifications, To: rb.Address(), Remote: target, Enable: 1})
			}),
			polling(func() int { return a.Poll(a.buf[:]) }), polling(func() int { return b.Poll(b.buf[:]) }),
			polling(func() int { return ra.Poll(ra.buf[:]) }), polling(func() int { return rb.Poll(rb.buf[:]) }),
			func() error {
				defer close(done)
				defer r.settle()
				return parallel(closeAll, closeAll)
			},
		)
		if k := a.Poll(a.buf[:]) + ra.Poll(ra.buf[:]); k != 0 {
			r.Errorf("round %d: %d polled from closed ports", round, k)
		}
		r.released(spare.win) // closing a port deregisters its windows
		_, err := ra.Register(spare.mem, fabric.WindowSpec{Length: 1})
		r.wants("register on a closed port", err, fabric.ErrClosed)
		r.check(spare.mem.Free())
	}

	early, earlyRMA := r.velo(n[2], 1), r.rma(n[2], 1)
	a, ra := r.velo(n[2], 2), r.rma(n[2], 2)
	select {
	case <-n[2].Done():
		r.Error("an open node says that it is closed")
	default:
	}
	r.together(n[2].Close, n[2].Close, early.Close, earlyRMA.Close)
	r.check(n[2].Close())
	select {
	case <-n[2].Done():
	default:
		r.Error("a closed node does not say so")
	}
	r.released(ra.bell.win) // the node closed its ports
	_, reads := n[2].ReadRegister(fabric.RegNodeID)
	_, velo := n[2].OpenVELO(5, fabric.PortInterrupts{})
	_, rma := n[2].OpenRMA(5, fabric.PortInterrupts{})
	_, alloc := n[2].Alloc(100, 0)
	_, irq := n[2].NewInterrupt()
	for what, err := range map[string]error{
		"send":          a.Send(to(fabric.Address{Node: 1, VPID: 1}), []byte{1}),
		"post":          ra.Post(&fabric.RMADescriptor{Command: fabric.Put, Length: 1}),
		"open VELO":     velo,
		"open RMA":      rma,
		"alloc":         alloc,
		"new interrupt": irq,
		"read register": reads,
		"join":          n[2].Join(1),
		"leave":         n[2].Leave(1),
	} {
		r.wants(what+" on a closed node", err, fabric.ErrClosed)
	}
	if k := a.Poll(a.buf[:]) + ra.Poll(ra.buf[:]); k != 0 {
		r.Errorf("%d polled from a closed node", k)
	}
	n[2].Watch(func(fabric.Event) {})() // harmless
}

// allocations: Send, Poll and Post do not allocate in a steady state.
func allocations(r *rig) {
	if r.allocates != "" {
		r.Skip(r.allocates)
	}
	n := r.nodes(2)
	a, b := r.velo(n[0], 1), r.velo(n[1], 1)
	ra, rb := r.rma(n[0], 1), r.rma(n[1], 1)
	local, remote := r.region(ra, 4096, 0), r.region(rb, 4096, fabric.RemoteRead|fabric.RemoteWrite)
	take := func(poll func() int, n int) {
		for end := time.Now().Add(limit); n > 0; {
			if k := poll(); k > 0 {
				n -= k
			} else if runtime.Gosched(); time.Now().After(end) {
				r.Fatalf("nothing to poll in %v", limit)
			}
		}
	}
	message := make([]byte, 64)
	put := operation(fabric.Put, allNotifications, rb, 4096, local.win.NLA(), remote.win.NLA())
	get := operation(fabric.Get, allNotifications, rb, 4096, local.win.NLA(), remote.win.NLA())
	immediate := fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: allNotifications, To: rb.Address(), Remote: remote.win.NLA(), Enable: 0xff}
	pollA, pollB := func() int { return ra.Poll(ra.buf[:]) }, func() int { return rb.Poll(rb.buf[:]) }
	r.check(ra.post(immediate)) // fetches the translation, if the backend has to
	take(pollA, 1)
	take(pollB, 1)
	for what, op := range map[string]func(){
		"VELO": func() {
			r.check(a.Send(to(b.Address()), message))
			take(func() int { return b.Poll(b.buf[:]) }, 1)
		},
		"PUT": func() {
			r.check(ra.Post(&put))
			take(pollA, 1)
			take(pollB, 1)
		},
		"GET": func() {
			r.check(ra.Post(&get))
			take(pollA, 2)
			take(pollB, 1)
		},
		"immediate PUT": func() {
			r.check(ra.Post(&immediate))
			take(pollA, 1)
			take(pollB, 1)
		},
		"arming": func() {
			if b.rx.Arm() {
				b.rx.Wait(0)
			}
		},
	} {
		if k := testing.AllocsPerRun(1000, op); k != 0 {
			r.Errorf("%s allocates %v times", what, k)
		}
	}
}
