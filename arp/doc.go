// Package arp knows which node has which address: MAC addresses and nodes, ARP packets, the claim
// of an IPv4 address, the neighbours that the data path knows, and the packets that wait for one
// (MAC-1, ARP-1, NDP-1).
//
// netstack resolves addresses, but it is not in the data path. Its ARP neither announces an address
// nor notices that another node uses it. This package adds what is missing, and gives the data path
// one map lookup from IP address to node.
//
//	netstack ──NUD events──► Cache ◄── Lookup ── data path ── Pending (no entry yet)
//	                           ▲                                  │
//	frames from the fabric ──► Observe (announcements)            └─ 64 packets, 3 s
//	                      └──► Claim (conflicts)  ── probes, announcements ──► fabric
//
// How to use it:
//
//   - [Prefix] converts a node to a MAC address and back; [LinkLocal] derives the IPv6 address.
//   - [Cache] is a stack.NUDDispatcher; give it to netstack as Options.NUDDisp.
//   - [Pending] holds packets until their neighbour is known.
//   - [Claim] takes an address into use: probe, announce, defend (RFC 5227).
//
// The package does no I/O, starts no goroutine and reads no clock. Callers pass the time as a
// duration since any fixed moment, and send the frames that it returns. netstack's own DAD probes
// IPv6 addresses; only their announcement is here ([AppendUnsolicitedNA]).
package arp
