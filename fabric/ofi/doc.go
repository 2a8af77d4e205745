// Package ofi is the fabric over libfabric: nodes on different hosts, over TCP
// or what hardware there is.
//
//	node, err := fabric.Open("ofi:tcp?nodes=/etc/exnet/nodes.toml", fabric.NodeAny)
//
// All nodes are named by a file, see [ReadNodes]. A node listens at its address
// in the file and greets all others. fabric/ofi/libfabric has the calls of the
// library.
//
// # Theory of operation
//
// An RDM endpoint of libfabric is reliable while its connection lasts, but it
// makes a lost connection again without saying so, may lose what it had
// accepted, and never tells that a peer is dead. So the package trusts it with
// speed only, and keeps its own account of what arrived:
//
//	VELO, immediate PUT, registers,   ─► records ─► frames, numbered ─► fi_send
//	small or scattered PUT and GET,
//	credit, leases, notifications
//	large PUT and GET                 ─► lease: address and key ─► fi_write, fi_read
//
// Frames are 4 KiB at most. What is sent while the provider still works on a
// frame to that peer shares the next one, so many small messages cost one
// transfer.
//
// # Sessions
//
// Two nodes have a session while both are attached and reach each other. Each
// says hello with its instance, new with each start, and a nonce, new with each
// session; the session's number is a hash of both sides' contributions.
//
//	absent ── hello that repeats our nonce, or a frame with the number ──► up
//	up ── bye ──► absent: it left
//	up ── silence, violation, failed RMA, another nonce that is proven ──► absent: it crashed
//
// A hello with another nonce ends a session only if it repeats our nonce: a
// frame that was late by a whole life cannot. All else that arrives must have
// the number of the session; what has not is counted and dropped.
//
// Within a session, see session:
//
//	I1  Frames are taken in the order 1, 2, 3, …, each once.
//	I2  A frame is kept until it is acknowledged, so each can be sent again.
//	I3  A session that ends is never resumed; the next begins at 1 with other nonces.
//
// Hence nothing is lost, doubled or reordered, or the peer is dead. Frames are
// sent again only when there is evidence of a loss: a later frame, or a probe,
// which names the last frame posted before it, has come without them.
//
// # Death
//
// Each node says something every 400 ms. A peer that was silent for a second is
// asked by a TCP connection to its port: if its host refuses that, the process
// is dead. A host that is silent is given up after 10 s (timeout=); until then
// nothing is lost.
//
// # Order
//
//	O1  Records of a session are handled in the order in which they were added.
//	O2  The operations to one peer begin and end in order. One by message begins
//	    only when none by RMA is under way before it.
//	O3  fi_write is asked for delivery completion: its completion means that the
//	    bytes are in the target's memory. The notification at the target is a
//	    record that is added afterwards.
//	O4  A message with After is held until the operations before it are over.
//
// By O1 and O3 whoever polls a completer notification sees the data, and by O4
// whoever polls such a message. Both hold with any provider, also across a
// connection that is made again, where the order of writes and sends does not;
// see docs/decisions/0301.
//
// # Credit
//
// A port has room for 256 messages, and 256 notifications, of each peer. The
// receiver tells how many were consumed in all, the latest word counts, and a
// receiver that is told of more than its room ends the session. What is under
// way to a closed port is discarded, see flushPort. So an accepted message is
// never without room, and every queue here is bounded. Operations that the
// provider has not completed are bounded by the size of its completion queue.
//
// # Leases
//
// A window of one piece is registered with the provider when a peer first needs
// it, under a random key, and granted by address, key, length and rights.
// Deregistering makes the NLA stale, revokes the grants, and releases the
// memory when each holder has answered that its last operation is over, or its
// session is. The region is closed first. Operations to windows of several
// pieces go by message, and the target translates them.
//
// # Progress
//
// Whoever polls a port makes progress, under one lock. A thread of the node's
// own does it while nobody polls, so a node whose owners all sleep still
// serves GETs, and it sleeps on the provider's wait object: an idle node uses no
// CPU but that for the heartbeats.
//
// # What it is not
//
// Members of a fabric trust each other's hosts as far as the provider does:
// with "tcp" keys cross the network in the clear, and whoever can write into
// the TCP connections can do all that a member can. Run it inside WireGuard or
// IPsec on networks that others use.
package ofi
