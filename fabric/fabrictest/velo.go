package fabrictest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"exnet/fabric"
)

func veloSizes(r *rig) {
	n := r.nodes(2)
	a, b := r.velo(n[0], 3), r.velo(n[1], 200)
	for size := 1; size <= fabric.VELOMaxPayload; size++ {
		quiet := size%7 == 0
		d := fabric.VELODescriptor{To: b.Address(), UserTag: uint8(size % 64), MTT: uint8(size % 16), Quiet: quiet}
		payload := random(uint64(size), size)
		r.check(a.send(d, payload))
		clear(payload) // the buffer belongs to the caller again
		if quiet {     // a quiet message wakes nobody
			r.check(a.send(to(b.Address()), []byte{1}))
		}
		m, err := b.next()
		r.check(err)
		s := m.Status
		if !s.Check() || s.Source() != a.Address() || s.UserTag() != d.UserTag || s.MTT() != d.MTT || s.Multicast() ||
			s.Interrupt() == quiet || s.Len() != size || !bytes.Equal(m.Payload(), random(uint64(size), size)) {
			r.Fatalf("%d bytes: status %#x, payload %x", size, uint64(s), m.Payload())
		}
		if quiet {
			_, err := b.next()
			r.check(err)
		}
	}
	if k := r.rest(b); k != 0 {
		r.Errorf("%d messages too many", k)
	}
}

func veloRefuses(r *rig) {
	n := r.nodes(2)
	a, b := r.velo(n[0], 3), r.velo(n[1], 4)
	one := []byte{1}
	for _, c := range []struct {
		name    string
		d       fabric.VELODescriptor
		payload []byte
		want    error
	}{
		{"no payload", to(b.Address()), nil, fabric.ErrLength},
		{"121 bytes", to(b.Address()), make([]byte, fabric.VELOMaxPayload+1), fabric.ErrLength},
		{"VPID 256", to(fabric.Address{Node: 2, VPID: fabric.VPIDCount}), one, fabric.ErrRange},
		{"any VPID", to(fabric.Address{Node: 2, VPID: fabric.VPIDAny}), one, fabric.ErrRange},
		{"user tag 64", fabric.VELODescriptor{To: b.Address(), UserTag: 64}, one, fabric.ErrRange},
		{"MTT 16", fabric.VELODescriptor{To: b.Address(), MTT: 16}, one, fabric.ErrRange},
		{"group 64", fabric.VELODescriptor{To: fabric.Address{Node: 64, VPID: 4}, Multicast: true}, one, fabric.ErrRange},
		{"unknown node", to(fabric.Address{Node: 77, VPID: 4}), one, fabric.ErrNoNode},
		{"any node", to(fabric.Address{Node: fabric.NodeAny, VPID: 4}), one, fabric.ErrNoNode},
	} {
		r.wants(c.name, a.Send(c.d, c.payload), c.want)
	}

	// Only the target may know whether the port exists.
	if err := a.Send(to(fabric.Address{Node: 2, VPID: 5}), one); err != nil {
		r.wants("port that is not open", err, fabric.ErrNoPort)
	} else {
		r.eventually("a message for a port that is not open is counted at the target", func() bool {
			return r.register(n[1], fabric.RegVELONoPort) == 1
		})
	}
	r.check(a.send(to(b.Address()), one))
	if _, err := b.next(); err != nil {
		r.Error(err)
	}
	if k := r.rest(b); k != 0 {
		r.Errorf("%d refused messages arrived", k)
	}
}

