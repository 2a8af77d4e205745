package emu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"exnet/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const us = time.Microsecond

// TestTimeOnALink: a message takes its serialisation time and the latency, and the next one starts
// when it has left. Sending takes a nanosecond.
func TestTimeOnALink(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(Latency(2*us), Bandwidth(1e9)) // 1 ns per bit
		first := 1 + 8*(8+120)*time.Nanosecond + 2*us
		second := first + 8*(8+1)
		p.send(120)
		p.send(1)
		time.Sleep(first - 1)
		synctest.Wait()
		p.wants("a nanosecond early", len(p.polled(1)), 0)
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		p.wants("in time", len(p.polled(1)), 1)
		time.Sleep(second - first - 1)
		synctest.Wait()
		p.wants("the second, a nanosecond early", len(p.polled(1)), 0)
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		p.wants("the second", len(p.polled(1)), 1)
	})
}

// TestAccountingIsByteExact: links count exactly the sizes of the formats.
func TestAccountingIsByteExact(t *testing.T) { // RMA-3, VEL-1, REG-2
	inBubble(t, Config{}, func(p *pair) {
		p.send(1)
		p.send(120)
		p.post(fabric.Put, 65549)
		p.post(fabric.Get, 1000)
		p.post(fabric.ImmediatePut, 0)
		time.Sleep(us)
		p.wants("messages", len(p.polled(1)), 2)
		p.wants("here", p.notified(0), "requester, requester, completer, requester")
		p.wants("there", p.notified(1), "completer, completer, responder")
		time.Sleep(us)

		there := uint64(8+1+8+120) + 65549 + 133*16 + 24 + 25
		p.wants("there", p.net.Link(1, 2).Stats(), LinkStats{Packets: 2 + 133 + 1 + 1, Bytes: there, Delivered: 2 + 133 + 1 + 1, DeliveredBytes: there})
		// acks, response, and credit for messages (polled at once) and notifications
		back := uint64(16+16) + 1000 + 3*16 + 8 + 3*8
		p.wants("back", p.net.Link(2, 1).Stats(), LinkStats{Packets: 2 + 3 + 1 + 3, Bytes: back, Delivered: 2 + 3 + 1 + 3, DeliveredBytes: back})
	})
}

// TestBitErrorsAreRepaired: many packets are hit, all are counted, and everything arrives once and
// in order.
func TestBitErrorsAreRepaired(t *testing.T) { // NET-8, VEL-4
	inBubble(t, Config{Seed: 3}, func(p *pair) {
		p.both(Latency(us), BitErrors(3e-4))
		for k := range byte(60) {
			p.check(p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, append(make([]byte, 100), k)))
		}
		time.Sleep(time.Millisecond)
		msgs := p.polled(1)
		p.wants("messages", len(msgs), 60)
		for k, m := range msgs {
			p.wants("message", m.Payload()[100], byte(k))
		}
		s := p.net.Link(1, 2).Stats()
		if s.CRCErrors < 5 || s.Retransmissions != s.CRCErrors || s.Failures != 0 || s.Packets != s.Delivered+s.CRCErrors || s.Bytes != s.DeliveredBytes+s.CRCErrorBytes {
			p.Errorf("a link with 24 %% packet loss counts %+v", s)
		}
		p.wants("CRC errors at the receiver", p.register(1, fabric.RegLinkCRCErrors), s.CRCErrors)
		p.wants("retransmissions at the sender", p.register(0, fabric.RegLinkRetransmissions), s.Retransmissions)
	})
}

