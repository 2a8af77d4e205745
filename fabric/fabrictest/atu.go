package fabrictest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"exnet/fabric"
)

// atuViolations: each violation gives the requester one notification with its fault and the target
// none, and changes no byte anywhere.
func atuViolations(r *rig) {
	const size = 4096
	n := r.nodes(4)
	a, foreign := r.rma(n[0], 3), r.rma(n[0], 4)
	b, other := r.rma(n[1], 5), r.rma(n[1], 6)
	rw := fabric.RemoteRead | fabric.RemoteWrite
	local, theirs := r.region(a, size, 0), r.region(foreign, size, rw)
	both, readable, writable := r.region(b, size, rw), r.region(b, size, fabric.RemoteRead), r.region(b, size, fabric.RemoteWrite)
	regions := []*region{local, theirs, both, readable, writable}

	gone, goneHere := r.region(b, size, rw), r.region(a, size, rw)
	for _, g := range []*region{gone, goneHere} {
		r.check(g.win.Deregister())
		r.released(g.win)
	}
	closed := r.rma(n[1], 7)
	orphan := r.region(closed, size, rw)
	r.check(closed.Close())
	r.check(n[3].Close())

	put, get := fabric.Put, fabric.Get
	immediate := fabric.ImmediatePut
	for _, c := range []struct {
		name          string
		command       fabric.Command
		to            fabric.Address
		local, remote fabric.NLA
		length        int
		want          fabric.Fault
	}{
		{"deregistered there", put, b.Address(), local.win.NLA(), gone.win.NLA(), 100, fabric.FaultStale},
		{"deregistered there", get, b.Address(), local.win.NLA(), gone.win.NLA(), 100, fabric.FaultStale},
		{"deregistered there", immediate, b.Address(), 0, gone.win.NLA(), 8, fabric.FaultStale},
		{"deregistered here", put, b.Address(), goneHere.win.NLA(), both.win.NLA(), 100, fabric.FaultStale},
		{"deregistered here", get, b.Address(), goneHere.win.NLA(), both.win.NLA(), 100, fabric.FaultStale},
		{"never registered", put, b.Address(), local.win.NLA(), fabric.MakeNLA(1000, 7, 0), 100, fabric.FaultStale},
		{"port closed", put, closed.Address(), local.win.NLA(), orphan.win.NLA(), 100, fabric.FaultStale},
		{"port closed", get, closed.Address(), local.win.NLA(), orphan.win.NLA(), 100, fabric.FaultStale},

		{"not writable", put, b.Address(), local.win.NLA(), readable.win.NLA(), 100, fabric.FaultRights},
		{"not writable", immediate, b.Address(), 0, readable.win.NLA(), 8, fabric.FaultRights},
		{"not readable", get, b.Address(), local.win.NLA(), writable.win.NLA(), 100, fabric.FaultRights},

		{"named after another VPID", put, other.Address(), local.win.NLA(), both.win.NLA(), 100, fabric.FaultVPID},
		{"named after another VPID", get, other.Address(), local.win.NLA(), both.win.NLA(), 100, fabric.FaultVPID},
		{"named after another VPID", immediate, other.Address(), 0, both.win.NLA(), 8, fabric.FaultVPID},
		{"another port's source", put, b.Address(), theirs.win.NLA(), both.win.NLA(), 100, fabric.FaultVPID},
		{"another port's sink", get, b.Address(), theirs.win.NLA(), both.win.NLA(), 100, fabric.FaultVPID},

		{"a byte over the end there", put, b.Address(), local.win.NLA(), both.win.NLA() + 1, size, fabric.FaultRange},
		{"a byte over the end there", get, b.Address(), local.win.NLA(), both.win.NLA() + 1, size, fabric.FaultRange},
		{"a byte over the end there", immediate, b.Address(), 0, both.win.NLA() + size - 7, 8, fabric.FaultRange},
		{"behind the end there", put, b.Address(), local.win.NLA(), both.win.NLA() + 1<<30, 1, fabric.FaultRange},
		{"a byte over the end here", put, b.Address(), local.win.NLA() + 1, both.win.NLA(), size, fabric.FaultRange},
		{"a byte over the end here", get, b.Address(), local.win.NLA() + 1, both.win.NLA(), size, fabric.FaultRange},

		{"unknown node", put, fabric.Address{Node: 77, VPID: 5}, local.win.NLA(), both.win.NLA(), 100, fabric.FaultNode},
		{"unknown node", get, fabric.Address{Node: 77, VPID: 5}, local.win.NLA(), both.win.NLA(), 100, fabric.FaultNode},
		{"unknown node", immediate, fabric.Address{Node: 77, VPID: 5}, 0, both.win.NLA(), 8, fabric.FaultNode},
		{"node that left", put, fabric.Address{Node: 4, VPID: 5}, local.win.NLA(), both.win.NLA(), 100, fabric.FaultNode},
	} {
		for _, mask := range []fabric.Mask{0, allNotifications} {
			var before [][]byte
			for i, g := range regions {
				copy(g.bytes, random(uint64(i), size))
				before = append(before, slices.Clone(g.bytes))
			}
			faults := r.register(n[0], fabric.RegATUFaults)
			d := fabric.RMADescriptor{Command: c.command, Mask: mask, To: c.to, Local: c.local, Remote: c.remote, Length: c.length, Data: ^uint64(0), Enable: 0xff}
			r.check(a.post(d))
			got, err := a.next()
			r.check(err)
			want := fabric.Notification{Command: c.command, Kind: fabric.KindRequester, Fault: c.want, Peer: c.to, Local: c.local, Count: c.length}
			if got != want {
				r.Errorf("%v, %s, mask %03b: notified %+v, want %+v", c.command, c.name, mask, got, want)
			}
			if here, there := r.flush(a, b); len(here)+len(there) > 0 {
				r.Errorf("%v, %s, mask %03b: further notifications %+v, %+v", c.command, c.name, mask, here, there)
			}
			for i, g := range regions {
				if !bytes.Equal(g.bytes, before[i]) {
					r.Errorf("%v, %s, mask %03b: memory %d was touched", c.command, c.name, mask, i)
				}
			}
			counted := r.register(n[0], fabric.RegATUFaults) - faults
			if isATU := c.want != fabric.FaultNode; isATU != (counted == 1) || counted > 1 {
				r.Errorf("%v, %s, mask %03b: %d ATU faults counted", c.command, c.name, mask, counted)
			}
		}
	}
	if k := other.Poll(other.buf[:]); k != 0 {
		r.Errorf("the foreign VPID got %d notifications", k)
	}
	// The last byte of a window is inside it, and the owner needs no rights.
	d := operation(fabric.Get, allNotifications, b, size, local.win.NLA(), readable.win.NLA())
	r.check(a.post(d))
	r.expect(d, a, b)
}

