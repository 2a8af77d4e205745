package exn

import (
	"slices"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/multicast"
)

// A CaptureFrame is a frame as it crosses the fabric. Its data are valid during
// the call only, and may be another node's memory: copy what is kept, once.
type CaptureFrame struct {
	Time       time.Time
	Sent       bool          // else received
	Peer       fabric.NodeID // the other node; of a sent multicast frame: none
	Multicast  bool
	Group      fabric.Group // of a multicast frame
	Rendezvous bool         // else eager
	VNet       exteth.VNet
	Frame      []byte
}

type tapped struct{ f func(*CaptureFrame) }

// Capture calls f for each frame sent and received, on the loop's goroutine: it
// must be quick and must not block. It costs nothing while nobody captures.
// stop ends it; f is not called after stop has returned.
func (i *Interface) Capture(f func(*CaptureFrame)) (stop func()) {
	t := &tapped{f}
	change := func(do func([]*tapped) []*tapped) {
		i.ask(func() {
			var now []*tapped
			if old := i.taps.Load(); old != nil {
				now = slices.Clone(*old)
			}
			if now = do(now); len(now) == 0 {
				i.taps.Store(nil)
				return
			}
			i.taps.Store(&now)
		})
	}
	change(func(all []*tapped) []*tapped { return append(all, t) })
	return func() {
		change(func(all []*tapped) []*tapped {
			return slices.DeleteFunc(all, func(o *tapped) bool { return o == t })
		})
	}
}

func tell(taps []*tapped, c *CaptureFrame) {
	c.Time = time.Now()
	for _, t := range taps {
		t.f(c)
	}
}

func (i *Interface) tapSent(taps []*tapped, frame []byte, v exteth.VNet) {
	c := CaptureFrame{Sent: true, VNet: v, Frame: frame, Rendezvous: len(frame) > i.cfg.Eager}
	to := arp.MAC(frame)
	if c.Multicast = to.Multicast(); c.Multicast {
		c.Group = multicast.GroupOf(to)
		c.Rendezvous = len(frame) > i.cfg.MulticastEager
	} else {
		c.Peer, _ = i.cfg.Prefix.Node(to)
	}
	tell(taps, &c)
}

func (i *Interface) tapReceived(taps []*tapped, f *exteth.Frame) {
	tell(taps, &CaptureFrame{
		Peer: f.From, Multicast: f.Destination().Multicast(), Group: groupOf(f),
		Rendezvous: f.Rendezvous, VNet: f.VNet, Frame: f.Data,
	})
}

func groupOf(f *exteth.Frame) fabric.Group {
	if to := f.Destination(); to.Multicast() {
		return multicast.GroupOf(to)
	}
	return 0
}