// veloOrder: two nodes with two ports each send to two ports of a third node, each pair a numbered
// sequence. However they interleave, every sequence arrives complete and in order.
func veloOrder(r *rig) {
	const count = 1500
	n := r.nodes(3)
	receivers := []*velo{r.velo(n[2], 1), r.velo(n[2], 2)}
	var work []func() error
	for s := range 4 {
		p := r.velo(n[s/2], fabric.VPID(10+s))
		work = append(work, func() error {
			rng := rand.New(rand.NewPCG(uint64(s), 1))
			var sent [2]uint64
			for sent[0]+sent[1] < 2*count {
				k := rng.IntN(2)
				if sent[k] == count {
					continue
				}
				if err := p.send(to(receivers[k].Address()), numbered(rng, sent[k])); err != nil {
					return err
				}
				sent[k]++
			}
			return nil
		})
	}
	for _, p := range receivers {
		work = append(work, func() error {
			next := make(map[fabric.Address]uint64)
			for range 4 * count {
				m, err := p.next()
				if err != nil {
					return err
				}
				src := m.Status.Source()
				if err := isNumbered(&m, next[src]); err != nil {
					return fmt.Errorf("%v from %v: %w", p.Address(), src, err)
				}
				next[src]++
			}
			return nil
		})
	}
	r.together(work...)
	for _, p := range receivers {
		if k := r.rest(p); k != 0 {
			r.Errorf("%v: %d messages too many", p.Address(), k)
		}
	}
}

// numbered returns a payload of random size that holds a number and, in every other byte, a
// function of it.
func numbered(rng *rand.Rand, k uint64) []byte {
	b := make([]byte, 8+rng.IntN(fabric.VELOMaxPayload-7))
	binary.LittleEndian.PutUint64(b, k)
	for i := 8; i < len(b); i++ {
		b[i] = byte(k) ^ byte(i)
	}
	return b
}

func isNumbered(m *fabric.Message, want uint64) error {
	b := m.Payload()
	if len(b) < 8 {
		return fmt.Errorf("a message of %d bytes", len(b))
	}
	k := binary.LittleEndian.Uint64(b)
	if k != want {
		return fmt.Errorf("message %d where %d was due", k, want)
	}
	for i := 8; i < len(b); i++ {
		if b[i] != byte(k)^byte(i) {
			return fmt.Errorf("message %d is damaged at byte %d", k, i)
		}
	}
	return nil
}

