package fabrictest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"exnet/fabric"
)

const allNotifications = fabric.NotifyRequester | fabric.NotifyResponder | fabric.NotifyCompleter

// operation makes a PUT or GET of n bytes between the starts of two windows.
func operation(c fabric.Command, m fabric.Mask, target *rma, n int, local, remote fabric.NLA) fabric.RMADescriptor {
	return fabric.RMADescriptor{Command: c, Mask: m, To: target.Address(), Length: n, Local: local, Remote: remote}
}

// notified lists the notifications of an operation, at the port that posted it and at its target
// (Table 3.1, RMA-7).
func notified(d fabric.RMADescriptor, from fabric.Address) (here, there []fabric.Notification) {
	n := fabric.Notification{Command: d.Command, Peer: d.To, Count: d.Length}
	add := func(list *[]fabric.Notification, bit fabric.Mask, k fabric.Kind, peer fabric.Address, local fabric.NLA) {
		if d.Mask&bit != 0 {
			n.Kind, n.Peer, n.Local = k, peer, local
			*list = append(*list, n)
		}
	}
	add(&here, fabric.NotifyRequester, fabric.KindRequester, d.To, d.Local)
	switch d.Command {
	case fabric.Put:
		add(&there, fabric.NotifyCompleter, fabric.KindCompleter, from, fabric.LastPacket(d.Remote, d.Length))
	case fabric.Get:
		add(&there, fabric.NotifyResponder, fabric.KindResponder, from, fabric.LastPacket(d.Remote, d.Length))
		add(&here, fabric.NotifyCompleter, fabric.KindCompleter, d.To, fabric.LastPacket(d.Local, d.Length))
	case fabric.ImmediatePut:
		n.Count = 8
		add(&there, fabric.NotifyCompleter, fabric.KindCompleter, from, d.Remote)
		if len(here) > 0 {
			here[0].Count = 8
		}
	}
	return here, there
}

// take waits for n notifications.
func (r *rig) take(p *rma, n int) []fabric.Notification {
	r.Helper()
	var got []fabric.Notification
	for range n {
		note, err := p.next()
		r.check(err)
		got = append(got, note)
	}
	return got
}

func byKind(a, b fabric.Notification) int { return cmp.Compare(a.Kind, b.Kind) }

// expect checks that an operation gave exactly its notifications, here and there, in any order.
func (r *rig) expect(d fabric.RMADescriptor, p, target *rma) {
	r.Helper()
	wantHere, wantThere := notified(d, p.Address())
	if p == target {
		wantHere, wantThere = append(wantHere, wantThere...), nil
	}
	here, there := r.take(p, len(wantHere)), r.take(target, len(wantThere))
	moreHere, moreThere := r.flush(p, target)
	here, there = append(here, moreHere...), append(there, moreThere...)
	slices.SortFunc(here, byKind)
	slices.SortFunc(wantHere, byKind)
	if !slices.Equal(here, wantHere) || !slices.Equal(there, wantThere) {
		r.Fatalf("%v of %d bytes, mask %03b:\nhere  %+v\n want %+v\nthere %+v\n want %+v", d.Command, d.Length, d.Mask, here, wantHere, there, wantThere)
	}
}

func rmaMasks(r *rig) {
	const size, at = 10000, 123
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 200)
	local, remote := r.region(a, size, 0), r.region(b, size, fabric.RemoteRead|fabric.RemoteWrite)
	seed := uint64(0)
	for _, length := range []int{1, 495, 496, 497, 992, 1514, 9014} {
		for mask := range allNotifications + 1 {
			for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
				seed++
				d := operation(c, mask, b, length, local.win.NLA()+at, remote.win.NLA()+2*at)
				src, dst := local.bytes[at:], remote.bytes[2*at:]
				if c == fabric.Get {
					src, dst = dst, src
				}
				want := random(seed, length)
				copy(src, want)
				clear(dst)
				r.check(a.post(d))
				r.expect(d, a, b)
				if !bytes.Equal(dst[:length], want) {
					r.Fatalf("%v of %d bytes, mask %03b: the data did not arrive", c, length, mask)
				}
				if i := slices.IndexFunc(dst[length:], func(b byte) bool { return b != 0 }); i >= 0 {
					r.Fatalf("%v of %d bytes wrote byte %d", c, length, length+i)
				}
			}
		}
	}
	for mask := range allNotifications + 1 {
		d := fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: mask, To: b.Address(), Remote: remote.win.NLA() + 77, Data: uint64(mask) + 1<<56, Enable: 0xff}
		r.check(a.post(d))
		r.expect(d, a, b)
		if got := binary.LittleEndian.Uint64(remote.bytes[77:]); got != d.Data {
			r.Fatalf("immediate put, mask %03b: %#x arrived, want %#x", mask, got, d.Data)
		}
	}
}