// TestExhaustedRetries: on a link that passes nothing, RMA fails and is counted, in each direction.
// VELO waits and arrives once the link works.
func TestExhaustedRetries(t *testing.T) { // NET-8, VEL-4
	for _, c := range []struct {
		name     string
		from, to fabric.NodeID
		command  fabric.Command
		there    string // what the target was notified of
		failures [2]uint64
	}{
		{"put", 1, 2, fabric.Put, "", [2]uint64{1, 0}},
		{"acknowledgement", 2, 1, fabric.Put, "completer", [2]uint64{0, 1}},
		{"get", 1, 2, fabric.Get, "", [2]uint64{1, 0}},
		{"response", 2, 1, fabric.Get, "", [2]uint64{0, 1}},
		{"immediate", 1, 2, fabric.ImmediatePut, "", [2]uint64{1, 0}},
	} {
		for name, fault := range map[string]Setting{"bit errors": BitErrors(1), "down": Down} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				inBubble(t, Config{}, func(p *pair) {
					p.both(Latency(us))
					p.net.Link(c.from, c.to).Set(fault, Retries(5, us))
					p.send(7)
					p.post(c.command, 5000)
					p.send(8)
					time.Sleep(time.Millisecond)
					p.wants("here", p.notified(0), "link failed")
					p.wants("there", p.notified(1), c.there)
					for i, want := range c.failures {
						p.wants("failures", p.register(i, fabric.RegLinkFailures), want)
					}
					for i, w := range p.window {
						p.check(w.Deregister())
						synctest.Wait()
						select {
						case <-w.Released():
						default:
							p.Errorf("window %d is still in use", i)
						}
					}
					p.net.Link(c.from, c.to).Set(BitErrors(0), Up)
					time.Sleep(time.Millisecond)
					msgs := p.polled(1)
					if len(msgs) != 2 || msgs[0].Status.Len() != 7 || msgs[1].Status.Len() != 8 {
						p.Errorf("%d messages arrived", len(msgs))
					}
				})
			})
		}
	}
}

func TestDownAndUp(t *testing.T) { // NET-8, VEL-4
	inBubble(t, Config{}, func(p *pair) {
		p.both(Latency(us))
		p.net.Link(1, 2).Set(Down, Retries(100, us))
		p.post(fabric.Put, 1000)
		p.send(1)
		time.Sleep(50 * us)
		p.wants("down", len(p.polled(1)), 0)
		p.net.Link(1, 2).Set(Up)
		time.Sleep(50 * us)
		p.wants("up", len(p.polled(1)), 1)
		p.wants("here", p.notified(0), "requester")
		p.wants("there", p.notified(1), "completer")
		s := p.net.Link(1, 2).Stats()
		if s.Lost == 0 || s.Lost != s.Retransmissions || s.LostBytes != 512*s.Lost || s.Packets != s.Delivered+s.Lost {
			p.Errorf("counted %+v", s)
		}
	})
}

// TestDownLinkSleeps: without RMA there is nothing to give up, and a down link costs no events.
func TestDownLinkSleeps(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(Down)
		p.send(1)
		time.Sleep(time.Hour)
		p.wants("attempts", p.net.Link(1, 2).Stats().Packets, uint64(0))
		p.net.Link(1, 2).Set(Up)
		time.Sleep(us)
		p.wants("up", len(p.polled(1)), 1)
	})
}

// TestDeadLink: waiting messages are lost and counted, and their room comes back.
func TestDeadLink(t *testing.T) { // VEL-4, NET-8
	inBubble(t, Config{}, func(p *pair) {
		p.both(Latency(us))
		link := p.net.Link(1, 2)
		link.Set(Down)
		for range veloSlots {
			p.send(1)
		}
		p.post(fabric.Put, 5000)
		link.Set(Dead)
		time.Sleep(us)
		p.wants("here", p.notified(0), "link failed")
		p.wants("failures", p.register(0, fabric.RegLinkFailures), uint64(veloSlots+1))
		if err := p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, []byte{1}); !errors.Is(err, fabric.ErrNoNode) {
			p.Errorf("send over a dead link: %v", err)
		}
		p.post(fabric.Get, 5000)
		time.Sleep(us)
		p.wants("here", p.notified(0), "link failed")

		link.Set(Up)
		for range veloSlots {
			p.send(2)
		}
		time.Sleep(10 * us)
		msgs := p.polled(1)
		if len(msgs) != veloSlots || msgs[0].Status.Len() != 2 {
			p.Errorf("%d messages after the link came back", len(msgs))
		}
		p.wants("there", p.notified(1), "")
	})
}

