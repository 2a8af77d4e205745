package shm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/late"
)

// A channel joins this node with one peer. It has two regions: ours, which only we write, and the
// peer's, which only the peer writes. It is made when the first message is sent in either
// direction, and ends with the peer.
//
// Locks: Node.mu guards txFlows, rxFlows and the creation of regions. The flows themselves belong
// to port halves (see gate). doorMu guards the doorbells.
type channel struct {
	n       *Node
	peer    *peer
	serial  uint32 // names the channel in epoll data
	tx      region
	rx      atomic.Pointer[region] // nil until the peer has sent it
	dropped atomic.Bool            // the peer misbehaved; teardown is in progress
	// port halves that still read it although the peer is gone; under Node.mu
	readers int

	txFlows map[flowWord]*txFlow
	rxFlows [maxFlows]*rxFlow

	// rung is the epoch for which we rang the peer's interrupt last. One ring per sleep is
	// enough, however many messages it announces.
	rung   [maxInterrupts]atomic.Uint64
	doorMu sync.Mutex
	doors  [maxInterrupts]int // eventfds that wake the peer, 0 = not known
	bells  [maxInterrupts]int // eventfds by which the peer wakes us, 0 = none
}

// wake rings the peer's interrupt if somebody sleeps on it and we have not rung for that sleep yet.
// It reports whether it rang.
func (ch *channel) wake(irq int) bool {
	e := atomic.LoadUint64(ch.peer.region.epoch(irq))
	if e&1 == 0 || ch.rung[irq].Load() == e {
		return false
	}
	ch.rung[irq].Store(e)
	if ch.peer.conn == nil { // ourselves
		ch.n.raise(irq)
		return true
	}
	ch.doorMu.Lock()
	defer ch.doorMu.Unlock()
	if door := ch.doors[irq]; door != 0 {
		ringEventfd(door)
	} else {
		ch.peer.send(message{kind: msgRing, a: uint32(irq)}, -1)
	}
	return true
}

// newDoorbell makes a doorbell: an eventfd with the value 1 that is never read, is watched
// edge-triggered, and is rung by writing 0. Writing 0 makes an edge like any write, and cannot
// block. A peer shares the flags and the value of the descriptor. If we wrote 1, it could make that
// block by filling the counter and clearing O_NONBLOCK.
func newDoorbell() (int, error) {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, limitError(os.NewSyscallError("eventfd", err))
	}
	return fd, nil
}

func ringEventfd(fd int) {
	var zero [8]byte
	late.Wake()
	unix.Write(fd, zero[:])
}

// drop ends the connection to a peer that broke the rules, and counts the reason once. It can be
// called from anywhere: teardown happens on the peer's own goroutine.
func (ch *channel) drop(reason fabric.Register) {
	if ch.peer.conn != nil && !ch.dropped.Swap(true) {
		atomic.AddUint64(ch.n.region.register(reason), 1)
		ch.peer.conn.Close()
	}
}

// openFlow finds or makes the flow from our port to a port of the peer. The caller holds n.mu.
func (ch *channel) openFlow(u fabric.Unit, src, dst fabric.VPID) (*txFlow, error) {
	w := makeFlowWord(u, src, dst)
	if f := ch.txFlows[w]; f != nil {
		return f, nil
	}
	i := len(ch.txFlows) + 1
	if i >= maxFlows {
		return nil, fmt.Errorf("node %d: all %d flows are in use: %w", ch.peer.id, maxFlows-1, fabric.ErrMemory)
	}
	if err := ch.n.budget.reserve(flowBytes); err != nil {
		return nil, err
	}
	f := &txFlow{slots: ch.tx.slots(i), port: ch.peer.region.port(u, dst), ch: ch,
		to: fabric.Address{Node: ch.peer.id, VPID: dst}, index: i, count: ch.n.region.transmitCounters(u, src)}
	ch.txFlows[w] = f
	atomic.StoreUint64(ch.tx.flowWord(i), uint64(w))
	atomic.StoreUint64(ch.tx.flowCount(), uint64(i))
	return f, nil
}

// acceptFlow returns the receiving end of the peer's flow i. If its description is invalid or there
// is no memory for it, it returns nil and drops the channel.
func (ch *channel) acceptFlow(rx *region, i int) *rxFlow {
	ch.n.mu.Lock()
	defer ch.n.mu.Unlock()
	if f := ch.rxFlows[i]; f != nil {
		return f
	}
	w := flowWord(atomic.LoadUint64(rx.flowWord(i)))
	known := false
	for _, f := range ch.rxFlows {
		known = known || f != nil && f.word == w
	}
	if !w.valid() || known {
		ch.drop(fabric.RegDroppedFlow)
		return nil
	}
	if ch.n.budget.reserve(flowBytes) != nil {
		ch.drop(fabric.RegDroppedMemory)
		return nil
	}
	f := &rxFlow{slots: rx.slots(i), credit: ch.tx.credit(i), blocked: rx.blocked(i), ch: ch,
		from: fabric.Address{Node: ch.peer.id, VPID: w.source()}, word: w}
	ch.rxFlows[i] = f
	return f
}

// close frees what the channel holds. No port half uses the channel any more.
func (ch *channel) close() {
	ch.doorMu.Lock()
	for i := range maxInterrupts {
		if ch.doors[i] != 0 {
			unix.Close(ch.doors[i])
		}
		if ch.bells[i] != 0 {
			unix.Close(ch.bells[i])
		}
		ch.doors[i], ch.bells[i] = 0, 0
	}
	ch.doorMu.Unlock()
	rx := ch.rx.Swap(nil)
	if rx != nil && rx.fd < 0 { // in the channel to ourselves, rx is tx
		rx.unmap()
	}
	ch.tx.unmap()
	flows := len(ch.txFlows)
	for _, f := range ch.rxFlows {
		if f != nil {
			flows++
		}
	}
	ch.n.budget.release(flows * flowBytes)
}