func rmaRefuses(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	local, remote := r.region(a, 100, 0), r.region(b, 100, fabric.RemoteWrite)
	good := operation(fabric.Put, allNotifications, b, 10, local.win.NLA(), remote.win.NLA())
	for _, c := range []struct {
		name   string
		change func(*fabric.RMADescriptor)
		want   error
	}{
		{"length 0", func(d *fabric.RMADescriptor) { d.Length = 0 }, fabric.ErrLength},
		{"negative length", func(d *fabric.RMADescriptor) { d.Length = -1 }, fabric.ErrLength},
		{"8 MiB + 1", func(d *fabric.RMADescriptor) { d.Length = fabric.RMAMaxLength + 1 }, fabric.ErrLength},
		{"no byte enabled", func(d *fabric.RMADescriptor) { d.Command = fabric.ImmediatePut }, fabric.ErrLength},
		{"no command", func(d *fabric.RMADescriptor) { d.Command = 0 }, fabric.ErrRange},
		{"unknown command", func(d *fabric.RMADescriptor) { d.Command = 9 }, fabric.ErrRange},
		{"unknown mask bit", func(d *fabric.RMADescriptor) { d.Mask = 8 }, fabric.ErrRange},
		{"VPID 256", func(d *fabric.RMADescriptor) { d.To.VPID = fabric.VPIDCount }, fabric.ErrRange},
	} {
		d := good
		c.change(&d)
		r.wants(c.name, a.Post(&d), c.want)
	}
	if here, there := r.flush(a, b); len(here)+len(there) > 0 {
		r.Errorf("refused operations were notified: %v, %v", here, there)
	}
}

// rmaSplit moves data of the sizes in RMA-8 and checks that the last packet is where the
// notifications say.
func rmaSplit(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	local := r.region(a, fabric.RMAMaxLength, 0)
	remote := r.region(b, fabric.RMAMaxLength, fabric.RemoteRead|fabric.RemoteWrite)
	for i, v := range []struct{ length, packets, last int }{{65549, 133, 77}, {fabric.RMAMaxLength, 16913, 256}} {
		for k, c := range []fabric.Command{fabric.Put, fabric.Get} {
			src, dst := local, remote
			if c == fabric.Get {
				src, dst = remote, local
			}
			want := random(uint64(2*i+k), v.length)
			copy(src.bytes, want)
			clear(dst.bytes)
			before := r.register(n[0], fabric.RegRMAPackets)
			d := operation(c, allNotifications, b, v.length, local.win.NLA(), remote.win.NLA())
			r.check(a.post(d))
			r.expect(d, a, b)
			if !bytes.Equal(dst.bytes[:v.length], want) {
				r.Errorf("%v of %d bytes: the data did not arrive", c, v.length)
			}
			if got := r.register(n[0], fabric.RegRMAPackets) - before; got != uint64(v.packets) {
				r.Errorf("%v of %d bytes took %d packets, want %d", c, v.length, got, v.packets)
			}
			if got := fabric.LastPacket(d.Remote, v.length) - d.Remote; int(got) != v.length-v.last {
				r.Errorf("the last packet of %d bytes is at %d, want %d", v.length, got, v.length-v.last)
			}
		}
	}
}

func rmaImmediate(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	// The word may cross two pages, which need not be neighbours.
	remote := r.window(b, 3*4096, fabric.WindowSpec{Rights: fabric.RemoteWrite, Length: 4100, Pages: []int{2, 0}})
	place := func(i int) int {
		if i < 4096 {
			return 2*4096 + i
		}
		return i - 4096
	}
	const data uint64 = 0x8877_6655_4433_2211
	for _, c := range []struct {
		at     int
		enable uint8
		count  int
	}{{0, 0xff, 8}, {4092, 0xff, 8}, {4091, 0xa5, 4}, {100, 0x10, 1}, {4099, 0x01, 1}, {4096, 0x0f, 4}} {
		want := random(uint64(c.at), len(remote.bytes))
		copy(remote.bytes, want)
		for i := range 8 {
			if c.enable>>i&1 == 1 {
				want[place(c.at+i)] = byte(data >> (8 * i))
			}
		}
		d := fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: allNotifications, To: b.Address(),
			Remote: remote.win.NLA() + fabric.NLA(c.at), Data: data, Enable: c.enable}
		r.check(a.post(d))
		done, err := b.next()
		r.check(err)
		if !bytes.Equal(remote.bytes, want) {
			r.Errorf("enable %08b at %d wrote something else", c.enable, c.at)
		}
		req, err := a.next()
		r.check(err)
		if req.Kind != fabric.KindRequester || req.Fault != fabric.FaultNone || req.Count != c.count || done.Kind != fabric.KindCompleter || done.Count != c.count {
			r.Errorf("enable %08b at %d: %+v, %+v, want %d bytes", c.enable, c.at, req, done, c.count)
		}
	}
}

