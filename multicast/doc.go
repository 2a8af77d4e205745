// Package multicast decides which fabric group a multicast frame travels in, and which multicast
// frames a node wants. It maps IP groups to MAC addresses and MAC addresses to fabric groups,
// learns memberships by listening, and filters at the receiver (MCS-1).
//
// The fabric has 64 groups and knows no Ethernet. The kernel behind a TUN reports what it joined
// only by IGMP and MLD.
//
// Use one [Membership] per interface. Show it every frame that the local stack sends
// ([Membership.Sent]) and every one that it gets ([Membership.Delivered]). Ask it which received
// frames to keep ([Membership.Accept]), and keep the node's fabric groups equal to
// [Membership.Groups]. Senders need only [GroupOf].
//
// The package is not a multicast router, and takes no part in the election of a querier. It moves
// no frames and reads no clock.
//
// # Theory of operation
//
//	    kernel or netstack                                       other nodes
//	            │  IGMP/MLD report, leave                              │
//	            ▼                                                      ▼
//	Sent ──► members ── MAC ──► hash ──► Groups: join/leave     frame to GroupOf(MAC)
//	            │        │                                             │
//	Delivered ──┘        └──────────────► Accept ◄─────────────────────┘
//	(queries, others' reports)               └─► keep, or drop and count
//
// Nodes agree on the fabric group of a MAC address by computing it: group = hash(MAC) mod 63.
// Nothing is announced. So there is no state to lose, no order in which nodes must start, no
// hostile announcement, and no moment in which two nodes disagree. The receiver's filter separates
// two addresses that fall into one group, which makes any mapping correct. A collision costs a
// receiver some frames to drop: a member of k groups gets about k/63 of the frames for other
// groups. An allocated table would save only that, only up to 63 groups in the whole fabric, and
// would need agreement between all nodes. Here groups never run out. Group 63 reaches every node.
// It carries frames that every node must see or that no membership protocol covers: broadcast,
// 224.0.0.0/24, ff0x::00xx, and MAC groups that are not IP.
//
// A member is forgotten [LeaveTime] after a leave: another host behind a TAP may still want the
// group, and says so when it hears the query after the leave. It is also forgotten when a query
// stayed unanswered for [MemberTime]. Without a query it is remembered for ever, because a kernel
// reports unasked only when it joins. For the same reason a daemon that adopts an interface asks
// once when it starts ([AppendIGMPQuery], [AppendMLDQuery]). An IGMPv2 host stays silent when it
// hears another host report, so a delivered report counts as an answer, too.
//
// Limits: beyond [MaxMembers] the node takes all multicast, until a later query shows fewer
// members. The receiving stack applies the source filters of IGMPv3 and MLDv2. Malformed messages
// change nothing.
package multicast
