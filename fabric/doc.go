// Package fabric is the contract of the RDMA-style fabric that exnet runs on:
// what a node, a VELO port, an RMA port, a registered window, a notification
// and an interrupt are, how they look as bits, and what every backend must
// keep. It moves no data itself.
//
// # Why
//
// Ethernet frames (exteth), direct sockets and benchmarks are written once,
// against these types. Where the bytes go is the choice of a backend:
//
//	fabric/shm   processes, containers and namespaces of one host
//	fabric/ofi   hosts, over libfabric
//	fabric/emu   in one process, with faults and virtual time, for tests
//
// A backend proves that it is one by passing fabric/fabrictest. A program asks
// for one by text, with [Open]: "shm:/run/exn", "ofi:tcp?nodes=nodes.toml".
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
// Nothing blocks. [VELO.Send] and [RMA.Post] either accept the whole
// operation or return [ErrFull] and have done nothing; completion is reported
// by notifications and may precede the return. Back-pressure is the only flow
// control: an accepted message is never dropped, with two documented
// exceptions, both counted: a multicast copy for a full member, and messages
// whose receiver goes away.
//
// Order holds per (source port, target port). PUT data is visible before its
// completer notification, and before a VELO message that the same goroutine
// sends to that node afterwards and that asks for it ([VELODescriptor.After]).
// A network would have to hold back every message to promise more.
//
// Two nodes have a session while both are attached and reach each other. It
// ends as the death of the peer, with an [Event], when either node leaves, or
// when something is lost that cannot be sent again; it is never resumed. Nodes
// that meet again begin anew: nothing of an earlier session arrives in a later
// one. Up to its end nothing is lost, doubled or reordered.
//
// An NLA that a peer knows is a lease. Deregistering revokes it, and the window
// is released when no peer can touch the memory any more, or its session is
// over. An operation that was under way when its peer died ends with FaultLink
// and may have written a part; one that had not begun ends with FaultNode.
//
// A port has two halves, transmit (Send, Post) and receive (Poll). Each half,
// together with the [Interrupt] it was opened with, belongs to one goroutine
// at a time; the halves of one port and different ports are independent.
// Everything else (Node, Window, registers) is safe for concurrent use.
// Close may be called at any time from anywhere, and is idempotent.
//
// Nothing in these interfaces says that a peer's memory is mapped here; a
// backend that has it mapped offers [InPlace] beside [RMA].
package fabric
