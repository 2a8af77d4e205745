// Package emu is the fabric in one process, on a network that misbehaves on
// purpose. Programs written against package fabric meet in it what shared
// memory never shows them: operations that complete later, messages in flight,
// links that are slow, err, stall and die.
//
// # How to use it
//
//	synctest.Test(t, func(t *testing.T) {
//		net := emu.New(emu.Config{Seed: 1})
//		defer net.Close()
//		net.Link(fabric.NodeAny, fabric.NodeAny).Set(emu.Latency(2*time.Microsecond), emu.BitErrors(1e-7))
//		net.At(time.Millisecond, func() { net.Link(1, 2).Set(emu.Down) })
//		a, err := net.Attach(1)
//		…
//	})
//
// In a testing/synctest bubble time is virtual: a simulated second costs only
// the work that happens in it. Outside of one, the same code runs in real
// time. Faults are set from Go, as above, or read from a scenario file
// ([ParseScenario], [Network.Play]).
//
// # Theory of operation
//
// A link is one direction between two nodes and carries everything between
// them in order: VELO messages, RMA packets, acknowledgements, credit.
//
//	Send, Post ──► queue ──► transmitter ─────► in the air ──► the target's unit
//	                 ▲        bandwidth         latency+jitter
//	                 └── again, after a bad CRC or while the link is down
//
// The transmitter takes the head of the queue, occupies the link for as long
// as the packet's bytes take, and draws whether bit errors hit it. A packet
// with a bad CRC is counted and sent again (NET-8), and everything behind it
// waits, so the order never changes. After so many failures in a row the link
// gives up what may be given up: the RMA operations in its queue, each with
// FaultLink at its requester. VELO messages and credit are tried for ever,
// unless the link is declared [Dead].
//
// VELO: each pair of ports has credit for 64 messages. Send takes one and
// queues the message; Poll at the target sends it back over the reverse link.
// No credit is ErrFull. A message remembers which opening of which port it was
// sent to, so that a reopened port gets nothing stale. That the port is not
// open is found out at the target (RegVELONoPort).
//
// RMA: a PUT streams packets of up to 496 bytes; the target translates and
// checks at the first of them, writes each as it arrives, notifies at the last
// and acknowledges. A GET travels as a request, is translated and checked at
// the target, and streams back. Source bytes are read when their packet leaves
// and sink bytes written when it arrives, not before. The requester
// notification comes with the acknowledgement or the last byte, so there is
// one verdict per operation. Notifications have credit too: Post is refused
// when those of the operation might find no room, here or at the target.
//
// # Determinism
//
// Everything the network does is an event at an instant. All random numbers of
// a link come from a generator of its own, seeded by Config.Seed and its two
// nodes. What a program causes happens at least a nanosecond later, and under
// synctest that is after everybody is asleep, so events of one instant run
// together, ordered by link. Equal seeds give equal traces (Config.Trace) as
// long as at most one goroutine per node acts at any instant, and no timer of
// the program ends in the very nanosecond of an event that concerns it.
//
// # What it is not
//
// It is no model of EXTOLL's timing: no crossbar, no virtual channels, one hop
// between any two nodes. It allocates, and its speed says nothing.
package emu
