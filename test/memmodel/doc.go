// Package memmodel explores small concurrent protocols on memories that reorder: every
// interleaving, every store buffer, every early or late load. It proves that a protocol over shared
// memory cannot lose a wake-up, a message or a buffer. When a fence, a second check or an order is
// taken away, it shows the shortest way to the loss.
//
// # Why
//
// The protocols between two processes of this project are a few loads and stores long. Each rests
// on a rule that looks superfluous: "fence, then look again". Tests do not notice a missing rule,
// because the window is a few nanoseconds wide and x86 hides half of it. Nor does thinking in
// interleavings, where the rule is in fact superfluous. So every such protocol has a model here
// (package channel has those of the fabric), and every rule in it is broken once, to see that the
// model needs it.
//
// # How it works
//
// A model is a handful of words of shared memory, events, and processes. A process is a program of
// statements (Load, Store, Fence, Wait ...) over variables of its own. Explore computes all
// reachable states, breadth first. A state holds, for each process, the place in its program, its
// variables, and what is under way between it and memory. Explore stops at the first state in which
//
//   - an Assert, an Expect, or a claim made by Always is false;
//   - nothing can go on, but a process still sleeps; a lost wake-up is just that;
//   - everything has ended, but a claim made by Finally is false; "nothing was lost" is such a
//     claim;
//   - processes run in a circle from which no end can be reached.
//
// Because the search is breadth first, the trace that it prints is a shortest way to the error; the
// example shows one.
//
// What a load can return depends on the Memory; memory.go has a picture. On SC every process sees a
// store at once. On TSO stores wait in a FIFO buffer. On Weak they leave the buffer in any order,
// unless they are to the same word or are release stores. A load is satisfied early, by a value
// that memory held at any moment since the last fence (the echo), or late, after later stores have
// become visible, as long as nothing needs the value. An acquire load makes everything before the
// store that it read unreachable. A fence waits until nothing is under way and forgets the past.
//
// Two reductions keep the search small without losing an outcome. A step that only its own process
// can notice is no step (step.go). A value that will never be looked at is forgotten (liveness.go).
// Half a million states take about a second.
//
// The memories themselves are tested twice: against litmus tests with outcomes known from the
// literature, and against the axiomatic definitions of x86 and ARMv8 on random programs. SC and TSO
// match those exactly. Weak contains ARMv8, except for the gap named below.
//
// # How to write a model
//
// Declare words with the owner in mind, and one process for every thread that has a CPU of its own.
// Translate the code statement by statement:
//
//	C                                       Go                    model
//	atomic_store_explicit(relaxed), plain   plain                 Store
//	atomic_store_explicit(release)                                StoreRelease
//	                                        atomic.Store          StoreRelease, Fence
//	atomic_load_explicit(relaxed), plain    plain                 Load
//	atomic_load_explicit(acquire)           atomic.Load           LoadAcquire
//	atomic_thread_fence(seq_cst)                                  Fence
//	atomic_exchange, _compare_exchange      atomic.Swap, CAS      Exchange, CompareAndSwap
//	memcpy out of a shared buffer           copy                  Expect
//	write(eventfd)                                                Ring
//	epoll_wait, EPOLLET                                           Wait
//	poll; read(eventfd)                                           Poll; Drain
//
// The fence in a Go store orders it only with later operations of sync/atomic, so the load that
// follows must be one.
//
// A piece of protocol that occurs twice is a Go function that returns a Stmt. Number the messages,
// so that Expect notices a lost, doubled or early one. Let the programs end, and use two or three
// of everything. Mark with Rule each statement that is there for a reason, together with what a
// careless programmer would write instead. List in a test on which memory each rule is needed;
// holds and needs in package channel do that. A rule without a counter-example is either
// superfluous or not modelled.
//
// # What it does not cover
//
//   - More than was modelled: three messages say nothing certain about the fourth, and a hostile
//     peer is only as hostile as its program. Result.Bounded says when a buffer was full, so that a
//     deeper one might have shown more.
//   - The compiler. Words are accessed as written; C and Go want atomics even where this memory
//     would be content.
//   - Words wider than a byte, torn or overlapping accesses, non-temporal stores, device memory.
//   - One freedom of arm64: a computation waits for the loads it uses, and so do the stores after
//     it. (A plain copy, Load and Store of the same variable, does not.) To judge a value without
//     waiting for it, use Expect.
//
// Otherwise Weak errs on the safe side. Address dependencies order nothing. A release store and a
// later acquire load of different words do not stay in order (as with LDAPR; LDAR keeps the order).
// An acquire load from a store of its own process orders nothing. Exchange and CompareAndSwap are
// full fences, like a locked instruction or SWPAL and CASAL; a loop of LDAXR and STLXR is less.
// Machines on which some processes see a store before others do (POWER) are not covered.
package memmodel