func atuRegister(r *rig) {
	n := r.nodes(2)
	a := r.rma(n[0], 3)
	for _, size := range []int{0, -1} {
		_, err := n[0].Alloc(size, 0)
		r.wants("allocate nothing", err, fabric.ErrRange)
	}
	_, err := n[0].Alloc(1<<50, 0)
	r.wants("allocate 1 PiB", err, fabric.ErrMemory, fabric.ErrRange)

	mem := r.alloc(n[0], 10*4096, fabric.RemoteRead)
	if b := mem.Bytes(); len(b) != 10*4096 || slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		r.Errorf("%d bytes of memory, or not zeroed", len(b))
	}
	for _, c := range []struct {
		name string
		w    fabric.WindowSpec
		want error
	}{
		{"write right on readable memory", fabric.WindowSpec{Rights: fabric.RemoteWrite, Length: 1}, fabric.ErrRights},
		{"both rights on readable memory", fabric.WindowSpec{Rights: fabric.RemoteRead | fabric.RemoteWrite, Length: 1}, fabric.ErrRights},
		{"no bytes", fabric.WindowSpec{}, fabric.ErrRange},
		{"over the end", fabric.WindowSpec{Offset: 1, Length: 10 * 4096}, fabric.ErrRange},
		{"page size 3", fabric.WindowSpec{PageSize: 3, Length: 1}, fabric.ErrRange},
		{"page behind the end", fabric.WindowSpec{Length: 1, Pages: []int{10}}, fabric.ErrRange},
		{"missing page", fabric.WindowSpec{Length: 4097, Pages: []int{1}}, fabric.ErrRange},
	} {
		if w, err := a.Register(mem, c.w); err == nil {
			r.Errorf("%s: registered as %v", c.name, w.NLA())
		} else {
			r.wants(c.name, err, c.want)
		}
	}
	if _, err := r.rma(n[1], 3).Register(mem, fabric.WindowSpec{Length: 1}); err == nil {
		r.Error("another node's memory was registered")
	}

	windows := r.register(n[0], fabric.RegATUWindows)
	w, err := a.Register(mem, fabric.WindowSpec{Rights: fabric.RemoteRead, Offset: 5, Length: 100})
	r.check(err)
	if w.Len() != 100 || w.NLA().Offset() != 0 || r.register(n[0], fabric.RegATUWindows) != windows+1 {
		r.Errorf("window %v of %d bytes, %d windows", w.NLA(), w.Len(), r.register(n[0], fabric.RegATUWindows))
	}
	r.wants("free memory under a window", mem.Free(), fabric.ErrInUse)
	r.check(w.Deregister())
	r.released(w)
	if got := r.register(n[0], fabric.RegATUWindows); got != windows {
		r.Errorf("%d windows after deregistering, want %d", got, windows)
	}
	r.check(mem.Free())
}

