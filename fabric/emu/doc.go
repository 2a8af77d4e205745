// Package emu is a fabric inside one process, on a network that misbehaves on purpose. Programs
// written against package fabric meet here what shared memory never shows them: operations that
// complete later, messages in flight, and links that are slow, corrupt packets, stall and die.
//
// # How to use it
//
//	synctest.Test(t, func(t *testing.T) {
//		net := emu.New(emu.Config{Seed: 1})
//		defer net.Close()
//		all := net.Link(fabric.NodeAny, fabric.NodeAny)
//		all.Set(emu.Latency(2*time.Microsecond), emu.BitErrors(1e-7))
//		net.At(time.Millisecond, func() { net.Link(1, 2).Set(emu.Down) })
//		a, err := net.Attach(1)
//		…
//	})
//
// In a testing/synctest bubble time is virtual: a simulated second costs only the work that happens
// in it. Outside a bubble the same code runs in real time. Faults are set from Go, as above, or
// read from a scenario file ([ParseScenario], [Network.Play]).
//
// # Theory of operation
//
// A link is one direction between two nodes. It carries everything between them in order: VELO
// messages, RMA packets, acknowledgements and credit.
//
//	Send, Post ──► queue ──► transmitter ─────► in the air ──► the target's unit
//	                 ▲        bandwidth         latency+jitter
//	                 └── again, after a bad CRC or while the link is down
//
// The transmitter takes the head of the queue, occupies the link for as long as the packet's bytes
// take, and draws whether bit errors hit it. A packet with a bad CRC is counted and sent again
// (NET-8). Everything behind it waits, so the order never changes. After a number of failures in a
// row the link gives up the RMA operations in its queue, each with FaultLink at its requester. It
// retries VELO messages and credit for ever, unless it is declared [Dead].
//
// VELO: each pair of ports has credit for 64 messages. Send takes one credit and queues the
// message; without credit it returns ErrFull. Poll at the target returns the credit over the
// reverse link. A message remembers which opening of the port it was sent to, so a reopened port
// gets nothing stale. If the port is not open, the target finds that out (RegVELONoPort).
//
// RMA: a PUT sends packets of up to 496 bytes. The target translates and checks the address at the
// first packet, writes each packet as it arrives, and notifies and acknowledges at the last. A GET
// travels as a request. The target translates and checks it, and sends the data back in packets.
// Source bytes are read when their packet leaves, and sink bytes are written when it arrives, not
// before. The requester notification comes with the acknowledgement or the last byte, so each
// operation has one verdict. Notifications have credit, too: Post returns ErrFull if the
// operation's notifications might find no room, here or at the target.
//
// # Determinism
//
// Everything the network does is an event at an instant. Each link draws its random numbers from a
// generator of its own, seeded by Config.Seed and its two nodes. What a program causes happens at
// least a nanosecond later. Under synctest that is after every goroutine sleeps, so events of one
// instant run together, ordered by link. Equal seeds give equal traces (Config.Trace), provided
// that at most one goroutine per node acts at any instant, and that no timer of the program ends in
// the very nanosecond of an event that concerns it.
//
// # What it is not
//
// It does not model EXTOLL's timing: it has no crossbar and no virtual channels, and there is one
// hop between any two nodes. It allocates, and its speed means nothing.
package emu
