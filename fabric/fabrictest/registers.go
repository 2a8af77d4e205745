package fabrictest

import (
	"encoding/binary"
	"slices"

	"exnet/fabric"
)

func registersLocal(r *rig) {
	n := r.node(5)
	for reg := range fabric.RegisterCount {
		r.register(n, reg)
		if !reg.Writable() {
			r.wants("write "+reg.String(), n.WriteRegister(reg, 1), fabric.ErrRights)
		}
	}
	_, err := n.ReadRegister(fabric.RegisterCount)
	r.wants("read no register", err, fabric.ErrRange)
	r.wants("write no register", n.WriteRegister(fabric.RegisterCount, 1), fabric.ErrRange)
	if id := r.register(n, fabric.RegNodeID); id != 5 {
		r.Errorf("node 5 has the ID %d", id)
	}
	r.check(n.WriteRegister(fabric.RegScratch, 0x0123_4567_89ab_cdef))
	if v := r.register(n, fabric.RegScratch); v != 0x0123_4567_89ab_cdef {
		r.Errorf("scratch holds %#x", v)
	}

	// The group register is the membership. A node always stays in the group of all.
	const all = 1 << fabric.GroupAll
	r.check(n.Join(7))
	if v := r.register(n, fabric.RegGroups); v != all|1<<7 {
		r.Errorf("groups %#x after joining 7", v)
	}
	r.check(n.WriteRegister(fabric.RegGroups, 1<<9))
	if v := r.register(n, fabric.RegGroups); v != all|1<<9 {
		r.Errorf("groups %#x after writing 9", v)
	}
	r.eventually("the node is in group 9", func() bool {
		return slices.Equal(n.Members(9), []fabric.NodeID{5}) && len(n.Members(7)) == 0
	})
	r.check(n.Leave(9))
	if v := r.register(n, fabric.RegGroups); v != all {
		r.Errorf("groups %#x after leaving 9", v)
	}
}

