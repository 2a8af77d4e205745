package exn

import (
	"time"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/napi"
)

// A poll makes a function a napi.Poller.
type poll func(budget int) napi.Result

// Poll implements napi.Poller.
func (p poll) Poll(budget int) napi.Result { return p(budget) }

// socketful is how many super-packets of UDP a socket holds with the default buffer
// (net.core.rmem_default). The socket drops what comes beyond, and UDP does not send it again.
const socketful = 3

// take takes frames of the fabric with one of EXT-Eth's polls. While super-packets of UDP are among
// them, it takes no more than a socket holds, and asks to yield the CPU to the receiving program.
//
// A budget counts packets of up to 64 KiB; longer ones count as several.
func (i *Interface) take(k int, poll func(time.Duration, int) (int, int), now time.Duration, budget int) (r napi.Result) {
	if i.bursting[k] {
		budget = min(budget, socketful)
	}
	budget = max(1, budget/(1+i.longest[k]>>16))
	before := i.bursts
	i.written = 0
	r.Work, r.Bytes = poll(now, budget)
	r.Yield = i.bursts != before
	// also counts frames of which only a message came by this poll
	r.Bytes = max(r.Bytes, i.bursts-before)
	if r.Work > 0 {
		i.bursting[k] = r.Yield
		i.longest[k] = i.written
	}
	return r
}

// pollRMA takes notifications: buffers become free, and fetched frames arrive.
func (i *Interface) pollRMA(budget int) napi.Result {
	r := i.take(0, i.eth.PollRMA, i.clock(), budget)
	i.unblock()
	return r
}

// pollVELO takes messages, and sends frames that waited for room.
func (i *Interface) pollVELO(budget int) napi.Result {
	now := i.clock()
	r := i.take(1, i.eth.PollVELO, now, budget)
	i.eth.Advance(now)
	i.unblock()
	return r
}

// unblock makes the loop read the device again as soon as it can.
func (i *Interface) unblock() {
	if i.device.armed && i.more() {
		i.device.source.Raise()
	}
}

// more reports whether reading the device stopped for lack of room and there is room now.
func (i *Interface) more() bool { return i.blocked && !i.eth.Blocked() }

// A reading is the state of one poll of the device.
type reading struct {
	napi.Result
	budget int
	over   bool

	ahead *exteth.Buffer // holds a packet that was read already; nil: none
	n     int
	vnet  exteth.VNet
}

// pollDevice moves packets from the kernel to the fabric.
func (i *Interface) pollDevice(budget int) napi.Result {
	r := &i.reading
	*r = reading{budget: budget}
	for !r.over && r.Work < budget {
		if i.blocked = i.eth.Blocked(); i.blocked {
			r.Blocked = true
			break
		}
		b := i.eth.Borrow()
		n, v, ok := i.read(b.Bytes[i.readAt-device.Headroom:], nil)
		if !ok {
			i.eth.Return(b)
			continue
		}
		for i.transmit(b, n, v); r.ahead != nil; i.transmit(b, n, v) {
			b, n, v, r.ahead = r.ahead, r.n, r.vnet, nil
		}
	}
	return r.Result
}

// read reads a packet of the device into head and, if it is not nil, rest.
func (i *Interface) read(head, rest []byte) (n int, v exteth.VNet, ok bool) {
	var err error
	if rest == nil {
		n, v, err = i.dev.Read(head)
	} else {
		n, v, err = i.parts.ReadParts(head, rest)
	}
	r := &i.reading
	switch err {
	case nil:
		r.Work++
		r.Bytes += n
		i.follower.read(n, v)
		return n, v, true
	case device.ErrRefused:
		i.stats.count(deviceRead)
		r.Work++
		return 0, v, false
	case device.ErrEmpty:
		r.Drained = true
	case device.ErrGone:
		i.fail(err)
	}
	r.over = true
	return 0, v, false
}

