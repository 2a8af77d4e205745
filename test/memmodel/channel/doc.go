// Package channel holds models of the protocols by which two processes share memory. They are
// tests; there is nothing to import. The models of the fabric are:
//
//   - wake: sleeping and waking
//   - credit: slots and credit
//   - hazard: deferred deregistration
//   - doorbell: finding a peer that rings without data
//
// The models of directsockets are:
//
//   - engage and closing: how a connection leaves TCP, or is closed, without stranding a sleeper
//   - stream: how a direction moves to its lane and back, ends or dies
//   - threads: what the threads of one side owe each other
//   - room and beside: how a sleeper learns that another thread wants room, or has taken its ring
//   - watcher: how one goroutine of a Go program waits for many calls
//   - lock: how the lock of a connection becomes one between processes
//   - forking: how a fork copies what it has counted
//   - heirs: whether a program that has inherited a connection has ended
//   - due: when a reader of small parts wakes a writer that waits for room
//   - shelf: how lanes share the bytes of a file
//
// Each model is the protocol as it must be written, statement by statement, on memory that reorders
// as x86 (TSO) or arm64 (Weak) does. The tests show that it holds there, and that it breaks when
// any of its rules is taken away. The tables beside the models name the strongest memory on which
// each rule is needed:
//
//	SC    an error of logic: interleaving alone triggers it
//	TSO   a missing fence: on x86 and arm64
//	Weak  a missing acquire or release: on arm64, or by the compiler
//
// Code that obeys one of these rules should say so there. Code that cannot obey them needs a new
// model first.
//
// Lessons from the models:
//
//   - A writer out of credit must look at the credit after it has published its sleep epoch. A look
//     after setting "blocked" does not replace that: between the two, the consumer may read an even
//     epoch and not ring. With the look after the epoch, the one after "blocked" saves a sleep but
//     proves nothing, so it has no fence of its own here.
//   - Only the fences order the words of the sleep: epoch and blocked are written with plain
//     stores.
//   - An account of doorbells needs no slack if it is judged after a look at everything and kept
//     over the life of the channel. An account per wake-up drops honest peers: the second look may
//     take the message whose ring is still to come.
//   - A reader on TCP that has consented may receive TCP bytes that follow a whole visit to the
//     lane, if the visit began after its look at the lane. So a writer that goes back on its own
//     waits until SWITCH was taken.
//   - A sleeper that asks to be rung for credit may do so after the credit came. So a process that
//     then finds that room is wanted wakes it in any case.
//   - Sleepers may share a word that says what they wait for, and write it without a lock, as long
//     as none of them waits for more than what was posted.
//   - A thread that takes a ring and does not sleep must publish a new epoch for the sleepers
//     before it looks: nobody rings again for the old one.
//   - A counter may be drained anywhere between waking and the second look, but never after it.
package channel