// A layout is a window of shuffled pages that knows where its bytes are.
type layout struct {
	*region
	spec fabric.WindowSpec
}

// pieces calls f for the pieces of memory that hold n bytes at offset i of the window, in order.
func (l layout) pieces(i, n int, f func(piece []byte)) {
	page := l.spec.PageSize.Bytes()
	for at := l.spec.Offset + i; n > 0; {
		in := at % page
		piece := l.bytes[l.spec.Pages[at/page]*page+in:][:min(n, page-in)]
		f(piece)
		at, n = at+len(piece), n-len(piece)
	}
}

// shuffled makes a window of some of the pages of a memory.
func (r *rig) shuffled(p *rma, rng *rand.Rand, ps fabric.PageSize, total int, rights fabric.Rights) layout {
	page := ps.Bytes()
	used := 2 + rng.IntN(total-2)
	w := fabric.WindowSpec{Rights: rights, PageSize: ps, Offset: rng.IntN(page), Pages: rng.Perm(total)[:used]}
	w.Length = (used-1)*page - w.Offset + 1 + rng.IntN(page)
	return layout{r.window(p, total*page, w), w}
}

// atuPageLists moves data between windows of shuffled pages with a first-byte offset and a partial
// last page. It checks every byte of both memories.
func atuPageLists(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	rng := rand.New(rand.NewPCG(8, 8))
	for round, v := range []struct {
		ps    fabric.PageSize
		total int
	}{{fabric.Page4K, 6}, {fabric.Page4K, 6}, {fabric.Page8K, 6}, {fabric.Page8K, 6}, {fabric.Page64K, 5}, {fabric.Page64K, 5}, {fabric.Page2M, 3}} {
		for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
			local := r.shuffled(a, rng, v.ps, v.total, 0)
			remote := r.shuffled(b, rng, v.ps, v.total, fabric.RemoteRead|fabric.RemoteWrite)
			length := min(local.spec.Length, remote.spec.Length, fabric.RMAMaxLength)
			i, k := rng.IntN(local.spec.Length-length+1), rng.IntN(remote.spec.Length-length+1)
			if length > 5000 && round%2 == 1 { // sometimes strictly inside the window
				i, k, length = i+7, k+70, length-777
			}
			d := operation(c, allNotifications, b, length, local.win.NLA()+fabric.NLA(i), remote.win.NLA()+fabric.NLA(k))
			src, dst, si, di := local, remote, i, k
			if c == fabric.Get {
				src, dst, si, di = remote, local, k, i
			}
			copy(src.bytes, random(uint64(round), len(src.bytes)))
			copy(dst.bytes, random(uint64(round)+100, len(dst.bytes)))
			want := layout{&region{bytes: slices.Clone(dst.bytes)}, dst.spec}
			wantSrc := slices.Clone(src.bytes)
			var data []byte
			src.pieces(si, length, func(piece []byte) { data = append(data, piece...) })
			want.pieces(di, length, func(piece []byte) { data = data[copy(piece, data):] })
			r.check(a.post(d))
			r.expect(d, a, b)
			if !bytes.Equal(dst.bytes, want.bytes) || !bytes.Equal(src.bytes, wantSrc) {
				r.Errorf("%v of %d bytes between %+v and %+v: memory is not as it should be", c, length, local.spec, remote.spec)
			}
		}
	}
}

