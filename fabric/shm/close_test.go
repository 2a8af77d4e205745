package shm

import (
	"sync/atomic"
	"testing"

	"exnet/fabric"
)

// While an operation may be in progress on a closing port, the port is asked to forget memory
// before the memory is unmapped.
func TestClosingPortStillForgets(t *testing.T) {
	n := attach(t, fabricDir(t), fabric.NodeAny)
	r, err := n.OpenRMA(3, fabric.PortInterrupts{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.(*rmaPort)
	if !p.tx.enter() { // as a Post does
		t.Fatal("the port is closed")
	}
	closed := make(chan error)
	go func() { closed <- p.Close() }()
	eventually(t, "Close begins", func() bool {
		return !portWord(atomic.LoadUint64(n.region.port(fabric.UnitRMA, 3))).open()
	})
	n.mu.Lock()
	asked := n.rma[&p.port] == p
	n.mu.Unlock()
	if !asked {
		t.Error("memory would be unmapped under the operation")
	}
	p.tx.leave()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(n.rmaPorts()) != 0 {
		t.Error("the closed port is still there")
	}
}

// A port and its node can be closed at the same time: the node does not unmap
// what the port is still letting go of.
func TestClosePortAndNode(t *testing.T) {
	for range 100 {
		n := attach(t, fabricDir(t), fabric.NodeAny)
		p := openVELO(t, n, 1, fabric.PortInterrupts{})
		for p.Send(fabric.VELODescriptor{To: p.Address()}, []byte("x")) == nil {
		} // full: both halves have something to let go of
		done := make(chan bool)
		go func() { p.Close(); close(done) }()
		n.Close()
		<-done
	}
}

// If the port also waits for a memory, the answer to a register write leaves that wait alone.
func TestWaitsForTwo(t *testing.T) {
	a, b := attachPair(t)
	r, err := a.OpenRMA(0, fabric.PortInterrupts{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.(*rmaPort)
	a.mu.Lock()
	peer := a.peers[b.ID()]
	a.mu.Unlock()
	p.tx.waits.Store(true) // a Post was refused until a memory comes
	p.writing, p.writingUntil = peer, peer.registersDone.Load()
	if !p.written() {
		t.Fatal("the write is not answered")
	}
	p.tx.tryAgain() // the memory has come
	if !p.tx.ready() {
		t.Error("the port is not told that it can try again")
	}
}