// registersRemote reads and writes the register file of another node, and its own, by GET and
// immediate PUT.
func registersRemote(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	sink := r.region(a, 64, 0)
	run := func(d fabric.RMADescriptor) fabric.Fault {
		r.Helper()
		d.Mask |= fabric.NotifyRequester
		r.check(a.post(d))
		got, err := a.next()
		r.check(err)
		return got.Fault
	}
	get := func(target *rma, at fabric.NLA, length int) (uint64, fabric.Fault) {
		r.Helper()
		copy(sink.bytes, []byte("unchanged"))
		fault := run(operation(fabric.Get, 0, target, length, sink.win.NLA(), at))
		return binary.LittleEndian.Uint64(sink.bytes), fault
	}
	put := func(target *rma, reg fabric.Register, data uint64, enable uint8) fabric.Fault {
		r.Helper()
		return run(fabric.RMADescriptor{Command: fabric.ImmediatePut, To: target.Address(), Remote: fabric.RegisterNLA(reg), Data: data, Enable: enable})
	}
	for _, target := range []*rma{b, a} {
		scratch := fabric.RegisterNLA(fabric.RegScratch)
		r.check(target.node.WriteRegister(fabric.RegScratch, 0x1111_1111_1111_1111))
		if f := put(target, fabric.RegScratch, 0x8877_6655_4433_2211, 0xa5); f != fabric.FaultNone {
			r.Errorf("write scratch of %v: %v", target.Address(), f)
		}
		if v, f := get(target, scratch, 8); v != 0x8811_6611_1133_1111 || f != fabric.FaultNone {
			r.Errorf("scratch of %v: %#x, %v", target.Address(), v, f)
		}
		if v := r.register(target.node, fabric.RegScratch); v != 0x8811_6611_1133_1111 {
			r.Errorf("scratch of %v at home: %#x", target.Address(), v)
		}
		if v, f := get(target, fabric.RegisterNLA(fabric.RegNodeID), 8); v != uint64(target.Address().Node) || f != fabric.FaultNone {
			r.Errorf("ID of %v: %d, %v", target.Address(), v, f)
		}
		for reg := range fabric.RegisterCount {
			if _, f := get(target, fabric.RegisterNLA(reg), 8); f != fabric.FaultNone {
				r.Errorf("read %v: %v", reg, f)
			}
			if reg.Writable() {
				continue
			}
			before := r.register(target.node, reg)
			if f := put(target, reg, ^uint64(0)-1, 0xff); f != fabric.FaultRights {
				r.Errorf("write %v: %v, want %v", reg, f, fabric.FaultRights)
			}
			if v := r.register(target.node, reg); v == ^uint64(0)-1 {
				r.Errorf("%v was %d and was overwritten", reg, before)
			}
		}
		for _, bad := range []struct {
			name   string
			at     fabric.NLA
			length int
		}{
			{"4 bytes", scratch, 4},
			{"16 bytes", scratch, 16},
			{"an odd address", scratch + 1, 8},
			{"no register", fabric.RegisterNLA(fabric.RegisterCount), 8},
			{"far behind the registers", 1<<63 | 1<<50, 8},
		} {
			if v, f := get(target, bad.at, bad.length); f == fabric.FaultNone || v != binary.LittleEndian.Uint64([]byte("unchanged")) {
				r.Errorf("read %s: %v, sink %#x", bad.name, f, v)
			}
		}
		if f := run(operation(fabric.Put, 0, target, 8, sink.win.NLA(), scratch)); f == fabric.FaultNone {
			r.Error("a PUT wrote a register")
		}
		if v := r.register(target.node, fabric.RegScratch); v != 0x8811_6611_1133_1111 {
			r.Errorf("scratch of %v after all that: %#x", target.Address(), v)
		}
	}

	// Membership is managed through the register file (NET-7).
	if f := put(b, fabric.RegGroups, 1<<9, 0x02); f != fabric.FaultNone {
		r.Errorf("write groups: %v", f)
	}
	r.eventually("node 2 is in group 9", func() bool { return slices.Equal(n[0].Members(9), []fabric.NodeID{2}) })
}

