package shm

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A pairing is a port with an interrupt, and the channel to a peer that has a
// doorbell for it.
type pairing struct {
	n, peer *Node
	irq     *interrupt
	port    *veloPort
	ch      *channel // at n
	door    int      // the peer's doorbell, a duplicate
}

func newPairing(t *testing.T) *pairing {
	t.Helper()
	p := &pairing{}
	p.n, p.peer = attachPair(t)
	i, err := p.n.NewInterrupt()
	if err != nil {
		t.Fatal(err)
	}
	p.irq = i.(*interrupt)
	p.port = openVELO(t, p.n, 1, fabric.PortInterrupts{Receive: i}).(*veloPort)
	sender := openVELO(t, p.peer, 1, fabric.PortInterrupts{})
	if err := sender.Send(fabric.VELODescriptor{To: p.port.Address()}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message comes", func() bool { return p.port.Poll(make([]fabric.Message, 1)) == 1 })
	p.n.mu.Lock()
	p.ch = p.n.peers[p.peer.ID()].channel
	p.n.mu.Unlock()
	p.peer.mu.Lock()
	back := p.peer.peers[p.n.ID()].channel
	p.peer.mu.Unlock()
	eventually(t, "the doorbell comes", func() bool {
		back.doorMu.Lock()
		defer back.doorMu.Unlock()
		if back.doors[p.irq.index] == 0 {
			return false
		}
		p.door, err = unix.Dup(back.doors[p.irq.index])
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p.door) })
	return p
}

// overdue makes the next ring of the peer one that needs a reason.
func (p *pairing) overdue() {
	p.irq.mu.Lock()
	p.irq.rings[p.ch.serial].edges = ringSlack + 1
	p.irq.mu.Unlock()
}

// A ring while a port is closing is not held against the peer: the messages that justified it
// cannot be counted any more.
func TestRingWhilePortCloses(t *testing.T) {
	p := newPairing(t)
	p.overdue()
	p.port.rx.shut() // closePort is here, and has not detached the half yet
	p.irq.setAsleep()
	ringEventfd(p.door)
	p.irq.Mask()
	if p.ch.dropped.Load() {
		t.Error("an honest peer was dropped")
	}
}

// A goroutine that looks at a half's progress may have to wait until a pause of the half ends, and
// the goroutine that paused it may wait for Node.mu. Neither may hold the interrupt's lock, which
// is taken under Node.mu.
func TestRingWhilePaused(t *testing.T) {
	p := newPairing(t)
	p.overdue()
	p.port.rx.pause()
	p.irq.setAsleep()
	ringEventfd(p.door)
	masked := make(chan bool)
	go func() { p.irq.Mask(); close(masked) }()
	free := false
	for end := time.Now().Add(patience / 10); !free && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p.irq.mu.TryLock() {
			free = !p.irq.armed // Mask has begun
			p.irq.mu.Unlock()
		}
	}
	p.port.rx.resume()
	<-masked
	if !free {
		t.Error("the interrupt stays locked while its owner waits for a port half")
	}
}

// A peer that is gone but kept its doorbell can no longer wake anybody.
func TestRingAfterGone(t *testing.T) {
	p := newPairing(t)
	p.ch.drop(fabric.RegDroppedDoorbell)
	eventually(t, "the channel ends", func() bool {
		p.irq.mu.Lock()
		defer p.irq.mu.Unlock()
		return p.irq.rings[p.ch.serial] == nil && len(p.n.Peers()) == 0
	})
	var events [16]unix.EpollEvent
	for epollWait(p.irq.epfd, events[:], 0) > 0 { // of before
	}
	ringEventfd(p.door)
	if n := epollWait(p.irq.epfd, events[:], 0); n != 0 {
		t.Error("its ring is still heard")
	}
}

// An interrupt that is closed under an open port keeps its index until the port is closed.
// Otherwise senders to that port would ring its successor.
func TestClosedInterruptKeepsIndex(t *testing.T) {
	p := newPairing(t)
	if err := p.irq.Close(); err != nil {
		t.Fatal(err)
	}
	another := func() *interrupt {
		i, err := p.n.NewInterrupt()
		if err != nil {
			t.Fatal(err)
		}
		return i.(*interrupt)
	}
	if i := another(); i.index == p.irq.index {
		t.Errorf("index %d is used again while port 1 names it", i.index)
	}
	if err := p.port.Close(); err != nil {
		t.Fatal(err)
	}
	if i := another(); i.index != p.irq.index {
		t.Errorf("index %d is not used again, but %d", p.irq.index, i.index)
	}
	_, err := p.n.OpenVELO(7, fabric.PortInterrupts{Receive: p.irq})
	wantError(t, err, fabric.ErrClosed)
	if _, err = p.n.OpenVELO(7, fabric.PortInterrupts{}); err != nil {
		t.Error("the VPID of the port that was refused: ", err)
	}
}