func TestStall(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(Stall(100 * us))
		p.send(1)
		p.post(fabric.Put, 1)
		time.Sleep(100*us - 1)
		p.wants("stalled", len(p.polled(1))+len(p.notified(1)), 0)
		time.Sleep(us)
		p.wants("after", len(p.polled(1)), 1)
		p.wants("here", p.notified(0), "requester")
		p.wants("stalls are no failures", p.net.Link(1, 2).Stats().Retransmissions, uint64(0))
	})
}

// TestStallInTheMiddle: a stall also delays what is queued already.
func TestStallInTheMiddle(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(Bandwidth(8e9))
		for range 10 {
			p.send(92) // 100 ns each
		}
		time.Sleep(450)
		p.net.Link(1, 2).Set(Stall(100 * us))
		time.Sleep(99 * us)
		p.wants("stalled", len(p.polled(1)), 5)
		time.Sleep(2 * us)
		p.wants("after", len(p.polled(1)), 5)
	})
}

// TestCreditIsConserved: all room comes back, whatever becomes of the operations that took it.
func TestCreditIsConserved(t *testing.T) { // VEL-4, RMA-6
	inBubble(t, Config{}, func(p *pair) {
		p.both(Latency(us))
		count := func(op func() error) (n int) {
			for op() == nil {
				n++
			}
			time.Sleep(time.Millisecond)
			return n
		}
		post := func(m fabric.Mask, remote fabric.NLA) func() error {
			return func() error {
				return p.rma[0].Post(&fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: m, To: p.rma[1].Address(), Remote: remote, Enable: 1})
			}
		}
		stale := fabric.MakeNLA(700, 7, 0)
		for range 3 {
			p.wants("messages", count(func() error {
				return p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, []byte{1})
			}), veloSlots)
			p.wants("messages to a closed port", count(func() error {
				return p.velo[0].Send(fabric.VELODescriptor{To: fabric.Address{Node: 2, VPID: 9}}, []byte{1})
			}), veloSlots)
			p.wants("completers", count(post(fabric.NotifyCompleter, p.window[1].NLA())), rmaDebts)
			p.notified(1)
			p.wants("requesters", count(post(fabric.NotifyRequester, p.window[1].NLA())), rmaQueue/2)
			p.notified(0)
			p.wants("faults", count(post(fabric.NotifyCompleter, stale)), rmaDebts)
			p.notified(0)
			p.polled(1)
			time.Sleep(time.Millisecond)
		}
	})
}

// TestOrderOfAnInstant: what happens at the same time happens in the order of the links, whichever
// asked first.
func TestOrderOfAnInstant(t *testing.T) {
	run := func(first, second int) string {
		var trace bytes.Buffer
		inBubble(t, Config{Trace: &trace}, func(p *pair) {
			for _, i := range []int{first, second} {
				p.check(p.velo[i].Send(fabric.VELODescriptor{To: p.velo[1-i].Address()}, []byte{1}))
			}
			time.Sleep(us)
		})
		return trace.String()
	}
	if a, b := run(0, 1), run(1, 0); a != b || strings.Count(a, "\n") != 4 {
		t.Errorf("node 1 first:\n%snode 2 first:\n%s", a, b)
	}
}

// TestSlowReceiver: the sender gets one ring of messages through per delay, however fast the
// receiver polls.
func TestSlowReceiver(t *testing.T) { // VEL-4
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(CreditDelay(100 * us))
		sent := 0
		for range 1000 {
			for p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, []byte{1}) == nil {
				sent++
			}
			time.Sleep(us)
			p.polled(1)
		}
		if most := 11 * veloSlots; sent > most || sent < 8*veloSlots {
			p.Errorf("%d messages in 1 ms with credit of %d that takes 100 µs", sent, veloSlots)
		}
	})
}

