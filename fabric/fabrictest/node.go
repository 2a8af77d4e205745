package fabrictest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"exnet/fabric"
)

// A port is the common part of the ports of both units.
type port interface {
	Address() fabric.Address
	Close() error
}

func vpids(r *rig) {
	n := r.node(1)
	velo := func(v fabric.VPID) (port, error) { return n.OpenVELO(v, fabric.PortInterrupts{}) }
	rma := func(v fabric.VPID) (port, error) { return n.OpenRMA(v, fabric.PortInterrupts{}) }
	for _, open := range []func(fabric.VPID) (port, error){velo, rma} {
		// each unit has its own VPIDs
		ports := make(map[fabric.VPID]port)
		gives := func(v, want fabric.VPID) {
			r.Helper()
			p, err := open(v)
			r.check(err)
			if p.Address() != (fabric.Address{Node: 1, VPID: want}) {
				r.Errorf("opening %d gave %v, want VPID %d", v, p.Address(), want)
			}
			ports[want] = p
		}
		refuses := func(v fabric.VPID, want ...error) {
			r.Helper()
			_, err := open(v)
			r.wants(fmt.Sprintf("open %d", v), err, want...)
		}
		gives(2, 2)
		gives(255, 255)
		for _, lowest := range []fabric.VPID{0, 1, 3} {
			gives(fabric.VPIDAny, lowest)
		}
		refuses(2, fabric.ErrInUse)
		refuses(fabric.VPIDCount, fabric.ErrRange)
		refuses(fabric.VPIDAny-1, fabric.ErrRange)
		refuses(0xffff, fabric.ErrRange)
		r.check(ports[1].Close())
		gives(fabric.VPIDAny, 1)
		for v := fabric.VPID(4); v < 255; v++ {
			gives(fabric.VPIDAny, v)
		}
		refuses(fabric.VPIDAny, fabric.ErrInUse, fabric.ErrMemory)
		for _, p := range ports {
			r.check(p.Close())
		}
		gives(fabric.VPIDAny, 0)
	}
}

// vpidReopen: what the old port had not polled is counted and gone. The reopened port gets only
// what was sent to it.
func vpidReopen(r *rig) {
	const left = 5
	n := r.nodes(2)
	a, oldB := r.velo(n[0], 1), r.velo(n[1], 1)
	for k := range left {
		r.check(a.send(to(oldB.Address()), []byte{byte(k)}))
	}
	r.check(oldB.Close())
	b := r.velo(n[1], 1)
	r.check(a.send(to(b.Address()), []byte{99}))
	m, err := b.next()
	r.check(err)
	if m.Payload()[0] != 99 {
		r.Errorf("the reopened port got message %x", m.Payload())
	}
	if k := r.rest(b); k != 0 {
		r.Errorf("the reopened port got %d messages too many", k)
	}
	r.counts(n[1], fabric.RegVELODiscarded, left)

	// The reopened port has all of its room, even if the old one was full.
	r.fill(a.Address(), func(int) error { return a.Send(to(b.Address()), []byte{1}) })
	r.check(b.Close())
	b = r.velo(n[1], 1)
	for k := range 300 {
		r.check(a.send(to(b.Address()), []byte{byte(k)}))
		if m, err := b.next(); err != nil || m.Payload()[0] != byte(k) {
			r.Fatalf("message %d is %x, %v", k, m.Payload(), err)
		}
	}

	p, old := r.rma(n[0], 1), r.rma(n[1], 1)
	for range left {
		r.check(p.post(fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: fabric.NotifyCompleter | fabric.NotifyRequester, To: old.Address(), Remote: old.bell.win.NLA(), Enable: 3}))
		_, err := p.next()
		r.check(err)
	}
	r.check(old.Close())
	reopened := r.rma(n[1], 1)
	if here, there := r.flush(p, reopened); len(here)+len(there) > 0 {
		r.Errorf("the reopened port got %+v, its peer %+v", there, here)
	}
	r.counts(n[1], fabric.RegRMADiscarded, left)
}

func ownNode(r *rig) {
	n := r.node(1)
	p, q := r.velo(n, 1), r.velo(n, 2)
	for _, target := range []*velo{p, q} {
		full := r.fill(p.Address(), func(k int) error { return p.Send(to(target.Address()), []byte{byte(k)}) })
		for k := range full {
			m, err := target.next()
			r.check(err)
			if m.Payload()[0] != byte(k) || m.Status.Source() != p.Address() {
				r.Fatalf("message %d is %x from %v", k, m.Payload(), m.Status.Source())
			}
		}
		r.check(p.send(to(target.Address()), []byte{1}))
		_, err := target.next()
		r.check(err)
	}
	a, b := r.rma(n, 1), r.rma(n, 2)
	for _, target := range []*rma{a, b} {
		local, remote := r.region(a, 5000, 0), r.region(target, 5000, fabric.RemoteRead|fabric.RemoteWrite)
		for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
			src, dst := local, remote
			if c == fabric.Get {
				src, dst = remote, local
			}
			copy(src.bytes, random(uint64(c), 5000))
			d := operation(c, allNotifications, target, 5000, local.win.NLA(), remote.win.NLA())
			r.check(a.post(d))
			r.expect(d, a, target)
			if !slices.Equal(src.bytes, dst.bytes) {
				r.Errorf("%v to %v did not copy", c, target.Address())
			}
		}
	}
}

