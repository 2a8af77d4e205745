// Package napi is the poll engine of every receiver in exnet. It decides when a source of work is
// polled and for how long, when its interrupt is masked and unmasked, and how often it may
// interrupt. Linux calls this mechanism NAPI; this is NAPI in user space, with the interrupt
// throttling of the ixgbe driver (NAP-1, NAP-2, ITR-1, DRV-2).
//
// Handling each interrupt as it comes fails just when it matters: above some load a receiver does
// nothing but take interrupts (receive livelock). Here an interrupt only starts polling. Polling
// goes on with interrupts masked while there is work, in turns bounded by a budget. What cannot be
// served is dropped where it arrived, before any work was put into it.
//
// # Contract
//
//   - The engine does not know what it polls. A source is a [Poller] (do up to a budget of work)
//     and a [Line] (mask and arm its interrupt). A VELO mailbox, an RMA notification queue and a
//     TUN are all the same to it.
//   - One goroutine drives an Engine: it calls [Engine.Run], or [Engine.Turn] in a loop of its own.
//     Every Poller and Line method is called on that goroutine and nowhere else. A daemon that
//     wants one locked thread calls runtime.LockOSThread before Run.
//   - [Source.Raise], [Sleeper.Wake], [Engine.SetBusyPoll] and the Stats methods may be called from
//     any goroutine at any time, even inside Poll.
//   - After New and Add nothing allocates, and there is no lock. The engine shares one atomic flag
//     per source, and counters, with the interrupt side.
//   - Time comes from one injected [Clock], sleeping from one [Sleeper]. With fakes for both a run
//     is deterministic.
//
// The package has no queues, packets, file descriptors or threads. The memory ordering of a
// doorbell between processes is the business of the Line.
//
// # Theory of operation
//
// A source is in one of three states:
//
//	                 interrupt: mask (3)
//	    ┌───────┐ ─────────────────────────► ┌────────┐ ◄──┐ work = budget:
//	    │ armed │    busy-poll window: mask  │ listed │ ───┘ to the tail (6b, 8)
//	    └───────┘ ─────────────────────────► └────────┘
//	        ▲                                 │  ▲  ▲
//	        │           work < budget (6a, 7) │  │  │ window open: poll again
//	        │                                 ▼  │  │
//	        │ Arm() = true                  ┌───────┐
//	        └────────────────────────────── │ quiet │
//	          window over and gap over      └───────┘
//	                                          Arm() = false: listed again
//
//	armed   interrupt enabled, nothing to do
//	listed  interrupt masked, on the poll list
//	quiet   interrupt masked, last poll found less than its budget
//
// The nine steps of NAPI (thesis, section 5.1.4) map onto it like this. (1) Work
// arrives and (2) the source raises its interrupt: [Source.Raise], called by the
// Sleeper that saw it. (3) The next Turn masks the source and puts it on the poll
// list. (4, 5) The same Turn goes once round the list and calls Poll(budget) on
// each entry. (6a, 7) Less work than the budget: the entry leaves the list.
// (6b, 8) All of the budget: it goes to the tail, still masked. (9) Turns follow each other until
// the list is empty.
//
// A source is armed if and only if its last poll returned less than its budget and no gap or window
// holds it back. Between that poll and the unmasking, work may arrive that raises no interrupt. So
// arming checks again: Line.Arm unmasks and then looks for work. If there is some, it masks and
// returns false, and the source is listed as if it had interrupted. Without that second check a
// wake-up could be lost.
//
// Busy polling. After any source had work, every source stays masked and is polled once per Turn,
// until [Config.BusyPoll] has passed without work. A Turn that finds nothing asks for a yield;
// after the yield all sources are polled once more. So an answer that comes soon costs no
// interrupt, and sources that did not interrupt are polled, too. A source that was found empty
// since the last work of any source is not polled again before that yield. At the end of the window
// all sources are armed and the loop sleeps. A window of zero switches busy polling off: sources
// are armed one by one as they finish. While a source is Blocked (see [Result]) there is no busy
// polling, because the other party needs the CPU more.
//
// Rests. While the sources move bulk, some 8 Gbit/s, a yield that returns at once is followed by a
// rest of 40 µs, in which no source is armed. More rests follow until eight windows have passed
// without work. Polling would only cost CPU time, because data wait in buffers on both sides
// meanwhile. Sleeping until an interrupt would cost more: it costs the other party, too, and moves
// the loop to another CPU than the program that shares its data. A small message meanwhile waits
// for some 40 µs at most, as behind a throttled interrupt. What bulk has queued before it takes
// longer. With a window of more than a millisecond there are no rests.
//
// There are no rests either while some of the bulk comes in bursts, after which a poller wants a
// yield ([Result]). Then the loop goes on polling for 5 ms. The sender of a burst waits for nobody,
// and the scheduler would move it to an idle CPU, away from its own loop.
//
// Overload. After a yield that took very long, the loop does not yield for some time, and for
// longer each time that this soon happens again. All sources are then polled once more after work,
// and the loop sleeps as soon as a Turn finds nothing. A thread that yields may wait for the CPU
// longer than one that sleeps.
//
// Interrupt throttling (ITR) keeps a minimum gap between two interrupts of one source by arming it
// late. The gap is fixed, or it follows the throughput in three states; see [ITR].
//
// Interrupt mode is the older way, kept for comparison. An interrupt polls its source immediately,
// up to the budget, and then the source is armed again whatever the poll found. There is no list,
// no round robin and no window, and sources have the fixed priority of their registration. Only ITR
// protects the rest of the program.
//
// Giving way. After [Config.Slice] of work without a pause, a Turn only asks for a yield: the
// programs that these packets belong to may need the same CPU. The loop accounts for the time that
// such yields give away. It makes them rare while that exceeds its own time, so a program that
// never waits takes about half of the CPU and not all of it. A poller may ask for a yield earlier,
// when the work that it passed on fills the receiver's queue ([Result]).
//
// Limits: a Turn polls each listed source once. So a listed source waits for at most one budget of
// each other source. One that interrupts in the middle of a Turn waits for two or three budgets of
// each, and for the yields in between.
package napi
