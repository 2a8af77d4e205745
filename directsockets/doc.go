// Package directsockets is package net for TCP connections whose bytes may leave
// TCP: EXT-DS for Go programs, which no preloaded library reaches.
//
//	l, err := directsockets.Listen("tcp", ":8080")      // http.Serve(l, handler)
//	c, err := directsockets.Dial("tcp", "127.0.0.1:6379")
//	transport := &http.Transport{DialContext: new(directsockets.Dialer).DialContext}
//
// A [Conn] is used like a *net.TCPConn. Once the connection is busy, its bytes go through memory
// that the two processes share, provided that
//
//   - the peer uses this package or libextds.so,
//   - in the same fabric directory,
//   - and in the same network namespace, or in one that exn0 or a bridge joins with it.
//
// Names, options, errors and deadlines remain those of the TCP connection, which stays open.
// Otherwise a Conn is a TCP connection that makes the system calls of package net. [Conn.Status]
// reports which of the two it is, and why; exn-tun show sockets does so from outside.
// [Options].Fabric or EXN_FABRIC names the fabric directory. EXN_DS=off turns lanes off, and the
// other variables of the C library (preload/config.c) mean the same here.
//
// The document ext-ds.md specifies the protocol and explains it. The following describes how this
// package implements it.
//
// # The life of a connection
//
//	        NEW ─► COUNTING ─8 calls or 16 KiB─► OFFERED / ATTACHING ─proof─► ATTACHED ─► LANE
//	                   ▲─────────1 s without an answer──┘                                  │
//	any ──reason──► TCP ◄─────────File, SyscallConn: both directions go back───────────────┘
//
// The steps are:
//
//  1. Dial or Accept wrap a *net.TCPConn (dial.go). Until the connection is busy, calls go to TCP
//     and are counted (Conn.count). Then the connection looks at the board, which is memory
//     (board_unsafe.go). If nobody with EXT-DS uses that port, that is all.
//  2. Otherwise a goroutine makes an offer and looks for the peer's (rendezvous.go, offer.go,
//     directory.go). It opens a channel to the peer process, unless there is one (channel.go). Over
//     the channel one end asks to attach, with a proof that it owns its end of the connection
//     (proof.go), and the other answers with its own proof. Both take the same lane of the channel.
//  3. Each end engages by itself (Conn.engage). It interrupts the calls that sleep in TCP, compares
//     its counts with the kernel's, consents to receive by the lane, and lets the calls continue.
//  4. If the peer consents, the next write posts SWITCH with the number of bytes that went by TCP,
//     and its own bytes follow on the lane (write.go). The reader reads TCP up to that count, and
//     then the lane (read.go). The two directions are independent.
//  5. A direction returns to TCP with BACK: when the peer has ended, when the peer asks for it, or
//     when the connection leaves the lane for good (end.go).
//  6. Shutdown and close are announced on the lane first and then made by TCP, so the kernel
//     reports ends, resets and errors. Both the lane and TCP notice a peer that dies.
//
// # Sleeping
//
// A call spins only if it expects its answer soon. At most one call fewer than Go has CPUs spin at
// a time. A call spins for up to EXN_DS_SPIN_US, half as long after each time in vain, and not at
// all with one CPU or if the peer last ran on ours (spin.go). Then it sleeps. A call that slept
// long the last time sleeps in the netpoller, on one of the four doorbells of its channel that
// readers can sleep on (perch.go). Goroutines that sleep in the netpoller themselves wake the
// others:
//
//	watcher, of a channel      rung by the peer; has it mark the lanes on which
//	                           somebody sleeps (watch.go, with the proof that no
//	                           wake-up is lost)
//	sentry, of a process       an epoll set with the TCP sockets: ends, resets,
//	                           bytes by TCP (sentry.go)
//	night watch, of a channel  answers for connections that no call uses (night.go)
//
// So an idle connection costs its goroutine and its descriptor, but no time and no thread. A
// channel has three goroutines and 15 descriptors; a process has one listener.
//
// # Locks and memory
//
// The call that reads holds rx.mu and the call that writes holds tx.mu, even while it sleeps. It
// hands the lock over to a caller that needs it (side.go has the order of all locks). Lane memory
// is used with one of these locks held, or by the watcher on behalf of a writer that sleeps. It is
// unmapped when its channel has ended and no connection has a lane on it.
//
// This package checks everything that comes from the peer's memory and messages (internal/lane,
// message.go, ext-ds.md section 6). Invalid data resets that connection or ends the channel, and
// affects nothing else.
//
// The reader alone copies a large Write from a [Buffer], which is memory that the peer has mapped.
// EXN_DS_ZCOPY does the same for all memory, with process_vm_readv where that is permitted
// (zcopy.go); it saves less.
//
// # When something is wrong
//
// None of the following hangs, and [Conn.Status] names each:
//
//	a peer of another version          TCP, "version"
//	a fabric directory that cannot be  TCP, "directory"
//	used or trusted
//	one that vanishes                  made anew for new connections; others keep their lanes
//	no lanes, memory or descriptors    TCP, "lanes", "memory", "files"
//	multipath TCP                      TCP, "option"
//	invalid data in the peer's memory  ECONNRESET, "hostile memory"; other connections go on
//	a peer that dies                   what TCP says: the end, or ECONNRESET
//
// # What it is not
//
//   - Multipath TCP, which Go's listeners use by default, has no lanes: ListenConfig
//     turns it off.
//   - net.Buffers.WriteTo knows the connections of package net only and makes a
//     Write for each buffer, also on TCP; see [Conn.WriteBuffers].
//   - A TCP socket obtained by File or used by SyscallConn().Read and Write moves
//     bytes past this package, so its connection goes back to TCP for good. Control
//     does not: it is for options.
//   - Go runs nothing at the end of a program, so the name of its listener stays in the fabric
//     directory until another process sweeps it. Each process does that when it makes a listener,
//     so only the last few names are left.
//   - There is no upgrade across hosts.
package directsockets
