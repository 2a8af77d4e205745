// Package exteth moves Ethernet frames over the fabric. It implements EXT-Eth of the thesis,
// chapter 5.4. Small frames travel in VELO messages (eager). Large frames are advertised by a VELO
// message, and the receiver fetches each with one RMA GET (rendezvous), so no copy is needed on the
// way.
//
// How to use it:
//
//	e, err := exteth.New(node, exteth.Config{Receive: func(f *exteth.Frame) error { … }})
//	b := e.Borrow()                  // nil: no buffer is free, so do not read more
//	n := read(tun, b.Bytes[64:])     // straight into memory that a peer can fetch from
//	err = e.Send(b, 50, 14+n, vnet, now)
//	e.PollVELO(now, 64)              // two receive sources, for two napi pollers
//	e.PollRMA(now, 64)
//	e.Advance(now)                   // queues and time-outs; e.Next says when it is due
//	e.Tell()                         // before sleeping: interrupts due to peers
//
// One goroutine owns an Engine. The engine never blocks, starts no goroutine and allocates nothing
// per frame. It reads no clock: the caller passes now, the time since any fixed moment. Other
// goroutines may use only [Engine.Statistics].
//
// [Endpoint] wraps an engine as a link of gVisor's netstack, with a goroutine of its own.
//
// The engine knows no TUN devices, resolves no addresses and keeps no membership. The MAC address
// names the destination node (package arp). The group is a hash of it (package multicast). The
// receive filter is a function in the [Config].
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
// Eager. A frame of up to [Config.Eager] bytes is cut into 120-byte fragments, and its buffer is
// free when Send returns. The user tag of each fragment is its index. A fragment out of order means
// that the sender gave the frame up halfway, so the receiver drops the frame.
//
// Rendezvous. A longer frame stays in its buffer, which is registered memory, until the responder
// notification says that it was fetched. Where the peer's memory is mapped ([fabric.InPlace]), the
// receive function itself is the sink of the GET: it may write(2) the bytes from where they lie.
// Otherwise, or with [Config.Copy], the sink is a buffer of the receiver's own pool.
//
// A transfer ends in one of these ways. The matcher, keyed by the address of the transfer's last
// packet, tells which transfer it was:
//
//	            ┌─ responder notification ──► free
//	advertised ─┼─ GET_NACK ────────────────► poison the address, free later, count
//	            ├─ 200 ms pass ─────────────► the same
//	            └─ the node leaves ─────────► the same
//
// Poisoning a buffer makes its address stale and keeps its memory until nobody reads it any more.
// Every end but the good one poisons, because the GET or its notification may still be under way.
// With a new address, neither can be mistaken for one of the next frame in that buffer. Nothing
// else would catch such a mix-up, since checksums may be partial.
//
// Order (RDV-4). A node receives all frames of another node in the order in which they were sent,
// eager and rendezvous alike. The rule asks only for order within a flow, but this needs no look
// into frames and has no exception. It rests on three things:
//
//   - VELO keeps order between two ports. Fragments and adverts are both VELO messages, so the
//     receiver learns of frames in order.
//   - At the receiver, a frame behind one that is still being fetched waits in the order queue of
//     its source. Where the receive function is the sink, no fetch is ever pending and that queue
//     stays empty.
//   - At the sender, a frame behind one that waits for its peer waits in the same queue.
//
// The price is that one lost GET delays its source, and only that source, by the time-out. A
// multicast frame that is sent to members one by one uses their queues. Small multicast frames take
// the same way as long as one waits there.
//
// Bounds. The peers share the buffers of one pool. Each peer has a window: how many adverts it may
// have outstanding, three quarters of the pool at most. A time-out reduces the window to one. The
// next fetched frame restores it, so a node that comes back gets at once what TCP retransmits.
//
// A frame that exceeds the window, or finds VELO full, waits in its peer's queue. A queue holds at
// most 64 frames, for 1 ms each; then they are dropped and counted. While only one peer is in use,
// frames for it wait 20 ms instead: no other peer needs the time, and a receiver that lost its CPU
// for a moment is no reason to lose frames.
//
// A peer that let frames expire has stalled. Then 1 ms holds for it again, and it does not count as
// in use until it is seen to receive: it fetches a frame, or makes room where VELO was full. So a
// stopped node costs the others some buffers for one time-out, and two buffers after that.
// [Engine.Blocked] tells the caller that waiting helps: the only peer in use is at its bound.
//
// Virtio headers. Each node announces in a HELLO which offloads it takes. What a receiver does not
// take, the sender completes in software: it finishes checksums and cuts super-packets. Multicast
// frames are always completed, since receivers differ.
//
// Hostile input. The engine checks every field of a message. A peer can make its own frames fail.
// It cannot make the engine read outside its memory, wait for ever, or hold more than its bounds.
package exteth
