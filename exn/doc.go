// Package exn speaks IP on a fabric, in three forms. To each other they look alike: each has a MAC
// address, exchanges frames of EXT-Eth (package exteth), and does ARP and neighbour discovery.
//
//	             whose TCP/IP      device, root   moves packets             files
//	Interface    the kernel's      yes            on one locked thread      the others
//	Node         a program's own   no             on exteth.Endpoint's      node*
//	Router       none: forwards    no             the same, one each port   router*
//
// An [Interface] is exn0: it moves packets between a TUN or TAP device of the kernel and the
// fabric, so every program runs over it unchanged. A [Node] is a program on the fabric with sockets
// of its own. A [Router] forwards between fabrics or subnets. Both use netstack on attachments
// (netstack.go, attachment.go). A Router supports [Snapshot] and captures as an Interface does. The
// rest of this comment is about the Interface.
//
//	dev, err := device.Open(…)
//	i, err := exn.Open(exn.Config{Node: node, Addresses: …}, dev)
//	err = i.Run(ctx)     // on a thread of its own, until ctx is done
//	i.Close()
//
// To the host, exn0 is an Ethernet-like link to all other nodes. It adds no hop; TTL, fragments and
// options cross unchanged. The kernel owns the addresses and answers for them.
//
// # Theory of operation
//
//	                 one locked thread, four sources
//	        ┌──────────────────────────────────────────────┐
//	kernel  │ device  ── Read ──► next hop ──► node ──► Send │  fabric
//	 ◄────► │ velo    ◄─ Write ── frame, where it lies ◄──── │ ◄────►
//	exn0    │ rma     ◄─ buffers free again, fetched frames  │
//	        │ mailbox ◄─ netstack's frames, events, timers   │
//	        └──────────────▲───────────────────────────────┘
//	                       │ ARP, ND
//	                   netstack, beside the path
//
// Data path. The loop polls each source for at most its budget, in turns (package napi). It reads a
// packet straight into a buffer that the receiver fetches from, and the receiver writes it from
// where the sender has it: there is no copy in user space. The virtio header crosses with the
// packet, so super-packets stay whole and checksums partial. EXT-Eth completes what a receiver
// cannot take.
//
// While EXT-Eth has no room for the only peer in use, the loop does not read the device: packets
// wait in the kernel's queue, which slows their senders down. If one of several peers is slow, its
// packets are dropped instead. After the last work the loop polls on for the busy-poll window. It
// yields the CPU between polls, or rests in bulk traffic (see package napi). Then it arms the
// interrupts, checks once more, and sleeps in ppoll.
//
// Trains. The packets that directly follow a long TCP packet over IPv4 are read behind it, and all
// become one super-packet of up to device.BigPacket bytes, if the receiver takes such (train.go).
// The receiver's loop counts it as the packets that it is made of.
//
// Place. During bulk traffic from the device, the loop moves to the CPU that the packets come from,
// and so to the program that wrote them (follow.go). It does so only while at least as many threads
// of the machine want a CPU as there are CPUs. The kernel counts packets by CPU (device.Origins).
//
// Resolution. On a TUN the kernel resolves no addresses: it sends IP packets. netstack resolves
// them. It holds the interface's addresses only for ARP, neighbour discovery and duplicate address
// detection, and sees no other traffic. Its neighbour table feeds arp.Cache, in which the data path
// finds the node of the next hop. A packet whose neighbour is unknown waits, whole. If none is
// found, its sender gets the ICMP error that a host gives itself. A packet too big for its receiver
// is answered with ICMP "too big", so path MTU discovery works between nodes of different MTU.
//
// On a TAP the kernel does all that. The destination MAC address of a frame names the node, and the
// kernel's ARP and neighbour discovery cross like any broadcast and multicast. The device must have
// the node's MAC address. Static IPv4 addresses are still claimed here, so conflicts are noticed.
//
// Groups. The loop snoops the kernel's IGMP and MLD reports as they pass (package multicast). The
// node joins the fabric groups that they hash to. When the interface opens, the loop asks the
// kernel once for its memberships, because nobody heard earlier reports. netstack sends no reports
// of its own.
//
// Life. arp.Claim claims IPv4 addresses, netstack IPv6 addresses. Then the carrier comes up and
// [Interface.Ready] is closed, less than half a second after the start. An adopted interface is
// already in use, so its addresses are announced at once and its connections go on. The loop
// notices addresses that the device gets or loses later. When a node leaves, its neighbours are
// forgotten. When Run ends the carrier goes down.
//
// Carrier. It means that the node is attached to the fabric, as a NIC's carrier means that a cable
// leads to a switch. It goes down when the fabric or the daemon does. It does not mean that another
// node is there, that links to others work, or that more nodes can join: the fabric directory may
// have been deleted. What works goes on working, which it would not without a carrier.
//
// Trust. Frames come from processes that may lie, in memory that they may change. No decision
// depends on a byte that is read twice. ARP and neighbour discovery are copied before they are
// parsed, and a node is believed only about itself. An address in use is defended, and no other
// node can make this one give it up.
//
// # What it is not
//
// The package contains no protocol. TCP and UDP are the kernel's, resolution is netstack's, and
// frames are package exteth's. It does not make or configure devices (package device).
package exn