// TestOperationsAreAsynchronous: when Post returns, nothing of a PUT or GET has arrived; half way
// through, half of it has. Its windows are in use that long.
func TestOperationsAreAsynchronous(t *testing.T) { // ATU-4, RMA-1
	for _, command := range []fabric.Command{fabric.Put, fabric.Get} {
		for leaving := range 2 {
			inBubble(t, Config{}, func(p *pair) {
				p.both(Bandwidth(8e9)) // 1 ns per byte
				src, dst := p.bytes[0], p.bytes[1]
				if command == fabric.Get {
					src, dst = dst, src
				}
				for i := range src {
					src[i] = 1
				}
				p.post(command, windowSize)
				p.wants("at once", bytes.Count(dst, []byte{1}), 0)
				half := windowSize / 496 / 2 * 512 * time.Nanosecond
				time.Sleep(half)
				if got := bytes.Count(dst, []byte{1}); got < windowSize*4/10 || got > windowSize*6/10 {
					p.Errorf("%v: half way, %d of %d bytes are there", command, got, windowSize)
				}
				w := p.window[leaving]
				p.check(w.Deregister())
				select {
				case <-w.Released():
					p.Errorf("%v: window %d is released while it is in use", command, leaving)
				default:
				}
				time.Sleep(2 * half)
				select {
				case <-w.Released():
				default:
					p.Errorf("%v: window %d is not released after its use", command, leaving)
				}
				p.wants("in the end", bytes.Count(dst, []byte{1}), windowSize)
				if command == fabric.Put {
					p.wants("here", p.notified(0), "requester")
				} else {
					p.wants("here", p.notified(0), "requester, completer")
				}
			})
		}
	}
}

// TestSourceIsReadWhenItLeaves: a program that changes a source before the requester notification
// sends a mixture, as on a real network.
func TestSourceIsReadWhenItLeaves(t *testing.T) { // RMA-5
	inBubble(t, Config{}, func(p *pair) {
		p.both(Bandwidth(8e9))
		p.post(fabric.Put, windowSize)
		time.Sleep(windowSize / 2)
		p.net.mu.Lock() // the mixture is intended; without the lock it would also be a data race
		for i := range p.bytes[0] {
			p.bytes[0][i] = 1
		}
		p.net.mu.Unlock()
		time.Sleep(time.Second)
		if got := bytes.Count(p.bytes[1], []byte{1}); got == 0 || got == windowSize {
			p.Errorf("%d of %d bytes are new", got, windowSize)
		}
	})
}

// TestReopenedPortDuringPut: the completer notification of a PUT into the old port's window does
// not reach the reopened port.
func TestReopenedPortDuringPut(t *testing.T) { // VPD-1, ATU-4
	inBubble(t, Config{}, func(p *pair) {
		p.both(Bandwidth(8e9))
		p.post(fabric.Put, windowSize)
		time.Sleep(windowSize / 2)
		p.check(p.rma[1].Close())
		var err error
		p.rma[1], err = p.node[1].OpenRMA(1, fabric.PortInterrupts{})
		p.check(err)
		time.Sleep(time.Second)
		p.wants("there", p.notified(1), "")
		p.wants("here", p.notified(0), "requester")
		p.wants("discarded", p.register(1, fabric.RegRMADiscarded), uint64(1))
	})
}

// TestCrash: peers see the crash, operations under way fail, messages are lost and counted, and a
// node that takes the same ID later is a different one.
func TestCrash(t *testing.T) { // NET-7
	for _, command := range []fabric.Command{fabric.Put, fabric.Get} {
		inBubble(t, Config{}, func(p *pair) {
			var events []fabric.Event
			defer p.node[0].Watch(func(e fabric.Event) { events = append(events, e) })()
			p.both(Latency(us), Bandwidth(8e9))
			p.post(command, windowSize)
			p.send(1)
			time.Sleep(windowSize / 2)
			p.net.Crash(2)
			p.net.Crash(77) // no such node
			time.Sleep(time.Second)
			p.wants("here", p.notified(0), "no such node")
			p.wants("events", fmt.Sprint(events), fmt.Sprint([]fabric.Event{{Node: 2, Crashed: true}}))
			p.wants("peers lost", p.register(0, fabric.RegPeersLost), uint64(1))
			if s := p.net.Link(1, 2).Stats(); s.Packets > windowSize/496*6/10 {
				p.Errorf("%v: %d packets were sent, as if the target were alive", command, s.Packets)
			}
			if command == fabric.Put { // the message was behind the data; otherwise it had arrived
				p.wants("messages discarded", p.register(0, fabric.RegVELODiscarded), uint64(1))
			}
			p.attach(1)
			p.send(2)
			time.Sleep(time.Second)
			if msgs := p.polled(1); len(msgs) != 1 || msgs[0].Status.Len() != 2 {
				p.Errorf("%d messages in the next life", len(msgs))
			}
			p.wants("there", p.notified(1), "")
		})
	}
}

