package fabrictest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// interrupts steps through the state machine of an interrupt.
func interrupts(r *rig) {
	n := r.nodes(2)
	a, b := r.velo(n[0], 1), r.velo(n[1], 1)
	irq := b.rx
	one := []byte{1}
	loud, quiet := to(b.Address()), to(b.Address())
	quiet.Quiet = true
	raised := func() (raised, suppressed uint64) {
		for _, node := range n { // the backend chooses which of the two counts
			raised += r.register(node, fabric.RegInterrupts)
			suppressed += r.register(node, fabric.RegInterruptsSuppressed)
		}
		return raised, suppressed
	}
	is := func(what string, got, want bool) {
		r.Helper()
		if got != want {
			r.Errorf("%s: %t, want %t", what, got, want)
		}
	}
	poll := func(want int) {
		r.Helper()
		got := 0
		r.eventually("the messages arrive", func() bool {
			got += b.Poll(b.buf[:])
			return got >= want
		})
		if got != want {
			r.Errorf("polled %d messages, want %d", got, want)
		}
	}
	// arrives sends a message and waits until it is counted.
	arrives := func(raises bool) {
		r.Helper()
		up, idle := raised()
		r.check(a.send(loud, one))
		var up2, idle2 uint64
		r.eventually("the message counts as an interrupt raised or suppressed", func() bool {
			up2, idle2 = raised()
			return up2+idle2 > up+idle
		})
		want := [2]uint64{up, idle + 1}
		if raises {
			want = [2]uint64{up + 1, idle}
		}
		if got := [2]uint64{up2, idle2}; got != want {
			r.Errorf("interrupts raised and suppressed after a message: %d, want %d", got, want)
		}
	}

	irq.Wait(-1) // masked at the start: returns at once
	poll(0)

	is("arm an idle port", irq.Arm(), true)
	is("wait for nothing", irq.Wait(0), false)
	irq.Wait(-1) // masked again by Wait

	is("arm", irq.Arm(), true)
	arrives(true)
	is("wait for a message", irq.Wait(limit), true)
	poll(1)

	arrives(false) // masked
	is("arm with a message waiting", irq.Arm(), false)
	irq.Wait(-1)   // masked again by Arm
	arrives(false) // and one more
	poll(2)

	is("arm", irq.Arm(), true)
	irq.Mask()
	arrives(false)
	irq.Wait(-1) // masked
	is("arm with a message that came while masked", irq.Arm(), false)
	poll(1)

	is("arm", irq.Arm(), true)
	arrives(true)
	arrives(false) // raised already
	irq.Mask()
	is("arm after a raised interrupt was masked", irq.Arm(), false)
	poll(2)

	// A wake-up without work is allowed, but not each time.
	woken := true
	for try := 0; woken && try < 5; try++ {
		is("arm", irq.Arm(), true)
		r.check(a.send(quiet, one))
		woken = irq.Wait(r.settling())
		r.settle()
		poll(1)
	}
	is("quiet messages wake", woken, false)
	is("arm", irq.Arm(), true)
	r.check(a.send(quiet, one))
	arrives(true)
	is("wait for a quiet and a loud message", irq.Wait(limit), true)
	poll(2)

	// Wake works on a present wait and on the next one, armed or not.
	is("arm", irq.Arm(), true)
	r.together(func() error {
		if !irq.Wait(limit) {
			return errors.New("a wait did not end by Wake")
		}
		return nil
	}, func() error {
		r.settle()
		irq.Wake()
		return nil
	})
	irq.Wake()
	is("arm an idle port that was woken", irq.Arm(), true)
	is("wait after a wake", irq.Wait(limit), true)
	is("arm", irq.Arm(), true)
	is("a wake counts once", irq.Wait(0), false)

	// The transmit half: armed before there is room again, and after.
	for _, early := range []bool{true, false} {
		full := r.fill(a.Address(), func(int) error { return a.Send(loud, one) })
		if early {
			is("arm a full port", a.tx.Arm(), true)
		}
		for range full {
			_, err := b.next()
			r.check(err)
		}
		if early {
			is("wait for room", a.tx.Wait(limit), true)
		} else {
			r.eventually("arming finds the room", func() bool { return !a.tx.Arm() })
		}
		r.check(a.Send(loud, one))
		_, err := b.next()
		r.check(err)
		is("arm a port with room", a.tx.Arm(), true)
		a.tx.Mask()
	}

	// Closing ends a present wait and every later one.
	is("arm", irq.Arm(), true)
	r.together(func() error {
		irq.Wait(-1)
		return nil
	}, func() error {
		r.settle()
		return irq.Close()
	})
	irq.Arm()
	irq.Wait(-1)
	r.check(irq.Close())
	r.check(a.send(loud, one)) // the port still works, by polling
	poll(1)
}