// counters runs a script and compares every register of every node.
func counters(r *rig) {
	n := r.nodes(3)
	va, vb, vc := r.velo(n[0], 1), r.velo(n[1], 1), r.velo(n[2], 1)
	a, b := r.rma(n[0], 2), r.rma(n[1], 2)
	const windows = 1 // for the bell
	local, remote := r.region(a, 10000, 0), r.region(b, 10000, fabric.RemoteRead|fabric.RemoteWrite)
	want := make([]map[fabric.Register]uint64, 3)
	for i := range want {
		want[i] = map[fabric.Register]uint64{
			fabric.RegNodeID: uint64(i + 1), fabric.RegPeers: 2, fabric.RegGroups: 1 << fabric.GroupAll,
		}
	}
	count := func(node int, reg fabric.Register, k int) { want[node][reg] += uint64(k) }
	take := func(node int, p *velo) {
		m, err := p.next()
		r.check(err)
		count(node, fabric.RegVELOReceived, 1)
		count(node, fabric.RegVELOReceivedBytes, m.Status.Len())
	}
	note := func(node int, p *rma) {
		got, err := p.next()
		r.check(err)
		count(node, fabric.RegRMARequester+fabric.Register(got.Kind-fabric.KindRequester), 1)
		if got.Fault != fabric.FaultNone {
			count(node, fabric.RegRMAFaults, 1)
		}
	}
	count(0, fabric.RegATUWindows, windows+1)
	count(1, fabric.RegATUWindows, windows+1)

	for k := 1; k <= fabric.VELOMaxPayload; k++ {
		r.check(va.send(to(vb.Address()), make([]byte, k)))
		take(1, vb)
		count(0, fabric.RegVELOSent, 1)
		count(0, fabric.RegVELOSentBytes, k)
	}
	r.wants("empty message", va.Send(to(vb.Address()), nil), fabric.ErrLength) // is not counted
	for range 5 {
		r.check(vb.send(fabric.VELODescriptor{To: fabric.Address{Node: 63, VPID: 1}, Multicast: true}, make([]byte, 33)))
		take(0, va)
		take(2, vc)
		count(1, fabric.RegVELOSent, 1)
		count(1, fabric.RegVELOSentBytes, 33)
		count(1, fabric.RegVELOMulticastCopies, 2)
	}
	leaving := r.velo(n[2], 9)
	for range 3 {
		r.check(va.send(to(leaving.Address()), make([]byte, 8)))
		count(0, fabric.RegVELOSent, 1)
		count(0, fabric.RegVELOSentBytes, 8)
		count(2, fabric.RegVELODiscarded, 1)
	}
	r.settle() // what has not arrived yet may be counted only when a later port finds it
	r.check(leaving.Close())

	move := func(d fabric.RMADescriptor) {
		here, there := notified(d, a.Address())
		r.check(a.post(d))
		for range here {
			note(0, a)
		}
		for range there {
			note(1, b)
		}
	}
	for k := range 10 {
		length := 1 + k*999
		move(operation(fabric.Put, allNotifications, b, length, local.win.NLA(), remote.win.NLA()))
		count(0, fabric.RegRMAPuts, 1)
		count(0, fabric.RegRMAPutBytes, length)
		move(operation(fabric.Get, allNotifications, b, length, local.win.NLA(), remote.win.NLA()))
		count(0, fabric.RegRMAGets, 1)
		count(0, fabric.RegRMAGetBytes, length)
		count(0, fabric.RegRMAPackets, 2*fabric.RMAPackets(length))
	}
	for range 4 {
		move(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: allNotifications, To: b.Address(), Remote: remote.win.NLA(), Enable: 1})
		count(0, fabric.RegRMAImmediate, 1)
	}
	r.check(a.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, To: b.Address(), Remote: fabric.MakeNLA(999, 9, 0), Enable: 1}))
	note(0, a)
	count(0, fabric.RegRMAImmediate, 1)
	count(0, fabric.RegATUFaults, 1)

	orphan := r.rma(n[1], 9)
	for range 3 {
		r.check(a.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyCompleter | fabric.NotifyRequester, To: orphan.Address(), Remote: orphan.bell.win.NLA(), Enable: 1}))
		note(0, a)
		count(0, fabric.RegRMAImmediate, 1)
		count(1, fabric.RegRMADiscarded, 1)
	}
	r.settle()
	r.check(orphan.Close())

	count(0, fabric.RegVELOFull, va.refused)
	count(0, fabric.RegRMAFull, a.refused)
	for i := range n {
		for reg := range fabric.RegisterCount {
			switch reg {
			case fabric.RegTLBHits, fabric.RegTLBMisses, fabric.RegChannels:
				// specific to the backend
			case fabric.RegInterrupts, fabric.RegInterruptsSuppressed:
				// depend on which node slept when
			case fabric.RegLinkCRCErrors, fabric.RegLinkRetransmissions: // depend on the network
			default:
				r.counts(n[i], reg, want[i][reg])
			}
		}
	}
}

// soundLinks: without faults on the way, the link counters stay at zero.
func soundLinks(r *rig) {
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	local, remote := r.region(a, 1<<20, 0), r.region(b, 1<<20, fabric.RemoteRead|fabric.RemoteWrite)
	for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
		d := operation(c, allNotifications, b, 1<<20, local.win.NLA(), remote.win.NLA())
		r.check(a.post(d))
		r.expect(d, a, b)
	}
	for _, node := range n {
		for _, reg := range []fabric.Register{fabric.RegLinkCRCErrors, fabric.RegLinkRetransmissions, fabric.RegLinkFailures} {
			if v := r.register(node, reg); v != 0 {
				r.Errorf("node %d: %v is %d", node.ID(), reg, v)
			}
		}
	}
}
