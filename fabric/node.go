package fabric

import "time"

// A Node is one attachment to a fabric.
type Node interface {
	ID() NodeID

	// Peers returns the other nodes that are attached and known here, in ID order. Over a
	// network, it takes a moment until a new node is known.
	Peers() []NodeID

	// Watch calls f for each node that joins or leaves from now on, in order, on a goroutine of
	// the node. f must not block for long, and must not close the node. stop ends the calls.
	Watch(f func(Event)) (stop func())

	// NewInterrupt makes an interrupt source.
	NewInterrupt() (Interrupt, error)

	// OpenVELO opens a VELO port. It fails with ErrRange, ErrInUse or ErrMemory. A half without
	// an interrupt (nil) must be polled.
	OpenVELO(v VPID, irq PortInterrupts) (VELO, error)

	// OpenRMA opens an RMA port in the same way. Notifications raise Receive; Transmit is
	// raised after ErrFull.
	OpenRMA(v VPID, irq PortInterrupts) (RMA, error)

	// Alloc allocates shareable, zeroed memory whose windows can have at most the given rights.
	// Only pages that are touched cost memory.
	Alloc(size int, most Rights) (Memory, error)

	// Import makes a Memory of what is mapped already, for example from a file that another
	// program passed. Free ends the registration and leaves the mapping alone. The mapping must
	// last as long as the node, and is not cleared, unlike memory from Alloc. A backend that
	// shares memory through files returns ErrRange if the mapping has no file.
	Import(m Mapping, most Rights) (Memory, error)

	// Join and Leave change this node's membership in a multicast group; nodes cannot leave
	// GroupAll (ErrRange). After Join has returned, messages of a sender that has learnt of it
	// arrive.
	Join(g Group) error
	Leave(g Group) error

	// Members returns the nodes in a group, as far as known here, in ID order.
	Members(g Group) []NodeID

	// ReadRegister and WriteRegister access the node's own register file. They fail with
	// ErrRange if there is no such register, with ErrRights if it is read-only, and with
	// ErrClosed.
	ReadRegister(r Register) (uint64, error)
	WriteRegister(r Register, v uint64) error

	// Close leaves the fabric and closes all ports. Peers are told that the node leaves.
	Close() error

	// Done is closed as soon as the node is being closed. From then on Poll returns nothing,
	// and Wait returns at once. A loop that sleeps on its interrupts should check Done when it
	// wakes.
	Done() <-chan struct{}
}

// PortInterrupts are the interrupts of the halves of a port; both may be the same.
type PortInterrupts struct {
	Receive  Interrupt // something can be polled
	Transmit Interrupt // after ErrFull: it is worth trying again
}

// An Event reports that a node joined or left.
type Event struct {
	Node    NodeID
	Joined  bool // otherwise it left
	Crashed bool // it left without saying goodbye
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
	// Arm unmasks the interrupt and then looks again. If there is nothing to do, it returns
	// true, and new work raises the interrupt from now on. If there is work already, it masks
	// the interrupt again and returns false.
	Arm() bool

	// Mask stops the interrupt from being raised.
	Mask()

	// Wait sleeps until the interrupt is raised, Wake is called, the interrupt is closed, or
	// the timeout passes (negative: none). It returns at once if the interrupt is masked. It
	// reports whether it was woken and did not time out. Afterwards the interrupt is masked.
	// Wait may return true although there is no work.
	Wait(timeout time.Duration) bool

	// FD returns a descriptor for poll(2) that becomes readable when the armed interrupt is
	// raised, or -1 if the backend has none. After such a wake-up, call Wait(0), which consumes
	// it.
	FD() int

	// Wake makes the current or the next Wait return.
	Wake()

	// Close makes Wait return from now on. It frees the source once no open port uses it.
	Close() error
}