// readTrain reads on behind the packet in b as long as the following packets continue it, and joins
// them to one. It leaves the first packet that does not in r.ahead.
func (i *Interface) readTrain(b *exteth.Buffer, n int, v exteth.VNet) (int, exteth.VNet) {
	t, ok := newTrain(b.Bytes[i.readAt:], n, v)
	if !ok {
		return n, v
	}
	// for the next header, or for the whole packet if it does not continue the train
	next := i.eth.Borrow()
	if next == nil {
		return n, v
	}
	r := &i.reading
	for room := t.room(); room != nil && !r.over && r.Work < r.budget; room = t.room() {
		n, v, ok := i.read(next.Bytes[i.readAt-device.Headroom:][:device.Headroom+t.header], room)
		if !ok {
			break
		}
		packet := next.Bytes[i.readAt:]
		if n < t.header || !t.add(packet[:t.header], n, v) {
			if n > t.header {
				copy(packet[t.header:], room[:n-t.header])
			}
			r.ahead, r.n, r.vnet = next, n, v
			return t.couple()
		}
		i.stats.count(txCoupled)
	}
	i.eth.Return(next)
	return t.couple()
}

// pollMailbox takes the letters and does what is due.
func (i *Interface) pollMailbox(int) (r napi.Result) {
	now := i.clock()
	if i.mail.take(&i.letters) {
		l := &i.letters
		r.Work = l.len()
		for _, ev := range l.events {
			i.nodeEvent(ev, now)
		}
		for _, a := range l.changed {
			i.neighbourChanged(a, now)
		}
		for _, a := range l.failed {
			if i.pending != nil {
				i.pending.Fail(a)
			}
		}
		if l.present != nil {
			i.offloadsChanged()
			i.follow(l.present, now)
		}
		for _, c := range l.results {
			i.detected(c, now)
		}
		for _, f := range l.frames {
			i.sendFrame(f, now)
		}
		for _, f := range l.asks {
			f()
		}
		l.reset()
	}
	i.advance(now)
	return r
}

// nodeEvent handles a node that joined or left.
func (i *Interface) nodeEvent(ev fabric.Event, now time.Duration) {
	i.cfg.Log.Info("node", "node", ev.Node, "joined", ev.Joined, "crashed", ev.Crashed)
	i.eth.NodeEvent(ev, now)
	if !ev.Joined && i.resolver != nil {
		i.addrs = i.cache.NodeGone(ev.Node, i.addrs[:0])
		i.resolver.forget(i.addrs)
	}
}

// doubtTime is how often neighbours in doubt are probed: a fraction of arp.DelayFirstProbe.
const doubtTime = time.Second

// advance does what is due.
func (i *Interface) advance(now time.Duration) {
	i.eth.Advance(now)
	i.unblock()
	i.advanceClaims(now)
	i.membership.Advance(now)
	i.joinGroups()
	i.follower.advance(now)
	if i.resolver == nil {
		return
	}
	i.pending.Expire(now)
	if now-i.doubted >= doubtTime {
		i.doubted = now
		i.addrs = i.cache.Doubts(now, i.addrs[:0])
		for _, a := range i.addrs {
			i.resolver.resolve(a)
		}
	}
}

// next returns when advance is due.
func (i *Interface) next(now time.Duration) (wait time.Duration, ok bool) {
	at := napi.Forever
	if d, ok := i.eth.Next(now); ok {
		at = now + d
	}
	if t, ok := i.nextClaim(); ok {
		at = min(at, t)
	}
	if t, ok := i.membership.Next(); ok {
		at = min(at, t)
	}
	if i.pending != nil {
		if t, ok := i.pending.Next(); ok {
			at = min(at, t)
		}
	}
	if t, ok := i.follower.next(); ok {
		at = min(at, t)
	}
	if at == napi.Forever {
		return napi.Forever, false
	}
	return max(0, at-now), true
}

// A timedSleeper is the interface as its engine's sleeper. It also wakes when advance is due.
type timedSleeper Interface

// Sleep implements napi.Sleeper.
func (t *timedSleeper) Sleep(d time.Duration) error {
	i := (*Interface)(t)
	wait, timed := i.next(i.clock())
	i.eth.Tell()
	// Unless a buffer is missing, notifications of fetched frames need not wake the loop.
	lazy := i.fabric[0].armed && !i.eth.Awaiting()
	i.fabric[0].armed = i.fabric[0].armed && !lazy
	err := i.sleeper.sleep(min(wait, d), !i.eth.Blocked())
	if lazy {
		i.fabric[0].armed = true
		i.sources[0].Raise()
	}
	if timed && wait <= d {
		i.sources[3].Raise()
	}
	return err
}

// Wake implements napi.Sleeper.
func (t *timedSleeper) Wake() { t.sleeper.wake() }
