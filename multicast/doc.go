// Package multicast decides which multicast frames travel in which fabric group
// and which of them a node wants: IP groups as MAC addresses, MAC addresses as
// fabric groups, membership learnt by listening, and the filter of the receiver
// (SPEC MCS-1).
//
// It exists because the fabric has 64 groups and no notion of Ethernet, and
// because the kernel behind a TUN tells nobody what it joined except by sending
// IGMP and MLD reports.
//
// Use one [Membership] per interface: show it every frame that the local stack
// sends ([Membership.Sent]) and every one it is given ([Membership.Delivered]),
// ask it which received frames to keep ([Membership.Accept]), and keep the node's
// fabric groups equal to [Membership.Groups]. Senders need only [GroupOf].
//
// It is no multicast router and no querier with an election; it moves nothing and
// reads no clock.
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
// How do nodes agree which fabric group carries which MAC address? They compute
// it: group = hash(MAC) mod 63. Nothing is announced, so there is no state to
// lose, no order in which nodes must start, no hostile announcement, and no
// moment in which two nodes disagree. Two addresses that fall into one group
// are told apart by the receiver's filter, which makes any mapping correct; a
// collision costs a receiver some frames to drop: a member of k groups gets about
// k/63 of what is not for it. An allocated table would need agreement between all
// nodes, and saves only that, and only up to 63 groups in the whole fabric. Here
// groups never run out; group 63, which reaches everybody, is for
// frames that everybody must see or that no membership protocol covers:
// broadcast, 224.0.0.0/24, ff0x::00xx and MAC groups that are not IP.
//
// A member is forgotten on a leave after [LeaveTime] (another host behind a TAP
// may still want the group, and says so when it hears the leave's query), or
// when a query stayed unanswered for [MemberTime]. Without a query it is
// remembered for ever: a kernel reports unasked only when it joins. For the
// same reason a daemon that adopts an interface asks once at its start
// ([AppendIGMPQuery], [AppendMLDQuery]). An IGMPv2 host keeps silent when it hears
// another one report, so a report that is delivered counts as an answer, too.
//
// Limits: [MaxMembers]; beyond, the node takes all multicast until a later query
// shows fewer. Source filters of IGMPv3 and MLDv2 are left to the receiving stack.
// Malformed messages change nothing.
package multicast
