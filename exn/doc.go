// Package exn is what speaks IP on a fabric. There are three such things, and to each
// other all are alike: a MAC address, frames of EXT-Eth (package exteth), ARP and
// neighbour discovery.
//
//	             whose TCP/IP      device, root   moves packets             files
//	Interface    the kernel's      yes            on one locked thread      the others
//	Node         a program's own   no             on exteth.Endpoint's      node*
//	Router       none: forwards    no             the same, one each port   router*
//
// An [Interface] is exn0: it moves packets between a TUN or TAP device of the kernel and
// the fabric, so that every program runs over it unchanged (SPEC DRV, NAP, ITR, STA). A
// [Node] is a program on the fabric with sockets of its own, a [Router] forwards
// between fabrics or subnets: both are netstack on attachments (netstack.go,
// attachment.go). A Router is shown ([Snapshot]) and captured as an Interface is. What
// follows is about the Interface.
//
//	dev, err := device.Open(…)
//	i, err := exn.Open(exn.Config{Node: node, Addresses: …}, dev)
//	err = i.Run(ctx)     // on a thread of its own, until ctx is done
//	i.Close()
//
// To the host, exn0 is an Ethernet-like link to all other nodes: no hop is added,
// TTL, fragments and options cross unchanged, and the kernel owns the addresses and
// answers for them.
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
// Data path. The loop polls each source for at most its budget, in turns (package
// napi). A packet is read straight into a buffer that its receiver fetches from,
// and written from where the sender has it: no copy in user space. Its virtio
// header crosses with it, so super-packets stay whole and checksums partial; what a
// receiver cannot take, EXT-Eth completes. While EXT-Eth has no room for the only
// peer in use, the device is not read: packets wait in the kernel's queue, which
// tells their senders. One peer among others that is slow has its packets dropped
// instead. After the last work the loop polls on for the busy-poll window, yielding
// the CPU each time, or resting in bulk (see package napi); then it arms the
// interrupts, looks again, and sleeps in ppoll.
//
// Trains. What follows a long packet of TCP over IPv4 without a gap is read behind it, and
// both are one super-packet, up to device.BigPacket long, if the receiver takes such:
// train.go. The receiver's loop counts one as the packets that it is made of.
//
// Place. While the device gives bulk, and no fewer threads of the machine want a CPU than
// it has, the loop keeps to the CPU that the packets come from, and so to the program that
// wrote them: follow.go. The kernel counts them by CPU for that (device.Origins).
//
// Resolution. On a TUN the kernel resolves nothing: it sends IP packets. netstack
// does: it holds the addresses for ARP, neighbour discovery and duplicate address
// detection alone, and sees nothing else; its neighbour table feeds arp.Cache, in
// which the data path finds the node of the next hop. A packet whose neighbour is not
// known waits, whole; if none is found, its sender gets the ICMP error that a host
// gives itself. What is too big for its receiver comes back as ICMP "too big", so
// that path MTU discovery works between nodes of different MTU.
//
// On a TAP all that is the kernel's: frames go by their destination MAC address, in
// which the node is, and its ARP and neighbour discovery cross as any broadcast and
// multicast. The device must have the node's MAC address. Static IPv4 addresses are
// still claimed here, so that a conflict is noticed.
//
// Groups. The kernel's IGMP and MLD reports are snooped as they pass (package
// multicast), and the node joins the groups of the fabric that they hash to. The
// kernel is asked for its memberships once, when the interface opens, for nobody
// heard them before. netstack sends no reports of its own.
//
// Life. IPv4 addresses are claimed by arp.Claim, IPv6 addresses by netstack; then the
// carrier comes up and [Interface.Ready] is closed, less than half a second after
// the start. An adopted interface is in use: its addresses are announced at once,
// and its connections go on. Addresses that are given to the device later, or taken
// away, are noticed. When a node leaves, its neighbours are forgotten.
// The carrier goes when Run ends.
//
// Carrier. It says that the node is attached to the fabric, as that of a NIC says that
// there is a cable to a switch: it goes when the fabric or the daemon does. It does not
// say that anybody else is there, that links to others work, nor that more can join
// (the fabric directory may be deleted): what works goes on working, which it would
// not without a carrier.
//
// Trust. Frames come from processes that may lie, in memory that they may change.
// Nothing is decided by a byte that is read twice; ARP and discovery are copied
// before they are looked at, and believed only of the node that speaks of itself.
// An address in use is defended, and no other node can make this one give it up.
//
// # What it is not
//
// It contains no protocol: TCP and UDP are the kernel's, resolution is netstack's,
// frames are package exteth's. It makes and configures no device (package device).
package exn
