package shm

import (
	"slices"
	"testing"

	"exnet/fabric"
)

// The region of a peer can arrive while a port is being closed. The port ignores it: nobody would
// read what is in it, so it would stay for ever.
func TestClosedPortJoinsNoChannel(t *testing.T) {
	a, b := attachPair(t)
	port := openVELO(t, a, 0, fabric.PortInterrupts{})
	other := openVELO(t, b, 0, fabric.PortInterrupts{})
	if err := other.Send(fabric.VELODescriptor{To: port.Address()}, []byte{1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a message arrives", func() bool { return port.Poll(make([]fabric.Message, 1)) == 1 })
	a.mu.Lock()
	ch := a.peers[b.ID()].channel
	a.mu.Unlock()
	rx := &port.(*veloPort).rx
	joined := func() bool {
		return slices.ContainsFunc(rx.channels, func(c *rxChannel) bool { return c.ch == ch })
	}
	rx.pause()
	if !joined() {
		t.Error("an open port has not joined the channel")
	}
	rx.resume()
	rx.shut()
	rx.pause()
	defer rx.resume()
	rx.join(ch, ch.rx.Load())
	if joined() {
		t.Error("a closed port has joined a channel")
	}
}
