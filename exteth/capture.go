package exteth

import (
	"slices"
	"time"

	"exnet/arp"
	"exnet/fabric"
	"exnet/multicast"
)

// A CaptureFrame is a frame as it crosses the fabric. Its data are valid only during the call and
// may lie in another node's memory: copy what you keep, and read it once.
type CaptureFrame struct {
	Time       time.Time
	Sent       bool          // false: received
	Peer       fabric.NodeID // the other node; unset for a multicast frame that was sent
	Multicast  bool
	Group      fabric.Group // of a multicast frame
	Rendezvous bool         // false: eager
	VNet       VNet
	Frame      []byte
}

// A Tap is a registered observer of frames, for captures.
type Tap struct{ f func(*CaptureFrame) }

// Tap calls f for each frame that is sent or received. f runs on the engine's goroutine, so it must
// be quick and must not block. Without taps a frame costs nothing extra.
func (e *Engine) Tap(f func(*CaptureFrame)) *Tap {
	t := &Tap{f}
	e.taps = append(e.taps, t)
	return t
}

// Untap removes a tap.
func (e *Engine) Untap(t *Tap) {
	e.taps = slices.DeleteFunc(e.taps, func(o *Tap) bool { return o == t })
}

func (e *Engine) tell(c *CaptureFrame) {
	c.Time = time.Now()
	for _, t := range e.taps {
		t.f(c)
	}
}

func (e *Engine) tapSent(frame []byte, v VNet) {
	c := CaptureFrame{Sent: true, VNet: v, Frame: frame, Rendezvous: len(frame) > e.cfg.Eager}
	to := arp.MAC(frame)
	if c.Multicast = to.Multicast(); c.Multicast {
		c.Group = multicast.GroupOf(to)
		c.Rendezvous = len(frame) > e.cfg.MulticastEager
	} else {
		c.Peer, _ = e.cfg.Prefix.Node(to)
	}
	e.tell(&c)
}

func (e *Engine) tapReceived(f *Frame) {
	c := CaptureFrame{Peer: f.From, Rendezvous: f.Rendezvous, VNet: f.VNet, Frame: f.Data}
	to := f.Destination()
	if c.Multicast = to.Multicast(); c.Multicast {
		c.Group = multicast.GroupOf(to)
	}
	e.tell(&c)
}
