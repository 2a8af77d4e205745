// Package directsockets is package net for TCP connections whose bytes may leave
// TCP: EXT-DS for Go programs, which no preloaded library reaches.
//
//	l, err := directsockets.Listen("tcp", ":8080")      // http.Serve(l, handler)
//	c, err := directsockets.Dial("tcp", "127.0.0.1:6379")
//	transport := &http.Transport{DialContext: new(directsockets.Dialer).DialContext}
//
// A [Conn] is used like a *net.TCPConn. Once it is busy, and its peer is in the
// same fabric directory, in the same network namespace or one that exn0 or a bridge
// joins with it, and uses this package or libextds.so, its bytes go through memory that the two
// processes share; names, options, errors and deadlines stay those of the TCP
// connection, which stays. If not, it is a TCP connection that makes the system calls of package net.
// [Conn.Status] says which, and why, and exn-tun show sockets from outside. The fabric directory is [Options].Fabric or
// EXN_FABRIC; EXN_DS=off turns all of it off, and the other variables of the C
// library (preload/config.c) mean the same here.
//
// ext-ds.md is what both implement. It has the protocol and its reasons; this is how
// it is done here.
//
// # The life of a connection
//
//		    NEW ─► COUNTING ─8 calls or 16 KiB─► OFFERED / ATTACHING ─proof─► ATTACHED ─► LANE
//		               ▲─────────1 s without an answer──┘                                  │
//		any ──reason──► TCP ◄─────────File, SyscallConn: both directions go back───────────┘
//
//	 1. Dial or Accept wrap a *net.TCPConn (dial.go). Until the connection is busy
//	    calls go to it and are counted (Conn.count); then the board is looked at,
//	    in memory (board_unsafe.go). If nobody with EXT-DS is at that port, that is all.
//	 2. Else a goroutine makes an offer and looks for the peer's (rendezvous.go,
//	    offer.go, directory.go). A channel to the peer process is opened, once
//	    (channel.go), and over it one end asks with a proof of owning its end of
//	    the connection (proof.go), and the other answers with one. Each takes the
//	    same lane of the channel.
//	 3. Each end engages by itself (Conn.engage): it interrupts the calls that
//	    sleep in TCP, compares its counts with the kernel's, consents to be written
//	    to by the lane, and lets the calls go on.
//	 4. The next write, if the peer consents, posts SWITCH with the bytes that went
//	    by TCP, and its bytes follow on the lane (write.go). The reader reads TCP up
//	    to that place, then the lane (read.go). The directions are independent.
//	 5. A direction goes back by BACK: when the peer has ended, asks for it, or the
//	    connection leaves for good (end.go).
//	 6. Shutdown and close say so on the lane, then by TCP, so ends, resets and
//	    errors are the kernel's. A peer that dies is noticed by both.
//
// # Sleeping
//
// Nothing spins but a call that expects its answer soon, and of these one less
// than there are CPUs for Go: up to EXN_DS_SPIN_US, half as long after each time in
// vain, not at all with one CPU or where the peer last ran on ours (spin.go).
// Then it parks; who slept long the last time in the netpoller, on one of four doorbells of
// its channel (perch.go). Others are woken by goroutines, which sleep in the netpoller themselves:
//
//	watcher, of a channel      rung by the peer; has it mark the lanes on which
//	                           somebody sleeps (watch.go, with the proof that no
//	                           wake-up is lost)
//	sentry, of a process       an epoll set with the TCP sockets: ends, resets,
//	                           bytes by TCP (sentry.go)
//	night watch, of a channel  answers for connections that no call uses (night.go)
//
// So an idle connection costs its goroutine and its descriptor, no time and no
// thread. A channel has three goroutines and 15 descriptors, a process a listener.
//
// # Locks and memory
//
// rx.mu and tx.mu belong to the call that reads or writes, asleep too, and are
// handed over to who needs them (side.go has the order of all locks). Lane memory
// is used with one of them held, or by the watcher for a writer that sleeps; it is
// unmapped when its channel has ended and no connection has a lane on it.
//
// What comes from the peer's memory and messages is checked (internal/lane,
// message.go, ext-ds.md section 6); nonsense resets that connection, or ends the
// channel, and nothing else.
//
// A large Write out of a [Buffer], memory that the peer has mapped, is copied by the reader
// alone. EXN_DS_ZCOPY does the same for all memory, by process_vm_readv, where
// that is permitted (zcopy.go); it saves less.
//
// # When something is wrong
//
// Nothing of what follows hangs, and [Conn.Status] names each:
//
//	a peer of another version          TCP, "version"
//	a fabric directory that cannot be  TCP, "directory"
//	used or trusted
//	one that vanishes                  made anew for new connections; who has a lane keeps it
//	no lanes, memory or descriptors    TCP, "lanes", "memory", "files"
//	multipath TCP                      TCP, "option"
//	nonsense in the peer's memory      ECONNRESET, "hostile memory"; other connections go on
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
//   - Go runs nothing at the end of a program: the name of its listener stays in the
//     fabric directory until the next process sweeps there, which each does that
//     makes a listener of its own. So no more than the last ones are left.
//   - There is no upgrade across hosts.
package directsockets
