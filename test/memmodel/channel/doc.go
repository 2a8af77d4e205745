// Package channel holds the models of the protocols by which two processes share memory: sleeping and waking, slots and
// credit, deferred deregistration, and the account of doorbells; and, for directsockets, how a connection leaves TCP without
// stranding a sleeper (engage), how a direction moves to its lane and back, ends or dies (stream), what the threads of one
// side owe each other (threads), how one that sleeps learns that another wants room (room) or has taken the ring (beside), how one goroutine of a Go
// program waits for many calls (watcher), how the lock of a connection becomes one between processes (lock), how a fork
// copies what it has counted (forking), whether a program that has inherited a connection has ended (heirs), when who reads in small parts wakes
// who waits for room (due), and how lanes share the bytes of a file (shelf). They are tests; there is nothing to import.
//
// Each model is the protocol as it must be written, statement by statement, on memory that reorders as x86 (TSO) or
// arm64 (Weak) does. The tests show that it holds there, and that it breaks when any of its rules is taken away. The
// tables beside the models say on which memory each rule is needed first:
//
//	SC    an error of logic: interleaving alone brings it about
//	TSO   a missing fence: x86 and arm64
//	Weak  a missing acquire or release: arm64, and the compiler
//
// Code that obeys one of these rules should say so where it does; code that cannot needs a model first.
//
// What the models have taught:
//
//   - A writer out of credit needs a look at the credit after it has published its sleep epoch. The look after saying
//     "blocked" does not replace it: between the two the consumer reads an even epoch and does not ring. With the look
//     after the epoch, the one after "blocked" saves a sleep but proves nothing, so it has no fence of its own here.
//   - Nothing but the fences orders the words of the sleep: epoch and blocked are written with plain stores.
//   - An account of doorbells needs no slack if it is judged after a look at everything and kept over the life of the
//     channel. Per wake-up it drops honest peers: the second look may take the message whose ring is still to come.
//   - A reader on TCP that has consented may receive TCP bytes that follow a whole visit to the lane which began after its
//     look at the lane. So a writer that goes back by itself waits until SWITCH was taken.
//   - A sleeper that has asked to be rung for credit may have done so after the credit came. So whoever then finds that
//     room is wanted wakes it all the same.
//   - What a sleeper waits for may be in a word that other sleepers write, too, without a lock, as long as none of them waits
//     for more than what was posted.
//   - Who takes a ring and does not sleep owes those who do a new epoch before it looks: for the old one nobody rings again.
//   - A counter that is drained may be drained anywhere between waking and the second look, never after it.
package channel
