// Package arp is everything about who is who on the fabric: MAC addresses and
// nodes, ARP packets, the claim of an IPv4 address, the neighbours that the
// data path knows, and the packets that wait for one (SPEC MAC-1, ARP-1, NDP-1).
//
// It exists because netstack resolves addresses but is not in the data path, and
// because its ARP neither announces an address nor notices that another node
// uses it. This package adds what is missing and gives the data path one map
// lookup from IP address to node.
//
//	netstack ──NUD events──► Cache ◄── Lookup ── data path ── Pending (no entry yet)
//	                           ▲                                  │
//	frames from the fabric ──► Observe (announcements)            └─ 64 packets, 3 s
//	                      └──► Claim (conflicts)  ── probes, announcements ──► fabric
//
// How to use it:
//
//   - [Prefix] turns a node into a MAC address and back; [LinkLocal] derives the
//     IPv6 address.
//   - [Cache] is a stack.NUDDispatcher; give it to netstack as Options.NUDDisp.
//   - [Pending] holds packets until their neighbour is known.
//   - [Claim] takes an address into use: probe, announce, defend (RFC 5227).
//
// It does no I/O, starts no goroutine and reads no clock: time is passed in as a
// duration since any fixed moment, frames to send are returned. IPv6 addresses
// are probed by netstack's own DAD; only the announcement is here
// ([AppendUnsolicitedNA]).
package arp