// rmaVisibility: a node that learns of a PUT sees all of its data. It may learn by the completer
// notification, or by a VELO message that was sent later with After set.
func rmaVisibility(r *rig) {
	const size, rounds = 64 << 10, 150
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	va, vb := r.velo(n[0], 3), r.velo(n[1], 4)
	local, remote := r.region(a, size, 0), r.region(b, size, fabric.RemoteWrite)
	rng := rand.New(rand.NewPCG(6, 6))
	for round := range uint64(rounds) {
		length := 1 + rng.IntN(size)
		want := random(round, length)
		copy(local.bytes, want)
		mask := fabric.NotifyRequester // so that the source may be changed
		if round%2 == 0 {
			mask |= fabric.NotifyCompleter
		}
		r.together(func() error {
			if err := a.post(operation(fabric.Put, mask, b, length, local.win.NLA(), remote.win.NLA())); err != nil {
				return err
			}
			if round%2 == 1 {
				after := to(vb.Address())
				after.After = true
				if err := va.send(after, []byte{1}); err != nil {
					return err
				}
			}
			_, err := a.next()
			return err
		}, func() error {
			var err error
			if round%2 == 0 {
				_, err = b.next()
			} else {
				_, err = vb.next()
			}
			if err == nil && !bytes.Equal(remote.bytes[:length], want) {
				err = fmt.Errorf("round %d: %d bytes were not all visible", round, length)
			}
			return err
		})
	}
}

// rmaBackPressure: notifications that nobody polls stop the poster. When they are polled, none is
// missing, none comes twice, and each queue is in order.
func rmaBackPressure(r *rig) {
	n := r.nodes(2)
	for i, mask := range []fabric.Mask{fabric.NotifyRequester, fabric.NotifyCompleter, allNotifications} {
		a, b := r.rma(n[0], fabric.VPID(i)), r.rma(n[1], fabric.VPID(i))
		local, remote := r.region(a, 1<<16, 0), r.region(b, 1<<16, fabric.RemoteWrite)
		put := func(k int) fabric.RMADescriptor { // the length is the operation's number
			return operation(fabric.Put, mask, b, 1+k%(1<<16), local.win.NLA(), remote.win.NLA())
		}
		r.check(a.post(put(0))) // a backend may have to fetch the translation first
		full := r.register(n[0], fabric.RegRMAFull)
		ahead := 1 + r.fill(a.Address(), func(k int) error { d := put(k + 1); return a.Post(&d) })
		if r.register(n[0], fabric.RegRMAFull) == full {
			r.Error("the refusal is not counted")
		}
		total := 3*ahead + 500
		take := func(p *rma, kind fabric.Kind) func() error {
			return func() error {
				rng := rand.New(rand.NewPCG(uint64(kind), 1))
				for k := range total {
					got, err := p.next()
					if err != nil {
						return err
					}
					if want := put(k).Length; got.Kind != kind || got.Count != want || got.Fault != fabric.FaultNone {
						return fmt.Errorf("%v: notification %d is %+v, want a %v of %d bytes", p.Address(), k, got, kind, want)
					}
					r.pause(rng)
				}
				return nil
			}
		}
		work := []func() error{func() error {
			for k := ahead; k < total; k++ {
				if err := a.post(put(k)); err != nil {
					return err
				}
			}
			return nil
		}}
		if mask&fabric.NotifyRequester != 0 {
			work = append(work, take(a, fabric.KindRequester))
		}
		if mask&fabric.NotifyCompleter != 0 {
			work = append(work, take(b, fabric.KindCompleter))
		}
		r.together(work...)
		if here, there := r.flush(a, b); len(here)+len(there) > 0 {
			r.Errorf("mask %03b: %d and %d notifications too many", mask, len(here), len(there))
		}
	}
}