// veloBackPressure: the sender runs ahead until there is no room, and then goes on as fast as a
// slow receiver lets it.
func veloBackPressure(r *rig) {
	n := r.nodes(2)
	a, b := r.velo(n[0], 1), r.velo(n[1], 1)
	rng := rand.New(rand.NewPCG(4, 4))
	ahead := uint64(r.fill(a.Address(), func(k int) error { return a.Send(to(b.Address()), numbered(rng, uint64(k))) }))
	if r.register(n[0], fabric.RegVELOFull) == 0 {
		r.Error("the refusal is not counted")
	}
	total := 3*ahead + 2000
	r.together(func() error {
		for k := ahead; k < total; k++ {
			if err := a.send(to(b.Address()), numbered(rng, k)); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		rng := rand.New(rand.NewPCG(5, 5))
		for k := range total {
			m, err := b.next()
			if err != nil {
				return err
			}
			if err := isNumbered(&m, k); err != nil {
				return err
			}
			r.pause(rng)
		}
		return nil
	})
	if k := r.rest(b); k != 0 {
		r.Errorf("%d messages too many", k)
	}
}

// fill sends until there is no room, even when everything under way has arrived. It returns how
// many it sent.
func (r *rig) fill(p fabric.Address, send func(k int) error) int {
	r.Helper()
	const bound = 1 << 20
	for k, before := 0, -1; k < bound; k++ {
		err := send(k)
		if err == nil {
			continue
		}
		if !errors.Is(err, fabric.ErrFull) {
			r.Fatalf("operation %d at %v: %v", k, p, err)
		}
		if k == before {
			return k
		}
		before = k
		k--
		r.settle()
	}
	r.Fatalf("%v: no back-pressure after %d operations that nobody took", p, bound)
	return 0
}

// veloReceiverGone: a receiver whose sender sleeps for lack of room closes its port, and then its
// node. Each time the sender is woken.
func veloReceiverGone(r *rig) {
	n := r.nodes(2)
	a := r.velo(n[0], 1)
	for i, leave := range []func(*velo) error{
		func(b *velo) error { return b.Close() },
		func(*velo) error { return n[1].Close() },
	} {
		b := r.velo(n[1], fabric.VPID(1+i))
		one := []byte{1}
		r.fill(a.Address(), func(int) error { return a.Send(to(b.Address()), one) })
		r.together(func() error {
			err := a.send(to(b.Address()), one)
			if err != nil && !errors.Is(err, fabric.ErrNoPort) && !errors.Is(err, fabric.ErrNoNode) {
				return err
			}
			return nil
		}, func() error {
			r.settle()
			return leave(b)
		})
	}
	r.eventually("sending to a node that left is refused", func() bool {
		err := a.send(to(fabric.Address{Node: 2, VPID: 2}), []byte{1})
		return errors.Is(err, fabric.ErrNoNode)
	})
}

func veloSenderGone(r *rig) {
	n := r.nodes(3)
	c := r.velo(n[2], 1)
	for _, leaver := range []struct {
		port *velo
		node fabric.Node
	}{{r.velo(n[0], 1), nil}, {r.velo(n[1], 1), n[1]}} {
		a := leaver.port
		for k := range 5 {
			r.check(a.send(to(c.Address()), []byte{byte(k)}))
		}
		if leaver.node != nil {
			r.check(leaver.node.Close())
		} else {
			r.check(a.Close())
		}
		for k := range 5 {
			m, err := c.next()
			r.check(err)
			if m.Payload()[0] != byte(k) || m.Status.Source() != a.Address() {
				r.Fatalf("message %d of %v is %x from %v", k, a.Address(), m.Payload(), m.Status.Source())
			}
		}
	}
}

// veloFairness: four nodes have sent as much as fits. While all of them have messages waiting, the
// receiver takes about as many from each, and the only message of a fifth does not wait behind all
// of them. A sender that always has one message gets no more than its share either.
func veloFairness(r *rig) {
	const senders = 4
	n := r.nodes(senders + 2)
	b := r.velo(n[senders+1], 1)
	least := 0
	for i := range senders {
		p := r.velo(n[i], 1)
		k := r.fill(p.Address(), func(int) error { return p.Send(to(b.Address()), []byte{1}) })
		if i == 0 || k < least {
			least = k
		}
	}
	fifth := r.velo(n[senders], 1)
	r.check(fifth.send(to(b.Address()), []byte{1}))
	r.settle() // let all of it arrive

	const batch = 8
	order := make([]fabric.NodeID, 0, senders*least/2+batch)
	for len(order) < senders*least/2 {
		msgs := make([]fabric.Message, batch)
		k := 0
		r.eventually("there is a backlog", func() bool {
			k = b.Poll(msgs)
			return k > 0
		})
		for i := range k {
			order = append(order, msgs[i].Status.Source().Node)
		}
	}
	r.fair(order, senders, batch)

	const turns = 24
	trickle := 0
	for range turns {
		r.check(fifth.send(to(b.Address()), []byte{1}))
		r.settle()
		if b.Poll(b.buf[:1]) == 1 && b.buf[0].Status.Source() == fifth.Address() {
			trickle++
		}
	}
	if trickle > turns/2 {
		r.Errorf("a source with one message at a time got %d of %d turns, the others have a backlog", trickle, turns)
	}
}

// fair checks the order in which sources were served in batches. Sources 1 to n all have a backlog;
// source n+1 has one item.
func (r *rig) fair(order []fabric.NodeID, n, batch int) {
	r.Helper()
	served := make([]int, n+2)
	last := -1
	for i, src := range order {
		served[src]++
		if int(src) == n+1 {
			last = i
		}
	}
	for i := 1; i <= n; i++ {
		// Within a factor of two, plus or minus a batch.
		if share := len(order) / n; served[i] > 2*share+batch || served[i] < share/2-batch {
			r.Errorf("source %d got %d of %d turns: %v", i, served[i], len(order), served[1:])
		}
	}
	if last < 0 || last > 2*(n+1)*batch {
		r.Errorf("the only item of source %d was served as number %d", n+1, last)
	}
}
