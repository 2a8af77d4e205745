package fabrictest

import (
	"slices"

	"exnet/fabric"
)

// multicastGroups: in every group each member gets the message. Other nodes do not, and neither
// does the sender, member or not.
func multicastGroups(r *rig) {
	n := r.nodes(4)
	ports := make([]*velo, len(n))
	for i := range n {
		ports[i] = r.velo(n[i], 7)
	}
	r.wants("leave the group of all", n[0].Leave(fabric.GroupAll), fabric.ErrRange)
	r.wants("join group 64", n[0].Join(fabric.GroupCount), fabric.ErrRange)
	r.wants("leave group 64", n[0].Leave(fabric.GroupCount), fabric.ErrRange)
	if k := len(n[0].Members(fabric.GroupCount)); k != 0 {
		r.Errorf("group 64 has %d members", k)
	}

	send := func(g fabric.Group, tag byte) {
		d := fabric.VELODescriptor{To: fabric.Address{Node: fabric.NodeID(g), VPID: 7}, Multicast: true}
		r.check(ports[0].send(d, []byte{byte(g), tag}))
	}
	receive := func(i int, g fabric.Group, tag byte) {
		r.Helper()
		m, err := ports[i].next()
		r.check(err)
		if p := m.Payload(); p[0] != byte(g) || p[1] != tag || !m.Status.Multicast() || m.Status.Source() != ports[0].Address() {
			r.Fatalf("node %d got %x (status %#x) for message %d to group %d", i+1, p, uint64(m.Status), tag, g)
		}
	}
	members := func(g fabric.Group, want ...fabric.NodeID) {
		r.Helper()
		r.eventually("the sender learns who is in the group", func() bool { return slices.Equal(n[0].Members(g), want) })
	}
	for g := range fabric.Group(fabric.GroupCount) {
		if g == fabric.GroupAll {
			members(g, 1, 2, 3, 4)
			send(g, 0)
			receive(3, g, 0)
		} else {
			members(g)
			send(g, 9) // no members
			r.check(n[1].Join(g))
			r.check(n[2].Join(g))
			if g%2 == 0 {
				r.check(n[0].Join(g))
				members(g, 1, 2, 3)
			} else {
				members(g, 2, 3)
			}
			send(g, 0)
		}
		receive(1, g, 0)
		receive(2, g, 0)

		if g != fabric.GroupAll {
			r.check(n[1].Leave(g))
			if g%2 == 0 {
				members(g, 1, 3)
			} else {
				members(g, 3)
			}
			send(g, 1)
			receive(2, g, 1)
		}
	}
	for i, p := range ports {
		if k := r.rest(p); k != 0 {
			r.Errorf("node %d got %d copies too many", i+1, k)
		}
	}
}

// multicastFullMember: of two members one reads and the other does not. The sender is not delayed,
// the reader gets everything, and what the other one loses is counted, and nothing else.
func multicastFullMember(r *rig) {
	n := r.nodes(3)
	a, reader, sleeper := r.velo(n[0], 1), r.velo(n[1], 1), r.velo(n[2], 1)
	group := fabric.VELODescriptor{To: fabric.Address{Node: fabric.NodeID(fabric.GroupAll), VPID: 1}, Multicast: true}
	lost := func() uint64 { return r.register(n[0], fabric.RegVELOMulticastLost) }
	sent := uint64(0)
	number := func() []byte { return []byte{byte(sent), byte(sent >> 8), byte(sent >> 16)} }
	for beyond := 0; beyond < 10; sent++ {
		if sent == 1<<20 {
			r.Fatalf("a member that reads nothing lost none of %d copies", sent)
		}
		if lost() > 0 {
			beyond++
		}
		r.check(a.Send(group, number()))
		m, err := reader.next()
		r.check(err)
		if !slices.Equal(m.Payload(), number()) {
			r.Fatalf("the reader got %x for message %d", m.Payload(), sent)
		}
	}
	got, last := uint64(0), -1
	r.eventually("the full member has what it did not lose", func() bool {
		for _, m := range sleeper.buf[:sleeper.Poll(sleeper.buf[:])] {
			p := m.Payload()
			k := int(p[0]) | int(p[1])<<8 | int(p[2])<<16
			if k <= last {
				r.Fatalf("the full member got message %d after %d", k, last)
			}
			last = k
			got++
		}
		return got+lost() >= sent
	})
	if l, c := lost(), r.register(n[0], fabric.RegVELOMulticastCopies); got+l != sent || c != sent+got || r.rest(sleeper) != 0 {
		r.Errorf("%d messages to 2 members: one got all, the other %d; counted %d copies, %d lost", sent, got, c, l)
	}
	if s := r.register(n[0], fabric.RegVELOSent); s != sent {
		r.Errorf("%d multicasts count as %d messages", sent, s)
	}
}