// interruptShared: one interrupt serves both units and both halves of a node.
func interruptShared(r *rig) {
	n := r.nodes(2)
	irq := r.interrupt(n[1])
	shared := fabric.PortInterrupts{Receive: irq, Transmit: irq}
	v, err := n[1].OpenVELO(1, shared)
	r.check(err)
	m, err := n[1].OpenRMA(1, shared)
	r.check(err)
	b := &rma{RMA: m, node: n[1], rx: irq, tx: irq}
	remote := r.region(b, 8, fabric.RemoteWrite)
	va, a := r.velo(n[0], 1), r.rma(n[0], 1)
	wakes := func(what string, cause func() error) {
		r.Helper()
		if !irq.Arm() {
			r.Fatalf("%s: there is work already", what)
		}
		r.check(cause())
		if !irq.Wait(limit) {
			r.Fatalf("%s did not wake", what)
		}
	}
	wakes("a message", func() error { return va.send(to(v.Address()), []byte{1}) })
	if v.Poll(make([]fabric.Message, 2)) != 1 {
		r.Error("no message")
	}
	wakes("a notification", func() error {
		return a.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyCompleter, To: b.Address(), Remote: remote.win.NLA(), Enable: 1})
	})
	if b.Poll(make([]fabric.Notification, 2)) != 1 {
		r.Error("no notification")
	}
	full := r.fill(v.Address(), func(int) error { return v.Send(to(va.Address()), []byte{1}) })
	wakes("room", func() error {
		for range full {
			if _, err := va.next(); err != nil {
				return err
			}
		}
		return nil
	})
	if err := v.Send(to(va.Address()), []byte{1}); err != nil {
		r.Errorf("after the transmit interrupt: %v", err)
	}
}

// interruptFD: poll(2) sees a raised interrupt if the backend has descriptors.
func interruptFD(r *rig) {
	n := r.nodes(2)
	a, b := r.velo(n[0], 1), r.velo(n[1], 1)
	fd := b.rx.FD()
	if fd < 0 {
		r.Skip("the backend's interrupts have no descriptors")
	}
	readable := func(timeout time.Duration) bool {
		r.Helper()
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			k, err := unix.Poll(p, int(timeout/time.Millisecond))
			if err != unix.EINTR {
				r.check(err)
				return k == 1
			}
		}
	}
	// The first message between two nodes may raise more than one interrupt.
	r.check(a.send(to(b.Address()), []byte{1}))
	_, err := b.next()
	r.check(err)
	r.settle()
	if b.rx.Arm() {
		b.rx.Wait(0)
	}
	for range 3 {
		if !b.rx.Arm() || readable(0) {
			r.Fatal("an idle interrupt is raised")
		}
		r.check(a.send(to(b.Address()), []byte{1}))
		if !readable(limit) {
			r.Fatal("a message does not make the descriptor readable")
		}
		if !b.rx.Wait(0) || readable(0) {
			r.Fatal("Wait does not consume the interrupt")
		}
		if _, err := b.next(); err != nil {
			r.Fatal(err)
		}
	}
}

// interruptStress: three nodes talk, in both units, to a fourth that answers. All of them sleep
// whenever there is nothing to poll. So thousands of times, one goes to sleep while another is
// about to wake it. A lost wake-up shows as a wait that ends by its limit.
func interruptStress(r *rig) {
	const clients, rounds = 3, 1500
	n := r.nodes(clients + 1)
	b, rb := r.velo(n[clients], 1), r.rma(n[clients], 1)
	var sleeps atomic.Int64
	sleep := func(irq fabric.Interrupt, poll func() int) error {
		for poll() == 0 {
			if !irq.Arm() {
				continue
			}
			sleeps.Add(1)
			if !irq.Wait(limit) {
				return fmt.Errorf("slept %v, and then there were %d to poll", limit, poll())
			}
		}
		return nil
	}
	ring := func(from, at *rma) error {
		return from.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyCompleter,
			To: at.Address(), Remote: at.bell.win.NLA(), Enable: 1})
	}
	polled := func(p *velo) func() int { return func() int { return p.Poll(p.buf[:1]) } }
	notified := func(p *rma) func() int { return func() int { return p.Poll(p.buf[:1]) } }
	bells := make(map[fabric.NodeID]*rma)
	var work []func() error
	for i := range clients {
		a, ra := r.velo(n[i], 1), r.rma(n[i], 1)
		bells[n[i].ID()] = ra
		work = append(work, func() error {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for range rounds {
				if err := a.send(to(b.Address()), []byte{1}); err != nil {
					return err
				}
				r.pause(rng)
				if err := sleep(a.rx, polled(a)); err != nil {
					return err
				}
			}
			return nil
		}, func() error {
			rng := rand.New(rand.NewPCG(uint64(i), 10))
			for range rounds {
				if err := ring(ra, rb); err != nil {
					return err
				}
				r.pause(rng)
				if err := sleep(ra.rx, notified(ra)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	work = append(work, func() error {
		rng := rand.New(rand.NewPCG(1, 11))
		for range clients * rounds {
			if err := sleep(b.rx, polled(b)); err != nil {
				return err
			}
			r.pause(rng)
			if err := b.send(to(b.buf[0].Status.Source()), []byte{1}); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		rng := rand.New(rand.NewPCG(1, 12))
		for range clients * rounds {
			if err := sleep(rb.rx, notified(rb)); err != nil {
				return err
			}
			r.pause(rng)
			if err := ring(rb, bells[rb.buf[0].Peer.Node]); err != nil {
				return err
			}
		}
		return nil
	})
	r.together(work...)
	if got := sleeps.Load(); got < 2*rounds {
		r.Errorf("only %d sleeps, the test wants thousands", got)
	}
}
