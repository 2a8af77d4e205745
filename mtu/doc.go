// Package mtu computes sizes: how long a packet may be on each part of the way between a program
// and the fabric, and what to tell the sender of a longer one.
//
// Four quantities are called "the MTU", and each differs from the next by a header. Here they are
// types, so code that adds or compares the wrong two does not compile:
//
//	Link    MAC payload that crosses the fabric: what ifconfig prints for exn0
//	IP      an IP packet with its header: what a route or an ICMP error says
//	Frame   MAC header and payload: what EXT-Eth moves
//	TUN,TAP what the kernel allows for such a device
//
//	          |<------------------- Frame ------------------->|
//	[ virtio ] [ MAC header 14 ] [ IP header | TCP | payload ]
//	                             |<-- Link, and IP if ≤ 65,535 -->|
//	                             |<------- TUN, TAP ------------->|
//
// Use [CheckLink], [CheckTUN] and [CheckTAP] on a user's input: their errors name the limit and the
// remedy. Use [Path] and [Path.TooBig] on the data path.
//
// The package does no path MTU discovery: the kernel or netstack does that, from the values
// computed here. It does no I/O and keeps no state.
package mtu
