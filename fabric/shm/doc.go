// Package shm is the fabric between processes, containers and namespaces of
// one host: VELO and RMA over shared memory. It is the default backend.
//
//	node, err := shm.Attach(shm.Config{Dir: "/run/exn", Node: fabric.NodeAny})
//
// A fabric is a directory; who can open it can attach, nobody else. Nothing
// runs besides the attached processes, and none of them needs to be root.
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
// Each node owns one node region, one channel region per peer that it talks
// to, and the memories that it allocated. All are memfds sealed against
// resizing. Regions, and memories without RemoteWrite, are sealed against
// writing by anyone but the owner (F_SEAL_FUTURE_WRITE), so a node can be
// misled by its peers but no word of its own can be changed by them. The one
// thing a peer writes is memory that was allocated for remote PUTs.
//
// A sender writes its messages into its own channel region and the receiver
// reads them there. A flow is one direction between two ports: a ring of 64
// slots of 128 bytes with the lap parity in each slot's status word, a credit
// word in the receiver's region that says how far it has consumed, and a
// record (flow.go) by which the receiver finds the flow. VELO messages and
// RMA notifications travel in the same kind of flow. PUT and GET are copies
// done by the requester between its own window and the peer's, mapped on
// first use; the ATU tables are read in place from the owner's node region.
//
// Sleeping: an interrupt has an epoch in the node region, odd while somebody
// sleeps on it. The sleeper makes it odd, fences, looks at every ring again,
// and only then sleeps. A sender publishes, fences, reads the epoch and if it
// is odd rings the doorbell, once per epoch. test/memmodel/channel proves that no
// wake-up is lost and that each of the steps is needed.
//
// Liveness is the control socket: the kernel closes it when a process dies,
// whatever the namespaces. Everything of the dead node is unmapped then.
//
// # Trust
//
// All that is read from a peer's region or socket is hostile: each index,
// length, offset and size is checked, and nonsense drops the peer with a
// counted reason (the dropped.* registers) and nothing else. What it cannot
// do: make us touch memory outside the mappings it gave us, block us, or
// change what another peer sees. What a peer can do: waste the memory budget
// up to its own share, and stop answering.
//
// The unit of protection between processes is the [fabric.Memory]: a peer
// that may use one window of it gets the whole memory mapped. VPIDs are
// checked by the requester's own software and so keep honest processes apart,
// no more.
//
// # What it is not
//
// It does not cross hosts, and it does not hide a stopped (SIGSTOP) peer: to
// it, back-pressure applies until it continues or dies.
package shm
