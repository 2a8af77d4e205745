// Package mtu is the arithmetic of sizes: how long a packet may be on each part
// of the way between a program and the fabric, and what to tell a sender whose
// packet is longer.
//
// It exists because four quantities are called "the MTU" and differ by a header
// each. Here they are types, so that adding or comparing the wrong two does not
// compile:
//
//	Link    MAC payload that crosses the fabric: what ifconfig prints for exn0
//	IP      an IP packet, header included: what a route or an ICMP error says
//	Frame   MAC header and payload: what EXT-Eth moves
//	TUN,TAP what the kernel lets such a device have
//
//	          |<------------------- Frame ------------------->|
//	[ virtio ] [ MAC header 14 ] [ IP header | TCP | payload ]
//	                             |<-- Link, and IP if ≤ 65,535 -->|
//	                             |<------- TUN, TAP ------------->|
//
// Use [CheckLink], [CheckTUN] and [CheckTAP] on what a user asked for: their
// errors name the limit and the remedy. Use [Path] and [Path.TooBig] on the data path.
//
// It is not path MTU discovery: the kernel or netstack does that, from the
// values this package computes. It does no I/O and keeps no state.
package mtu