// atuDeferred deregisters each window of an operation right after posting it. The local window is
// in use, so the operation is not harmed. At the remote window the operation has started or it has
// not. Once a window is released, its memory belongs to its owner: the operation neither reads nor
// writes it any more.
func atuDeferred(r *rig) {
	const size = 256 << 10
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	for round := range 12 {
		for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
			for _, here := range []bool{true, false} {
				local, remote := r.region(a, size, 0), r.region(b, size, fabric.RemoteRead|fabric.RemoteWrite)
				src, dst := local, remote
				if c == fabric.Get {
					src, dst = remote, local
				}
				old, data := random(1, size), random(uint64(round)+2, size)
				copy(dst.bytes, old)
				copy(src.bytes, data)
				leaving := remote
				if here {
					leaving = local
				}
				stale := leaving.win.NLA()
				r.check(a.post(operation(c, fabric.NotifyRequester, b, size, local.win.NLA(), remote.win.NLA())))
				if !here {
					for range round % 10 { // sooner or later in the operation
						r.pause(rand.New(rand.NewPCG(uint64(round), 5)))
					}
				}
				r.check(leaving.win.Deregister())
				r.released(leaving.win)
				atRelease := slices.Clone(leaving.bytes)
				if leaving == src {
					clear(src.bytes)
				}
				done, err := a.next()
				r.check(err)
				switch {
				case done.Fault == fabric.FaultNone:
					if !bytes.Equal(dst.bytes, data) {
						r.Fatalf("%v, local %t: wrong data after deregistering under way", c, here)
					}
				case done.Fault == fabric.FaultStale && !here:
					if !bytes.Equal(dst.bytes, old) {
						r.Fatalf("%v: a stale address was written", c)
					}
				default:
					r.Fatalf("%v, local %t: %+v", c, here, done)
				}
				if leaving == dst && !bytes.Equal(dst.bytes, atRelease) {
					r.Fatalf("%v, local %t: memory was written after its release", c, here)
				}
				// From now on the address is stale.
				d := operation(fabric.Put, 0, b, 1, stale, remote.win.NLA())
				if !here {
					d = operation(fabric.Put, 0, b, 1, local.win.NLA(), stale)
				}
				r.check(a.post(d))
				if n, err := a.next(); err != nil || n.Fault != fabric.FaultStale {
					r.Fatalf("%v, local %t: %+v, %v after deregistering", c, here, n, err)
				}
				for _, g := range []*region{local, remote} {
					if g != leaving {
						r.check(g.win.Deregister())
						r.released(g.win)
					}
					r.check(g.mem.Free())
				}
			}
		}
	}
}
