package fabric

import "time"

// A Node is one attachment to a fabric.
type Node interface {
	ID() NodeID

	// Peers lists the other nodes that are attached and known here, in ID
	// order. Over a network it takes a moment to know of a new one.
	Peers() []NodeID

	// Watch calls f for each node that joins or leaves from now on, in
	// order, on a goroutine of the node; f must not block for long, nor close
	// the node. stop ends it.
	Watch(f func(Event)) (stop func())

	// NewInterrupt makes an interrupt source.
	NewInterrupt() (Interrupt, error)

	// OpenVELO opens a VELO port: ErrRange, ErrInUse or ErrMemory. A half
	// without an interrupt (nil) must be polled.
	OpenVELO(v VPID, irq PortInterrupts) (VELO, error)

	// OpenRMA opens an RMA port likewise. Receive is raised by
	// notifications, Transmit after ErrFull.
	OpenRMA(v VPID, irq PortInterrupts) (RMA, error)

	// Alloc gives shareable memory whose windows can have at most the given
	// rights. It is zeroed and costs what is touched.
	Alloc(size int, most Rights) (Memory, error)

	// Import makes memory of what is mapped already, say by another program
	// that passed its file. Free gives up the registration and leaves the
	// mapping alone, which must last as long as the node and unlike memory
	// from Alloc is not cleared. A backend that shares memory by files gives
	// ErrRange unless the mapping has one.
	Import(m Mapping, most Rights) (Memory, error)

	// Join and Leave change this node's membership of a multicast group;
	// GroupAll cannot be left (ErrRange). Messages sent after Join returned,
	// by a sender that learnt of it, arrive.
	Join(g Group) error
	Leave(g Group) error

	// Members lists the nodes in a group as far as known here, in ID order.
	Members(g Group) []NodeID

	// ReadRegister and WriteRegister access the node's own register file.
	// ErrRange: no such register, ErrRights: it is read-only, ErrClosed.
	ReadRegister(r Register) (uint64, error)
	WriteRegister(r Register, v uint64) error

	// Close leaves the fabric: ports are closed, peers see it go.
	Close() error

	// Done is closed as soon as the node is being closed. A loop that sleeps
	// on its interrupts looks at it when it is woken: from then on Poll gives
	// nothing, and Wait returns at once.
	Done() <-chan struct{}
}

// PortInterrupts are the interrupts of the halves of a port; both may be the same.
type PortInterrupts struct {
	Receive  Interrupt // something can be polled
	Transmit Interrupt // after ErrFull: it is worth trying again
}

// An Event tells of a node that joined or left.
type Event struct {
	Node    NodeID
	Joined  bool // else left
	Crashed bool // it left without saying so
}

// An Interrupt is a source of interrupts, raised by the ports opened with it.
// It starts masked. Arm, Mask and Wait belong to the goroutine that owns the
// port halves; Wake and Close may be called by anyone.
//
//	for {
//		if port.Poll(msgs) > 0 { …; continue }
//		if !irq.Arm() { continue }   // looked again: there is something
//		irq.Wait(timeout)            // sleeps; masks again when it returns
//	}
type Interrupt interface {
	// Arm unmasks the interrupt and then looks again: it returns true when
	// there was nothing to do, so that from now on work raises the interrupt;
	// false when there is work already, and masks it again.
	Arm() bool

	// Mask stops the interrupt from being raised.
	Mask()

	// Wait sleeps until the interrupt is raised, Wake is called, it is
	// closed, or the timeout passes (negative: none). It reports whether it
	// was woken rather than timed out. It returns at once when masked. After
	// it, the interrupt is masked. A wake-up without work is possible.
	Wait(timeout time.Duration) bool

	// FD returns a descriptor for poll(2) that becomes readable when the
	// armed interrupt is raised, or -1 if the backend has none. After such a
	// wake-up call Wait(0), which consumes it.
	FD() int

	// Wake makes a present or the next Wait return.
	Wake()

	// Close makes Wait return from now on, and frees the source once no open
	// port uses it.
	Close() error
}