// TestBlockedByADyingNode: credit under way when the receiver leaves comes back, so a blocked
// sender wakes and notices.
func TestBlockedByADyingNode(t *testing.T) { // VEL-4
	inBubble(t, Config{}, func(p *pair) {
		irq, err := p.node[0].NewInterrupt()
		p.check(err)
		a, err := p.node[0].OpenVELO(2, fabric.PortInterrupts{Transmit: irq})
		p.check(err)
		p.net.Link(1, 2).Set(Latency(time.Millisecond))
		send := func() error {
			return a.Send(fabric.VELODescriptor{To: p.velo[1].Address()}, []byte{1})
		}
		for range veloSlots {
			p.check(send())
		}
		if err := send(); !errors.Is(err, fabric.ErrFull) {
			p.Fatal(err)
		}
		p.check(p.node[1].Close())
		if !irq.Arm() || !irq.Wait(time.Second) {
			p.Error("the sender was not woken")
		}
		if err := send(); !errors.Is(err, fabric.ErrNoNode) {
			p.Error(err)
		}
	})
}

// TestLossOfASender: when a node crashes, what it had not put on the wire is lost.
func TestLossOfASender(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(1, 2).Set(Bandwidth(8e9))
		for range 10 {
			p.send(92) // 100 ns each
		}
		time.Sleep(450)
		p.net.Crash(1)
		time.Sleep(us)
		p.wants("messages", len(p.polled(1)), 5)
	})
}

func TestWildcards(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		p.net.Link(fabric.NodeAny, 2).Set(Latency(time.Second))
		p.net.Link(1, fabric.NodeAny).Set(Down)
		p.net.Link(3, 1).Set(Latency(time.Minute)) // of a node that attaches later
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		for _, c := range []struct {
			from, to fabric.NodeID
			latency  time.Duration
			down     bool
		}{{1, 2, time.Second, true}, {2, 1, 0, false}, {3, 2, time.Second, false}, {1, 3, 0, true}, {1, 1, 0, false}, {2, 2, 0, false}, {3, 1, time.Minute, false}} {
			if l := p.net.link(c.from, c.to); l.latency != c.latency || l.down != c.down {
				p.Errorf("%d->%d: latency %v, down %t", c.from, c.to, l.latency, l.down)
			}
		}
	})
}

// TestSettingsAreBounded: impossible values do not hang, panic or make time go back.
func TestSettingsAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(p *pair) {
		const huge = 1<<63 - 1
		p.net.Link(1, 2).Set(Latency(-1), Jitter(-1), Bandwidth(-1), BitErrors(-1), Retries(-1, -1), CreditDelay(-1), Stall(-1))
		p.send(1)
		time.Sleep(time.Minute) // 72 bits at 1 bit per second
		p.wants("negative", len(p.polled(1)), 0)
		time.Sleep(time.Minute)
		p.wants("negative", len(p.polled(1)), 1)
		p.both(Latency(huge), Jitter(huge), Bandwidth(0), BitErrors(2), Retries(3, huge), CreditDelay(huge))
		p.net.At(huge, func() {})
		p.post(fabric.Put, 1)
		time.Sleep(3 * longest)
		p.wants("still trying", p.notified(0), "")
		time.Sleep(3 * longest)
		p.wants("enormous", p.notified(0), "link failed")
	})
}