func rmaFairness(r *rig) {
	const senders = 3
	n := r.nodes(senders + 2)
	b := r.rma(n[senders+1], 1)
	immediate := fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyCompleter, To: b.Address(), Remote: b.bell.win.NLA(), Enable: 1}
	least := 0
	for i := range senders {
		p := r.rma(n[i], 1)
		r.check(p.post(immediate)) // a backend may have to fetch the translation first
		k := 1 + r.fill(p.Address(), func(int) error { return p.Post(&immediate) })
		if i == 0 || k < least {
			least = k
		}
	}
	r.check(r.rma(n[senders], 1).post(immediate))
	r.settle() // let all of it arrive

	const batch = 8
	order := make([]fabric.NodeID, 0, senders*least/2+batch)
	for len(order) < senders*least/2 {
		got := make([]fabric.Notification, batch)
		k := 0
		r.eventually("there is a backlog", func() bool {
			k = b.Poll(got)
			return k > 0
		})
		for i := range k {
			order = append(order, got[i].Peer.Node)
		}
	}
	r.fair(order, senders, batch)
}

// rmaInPlace: a GET whose sink is a function sees the source where it lies.
func rmaInPlace(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	get, ok := a.RMA.(fabric.InPlace)
	if !ok {
		r.Skip("the backend does not map its peers' memory")
	}
	remote := r.window(b, 5*4096, fabric.WindowSpec{Rights: fabric.RemoteRead, Offset: 100, Length: 9000, Pages: []int{4, 0, 2}})
	copy(remote.bytes, random(1, len(remote.bytes)))
	want := slices.Concat(remote.bytes[4*4096+100:], remote.bytes[:4096], remote.bytes[2*4096:][:4096])[50:][:8500]
	const mine fabric.NLA = 12345 // returned unchanged
	d := operation(fabric.Get, fabric.NotifyCompleter|fabric.NotifyResponder, b, 8500, mine, remote.win.NLA()+50)

	failed := errors.New("the sink failed")
	woken := 0 // a wake-up without work is allowed, but not each time
	for _, result := range []error{nil, failed, nil, nil} {
		if !b.rx.Arm() {
			r.Error("the responder has notifications left")
		}
		var got []byte
		calls := 0
		err := a.retry(func() error {
			return get.GetInPlace(&d, func(src []byte) error {
				calls++
				got = append(got, src...)
				if len(got) == len(want) {
					return result
				}
				return nil
			})
		})
		if !errors.Is(err, result) || !bytes.Equal(got, want) || calls != 3 {
			r.Fatalf("got %d bytes in %d calls, %v", len(got), calls, err)
		}
		done, err := a.next()
		r.check(err)
		if done.Kind != fabric.KindCompleter || done.Local != fabric.LastPacket(mine, 8500) || done.Fault != fabric.FaultNone {
			r.Errorf("completer %+v", done)
		}
		if b.rx.Wait(r.settling()) { // this masks
			woken++
		}
		if b.rx.Arm() {
			r.Error("the responder sleeps although a GET in place is over")
		}
		there, err := b.next()
		r.check(err)
		if there.Kind != fabric.KindResponder || there.Local != fabric.LastPacket(d.Remote, 8500) {
			r.Errorf("responder %+v", there)
		}
	}
	if woken == 4 {
		r.Error("GETs in place wake the responder")
	}
	if !b.rx.Arm() {
		r.Error("the responder has notifications left")
	}
	for range 2 {
		r.check(a.retry(func() error { return get.GetInPlace(&d, func([]byte) error { return nil }) }))
	}
	get.Raise(b.Address())
	if !b.rx.Wait(limit) {
		r.Error("Raise did not wake the responder")
	}
	get.Raise(fabric.Address{Node: b.Address().Node, VPID: 200}) // a port that is not open
	r.flush(a, b)

	d.Length = 9000
	get.GetInPlace(&d, func([]byte) error {
		r.Error("the sink was called although the source is out of range")
		return nil
	})
	if n, err := a.next(); err != nil || n.Fault != fabric.FaultRange || n.Kind != fabric.KindRequester {
		r.Errorf("%+v, %v", n, err)
	}
	if here, there := r.flush(a, b); len(here)+len(there) > 0 {
		r.Errorf("notifications too many: %v, %v", here, there)
	}
}
