// Package fabric is the contract of the RDMA-style fabric that exnet runs on. It defines nodes,
// VELO ports, RMA ports, registered windows, notifications and interrupts, their binary layouts,
// and the rules that every backend must keep. The package moves no data itself.
//
// # Why
//
// Ethernet frames (exteth), direct sockets and benchmarks are written once, against these types.
// The backend determines where the bytes go:
//
//	fabric/shm   processes, containers and namespaces of one host
//	fabric/ofi   hosts, over libfabric
//	fabric/emu   in one process, with faults and virtual time, for tests
//
// A backend must pass the tests of fabric/fabrictest. A program names a backend and a fabric by a
// text, which [Open] takes: "shm:/run/exn", "ofi:tcp?nodes=nodes.toml".
//
// # The units
//
//	VELO   small messages, 1 to 120 bytes, in order, never dropped
//	RMA    PUT and GET of 1 byte to 8 MiB between registered windows
//	ATU    translates network logical addresses (NLA) and checks rights
//	VPID   the virtual process ID that names a port; 256 per unit
//	RF     the register file: counters and settings, readable remotely
//
// # Rules that hold for every backend
//
// Nothing blocks. [VELO.Send] and [RMA.Post] either accept the whole operation or do nothing and
// return [ErrFull]. Notifications report completion, possibly before the call returns.
// Back-pressure is the only flow control: an accepted message is never dropped. There are two
// exceptions, both counted: a multicast copy for a member whose ring is full, and messages whose
// receiver goes away.
//
// Order holds per (source port, target port). PUT data is visible before its completer
// notification. It is also visible before a VELO message that the same goroutine sends to that node
// afterwards, if the message asks for it ([VELODescriptor.After]). To promise that for all
// messages, a network would have to hold back each of them.
//
// Two nodes have a session while both are attached and reach each other. A session ends when either
// node leaves, or when something is lost that cannot be sent again. The end is reported as the
// death of the peer, with an [Event]. A session is never resumed: if the nodes meet again they
// start a new one, in which nothing of the earlier one arrives. During a session nothing is lost,
// doubled or reordered.
//
// An NLA that a peer knows is a lease. Deregistering revokes it. The window is released when no
// peer can touch the memory any more, or when its session is over. If a peer dies, an operation in
// progress ends with FaultLink and may have written a part of its data; one that had not begun ends
// with FaultNode.
//
// A port has two halves, transmit (Send, Post) and receive (Poll). Each half,
// together with the [Interrupt] it was opened with, belongs to one goroutine
// at a time; the halves of one port and different ports are independent.
// Everything else (Node, Window, registers) is safe for concurrent use.
// Close may be called at any time from anywhere, and is idempotent.
//
// No interface here requires that a peer's memory is mapped in this process. A backend that maps it
// offers [InPlace] in addition to [RMA].
package fabric