func nodeIDs(r *rig) {
	ids := func(want ...fabric.NodeID) func(fabric.Node) {
		return func(n fabric.Node) {
			r.Helper()
			others := slices.DeleteFunc(slices.Clone(want), func(id fabric.NodeID) bool { return id == n.ID() })
			r.eventually("every node knows its peers", func() bool { return slices.Equal(n.Peers(), others) })
			if got := r.register(n, fabric.RegPeers); got != uint64(len(others)) {
				r.Errorf("node %d counts %d peers, want %d", n.ID(), got, len(others))
			}
		}
	}
	high, one := r.node(fabric.MaxNodeID), r.node(1)
	lowest, next := r.node(fabric.NodeAny), r.node(fabric.NodeAny)
	for n, want := range map[fabric.Node]fabric.NodeID{high: fabric.MaxNodeID, one: 1, lowest: 0, next: 2} {
		if n.ID() != want {
			r.Errorf("node %d, want %d", n.ID(), want)
		}
		ids(0, 1, 2, fabric.MaxNodeID)(n)
	}
	_, err := r.attach(1)
	r.wants("attach as 1 again", err, fabric.ErrInUse)

	a, b := r.velo(high, 1), r.velo(lowest, 1)
	r.check(a.send(to(b.Address()), []byte{1}))
	if m, err := b.next(); err != nil || m.Status.Source() != a.Address() {
		r.Errorf("message from %v, %v", m.Status.Source(), err)
	}
}

// membership: a watcher sees a node that joins, leaves and rejoins under its ID. The node's two
// lives have nothing to do with each other.
func membership(r *rig) {
	n := r.node(1)
	var mu sync.Mutex
	var events []fabric.Event
	stop := n.Watch(func(e fabric.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	defer stop()
	var want []fabric.Event
	sees := func(e ...fabric.Event) {
		r.Helper()
		want = append(want, e...)
		r.eventually(fmt.Sprintf("the watcher sees %+v", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(events) >= len(want)
		})
		mu.Lock()
		defer mu.Unlock()
		// The order in which two nodes are noticed is not defined.
		byNode := func(a, b fabric.Event) int { return int(a.Node) - int(b.Node) }
		saw, wanted := slices.Clone(events), slices.Clone(want)
		slices.SortStableFunc(saw, byNode)
		slices.SortStableFunc(wanted, byNode)
		if !slices.Equal(saw, wanted) {
			r.Fatalf("the watcher saw %+v, want %+v", events, want)
		}
	}
	p := r.velo(n, 1)
	for life := range byte(3) {
		other := r.node(7)
		sees(fabric.Event{Node: 7, Joined: true})
		q := r.velo(other, 1)
		r.check(q.send(to(p.Address()), []byte{life}))
		if m, err := p.next(); err != nil || m.Payload()[0] != life || m.Status.Source() != q.Address() {
			r.Fatalf("life %d: got %x from %v, %v", life, m.Payload(), m.Status.Source(), err)
		}
		r.check(p.send(to(q.Address()), []byte{life}))
		if m, err := q.next(); err != nil || m.Payload()[0] != life {
			r.Fatalf("life %d: node 7 got %x, %v", life, m.Payload(), err)
		}
		// never polled; must not reach the next life
		r.check(p.send(to(q.Address()), []byte{100 + life}))
		r.check(other.Close())
		sees(fabric.Event{Node: 7})
		r.eventually("sending to a node that left is refused", func() bool {
			return errors.Is(p.Send(to(q.Address()), []byte{1}), fabric.ErrNoNode)
		})
		if p, c := n.Peers(), r.register(n, fabric.RegPeers); len(p) != 0 || c != 0 {
			r.Errorf("peers %v, counted %d, after the only one left", p, c)
		}
		if m := n.Members(fabric.GroupAll); !slices.Equal(m, []fabric.NodeID{1}) {
			r.Errorf("members %v of the group of all after the only peer left", m)
		}
	}
	for id := range fabric.NodeID(3) { // in a row, and none is missed
		other := r.node(7 + id)
		r.check(other.Close())
	}
	sees(fabric.Event{Node: 7, Joined: true}, fabric.Event{Node: 7}, fabric.Event{Node: 8, Joined: true}, fabric.Event{Node: 8},
		fabric.Event{Node: 9, Joined: true}, fabric.Event{Node: 9})
	if lost := r.register(n, fabric.RegPeersLost); lost != 0 {
		r.Errorf("%d peers count as lost, all of them said so", lost)
	}
	stop()
	r.node(8)
	r.settle()
	sees()
}
