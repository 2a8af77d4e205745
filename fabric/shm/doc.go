// Package shm is the fabric between processes, containers and namespaces of
// one host: VELO and RMA over shared memory. It is the default backend.
//
//	node, err := shm.Attach(shm.Config{Dir: "/run/exn", Node: fabric.NodeAny})
//
// A fabric is a directory: whoever can open it can attach, and nobody else. No daemon is needed
// besides the attached processes, and none of them needs to be root.
//
// # Theory of operation
//
//	process A (node 1)                       process B (node 2)
//	┌───────────────────────┐   control    ┌───────────────────────┐
//	│ node region A ────────┼──  socket  ──┼──► mapped read-only   │
//	│  epochs, ports, ATU   │  (SEQPACKET) │                       │
//	│ channel region A→B ───┼──────────────┼──► mapped read-only   │
//	│  flows: slots, credits│              │                       │
//	│ read-only mapped ◄────┼──────────────┼─── channel region B→A │
//	│ memory (windows) ─────┼── on demand ─┼──► r or rw, by rights │
//	└───────────────────────┘              └───────────────────────┘
//
// Each node owns one node region, one channel region per peer that it talks to, and the memories
// that it allocated. All are memfds sealed against resizing. Regions, and memories without
// RemoteWrite, are also sealed against writing by anyone but the owner (F_SEAL_FUTURE_WRITE). So
// peers can mislead a node, but cannot change its words. The only thing that a peer writes is
// memory that was allocated for remote PUTs.
//
// A sender writes its messages into its own channel region, and the receiver reads them there. A
// flow is one direction between two ports. It consists of a ring of 64 slots of 128 bytes with the
// lap parity in each slot's status word, a credit word in the receiver's region that tells how far
// it has consumed, and a record (flow.go) by which the receiver finds the flow. VELO messages and
// RMA notifications travel in the same kind of flow. For PUT and GET, the requester copies between
// its own window and the peer's, which it maps on first use. It reads the ATU tables directly in
// the owner's node region.
//
// Sleeping: each interrupt has an epoch in the node region, which is odd while somebody sleeps on
// it. The sleeper makes it odd, fences, looks at every ring again, and only then sleeps. A sender
// publishes, fences, and reads the epoch; if it is odd, it rings the doorbell, once per epoch.
// test/memmodel/channel proves that no wake-up is lost and that each of the steps is needed.
//
// The control socket shows whether a peer lives: the kernel closes it when the process dies, in
// whatever namespace. Then everything of the dead node is unmapped.
//
// # Trust
//
// Everything read from a peer's region or socket is treated as hostile: each index, length, offset
// and size is checked. Invalid data drops the peer, with a counted reason (the dropped.*
// registers), and has no other effect. A peer cannot make us touch memory outside the mappings that
// it gave us, block us, or change what another peer sees. It can waste the memory budget up to its
// own share, and stop answering.
//
// The unit of protection between processes is the [fabric.Memory]: if a peer may use one window of
// it, it gets the whole memory mapped. The requester's own software checks VPIDs, so they only keep
// honest processes apart.
//
// # What it is not
//
// It does not cross hosts. It does not report a stopped (SIGSTOP) peer as dead: messages to that
// peer meet back-pressure until it continues or dies.
package shm
