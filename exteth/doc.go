// Package exteth moves Ethernet frames over the fabric: EXT-Eth of the thesis,
// chapter 5.4 (SPEC ETH, EAG, RDV, MAT). Small frames travel in VELO messages
// (eager), large ones are advertised by VELO and fetched by the receiver with one
// RMA GET (rendezvous), so that they need no copy on the way.
//
// How to use it:
//
//	e, err := exteth.New(node, exteth.Config{Receive: func(f *exteth.Frame) error { … }})
//	b := e.Borrow()                  // nil: no buffer free, do not read more
//	n := read(tun, b.Bytes[64:])     // straight into memory that a peer can fetch from
//	err = e.Send(b, 50, 14+n, vnet, now)
//	e.PollVELO(now, 64)              // two receive sources, for two napi pollers
//	e.PollRMA(now, 64)
//	e.Advance(now)                   // queues and time-outs; e.Next says when
//	e.Tell()                         // before sleeping
//
// One goroutine owns an Engine. It never blocks, reads no clock (now is the time
// since any fixed moment), starts no goroutine and allocates nothing per frame.
// Only [Engine.Statistics] may be used by others.
//
// [Endpoint] is the engine as a link of gVisor's netstack, with a goroutine of its own.
//
// It does not know TUN devices, resolves no addresses, and keeps no membership:
// the destination node is in the MAC address (package arp), the group a hash of it
// (package multicast), and the receive filter a function in the [Config].
//
// # Theory of operation
//
//	sender                                      receiver
//	  │  FRAG 0 ─ FRAG 1 ─ FRAG_LAST 2   VELO      │
//	  ├───────────────────────────────────────────►│ reassemble, hand up
//	  │                                            │
//	  │  GET_INFO {address, length, vnet}   VELO   │
//	  ├───────────────────────────────────────────►│ take a sink, or be one
//	  │◄──────────────────── GET ──────────────────┤
//	  │ responder notification                     │ completer notification
//	  │   └─► buffer free                          │   └─► hand up, sink free
//	  │  GET_NACK {address, length}         VELO   │
//	  │◄───────────────────────────────────────────┤ no sink, or too long
//
// Eager. A frame of up to [Config.Eager] bytes is cut into 120-byte pieces; its
// buffer is free when Send returns. The index of each piece is its user tag: a
// piece out of order means that the frame was given up on the way, and drops it.
//
// Rendezvous. A longer frame stays in its buffer, which is registered memory, until
// the responder notification says that it was fetched. Where the peer's memory is
// mapped ([fabric.InPlace]) the sink of the GET is the receive function itself,
// which may write(2) the bytes from where they lie; else, or with [Config.Copy],
// it is a buffer of the receiver's own pool.
//
// A transfer ends in one of these ways, and the matcher, keyed by the address of its
// last packet, tells which transfer it was:
//
//	            ┌─ responder notification ──► free
//	advertised ─┼─ GET_NACK ────────────────► poison the address, free later, count
//	            ├─ 200 ms pass ─────────────► the same
//	            └─ the node leaves ─────────► the same
//
// Poisoning makes the address stale and keeps the memory until nobody reads it. It
// follows every end but the good one, because the GET may be under way, or its
// notification: under the old address neither can be taken for one of the frame
// that uses the buffer next. Nothing else would notice: checksums may be partial.
//
// Order (RDV-4). All frames from one node to another are handed up in the order in
// which they were sent, whatever their path. That is more than the rule asks for,
// which is order within a flow, but it needs no look into frames and has no
// exception. It rests on three things. VELO keeps order between two ports, and both
// pieces and adverts are VELO messages, so the receiver learns of frames in
// order. At the receiver, a frame behind one that is still being fetched waits in
// the order queue of its source. At the sender, a frame behind one that had to wait
// for its peer waits in the same queue. Where the receiver is the sink itself nothing
// is ever being fetched, and the order queue stays empty. The price is that one lost
// GET holds up that source, alone, for the time-out. A multicast frame that is
// sent to members one by one uses their queues, and small multicast frames follow the
// same way as long as one waits there.
//
// Bounds. The peers share the buffers of one pool. Each has a window of adverts that
// may be out, three quarters of the pool; a time-out closes it to one, and the next
// fetched frame opens it again: a node that comes back gets at once what TCP found
// lost meanwhile. Beyond it, and when VELO is full, the peer's
// frames wait in its own queue, at most 64 and 1 ms each, then drop, counted. While
// it is the only peer in use they wait 20 ms: nobody else needs the time, and a
// receiver that lost its CPU for a moment is no reason to lose frames. After waiting
// in vain once it has stalled: 1 ms holds for it, and it does not count as one in
// use, until it is seen to receive, by fetching or by making room where VELO was
// full. So a node that stopped costs the others some buffers for one time-out, and
// two after that. [Engine.Blocked] says that waiting helps: the only peer in use is
// at its bound.
//
// Virtio headers. Each node says in a HELLO what it takes. What a receiver does not
// take, the sender completes in software: it sums checksums and cuts super-packets.
// Multicast frames are always completed, since receivers differ.
//
// Hostile input. Every field of a message is checked. A peer can make its own
// frames fail; it cannot make the engine read outside its memory, wait for ever,
// or hold more than its bounds.
package exteth
