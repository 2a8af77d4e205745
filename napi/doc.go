// Package napi is the poll engine of every receiver in exnet: it decides when
// a source of work is polled, for how long, when its interrupt is masked and
// unmasked, and how often it may interrupt. It is the mechanism that Linux
// calls NAPI, brought to user space, with the interrupt throttling of the
// ixgbe driver (SPEC NAP-1, NAP-2, ITR-1, DRV-2).
//
// It exists because handling each interrupt as it comes stops working just when
// it matters: above some load a receiver does nothing but take interrupts
// (receive livelock). Here an interrupt only starts polling; polling goes on,
// interrupts masked, while there is work, in turns bounded by a budget; and what
// cannot be served is dropped where it arrived, before any work was put into it.
//
// # Contract
//
//   - The engine does not know what it polls. A source is a [Poller] (take up
//     to a budget of work) and a [Line] (mask and arm its interrupt). VELO
//     mailboxes, RMA notification queues and a TUN are all the same to it.
//   - One goroutine drives an Engine: it calls [Engine.Run], or [Engine.Turn] in
//     a loop of its own. Every Poller and Line method is called on it and nowhere
//     else. A daemon that wants one locked thread calls runtime.LockOSThread
//     before Run.
//   - [Source.Raise], [Sleeper.Wake], [Engine.SetBusyPoll] and the Stats
//     methods may be called from any goroutine at any time, also from inside Poll.
//   - After New and Add nothing allocates, and there is no lock: the engine
//     shares one atomic flag per source with the interrupt side, and counters.
//   - Time comes from one injected [Clock], sleeping from one [Sleeper].
//     With both faked a run is deterministic.
//
// Not here: queues, packets, file descriptors, threads, and the memory ordering
// of a doorbell between processes. The last belongs to whoever implements Line.
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
// (6b, 8) All of the budget: it goes to the tail, still masked. (9) Turns follow
// each other until the list is empty.
//
// A source is armed if and only if its last poll returned less than its budget
// and no gap or window holds it back. Between that poll and the unmasking work
// may arrive that raises nothing, so arming looks again: Line.Arm unmasks, then
// looks, and if there is work it masks and returns false; the source is then
// listed as if it had interrupted. Without that second look a wake-up is lost.
//
// Busy polling. After any source had work, every source stays masked and is
// polled once per Turn until [Config.BusyPoll] has passed without work; each
// Turn that finds nothing asks for a yield, after which all are polled once more. So an
// answer that comes soon costs no interrupt, and the sources that did not interrupt
// are looked at too. A source that was found empty after the last work of any is not
// polled again before that yield. Then all are armed and the loop sleeps. A window of
// zero switches this off: sources are armed one by one as they finish. While a source
// is Blocked (see [Result]) there is no busy polling: the other party needs the CPU more
// than we do.
//
// Rests. While the sources move bulk, some 8 Gbit/s, a yield that came back at once is
// followed by a rest of 40 µs, in which no source is armed, and by more of them until
// eight windows have passed without work. Looking on would take CPU time for nothing: data
// wait in buffers on both sides meanwhile. Sleeping until an interrupt would take more, as it costs the
// other party, too, and moves the loop to another CPU than the program that shares its
// data. Whoever sends something small meanwhile waits for some 40 µs at most, as for an
// interrupt that is throttled; what bulk has queued before it takes longer. With a window of more than a millisecond there are none.
//
// Nor are there any while some of the bulk comes in bursts, after which a poller wants a
// yield ([Result]): then the loop looks on, for 5 ms. Its sender does not wait for anybody,
// and a CPU that has nothing to do would be given to it, away from its own loop.
//
// In a crowd, that is for some time after a yield that took very long (for longer each
// time that it soon happens again), nobody yields:
// all are polled once more after work, and the loop sleeps as soon as a Turn finds
// nothing. Who yields may have to wait for the CPU longer than who sleeps.
//
// Interrupt throttling (ITR) keeps a minimum gap between two interrupts of one
// source by arming it late. The gap is fixed, or follows the throughput in three
// states; see [ITR].
//
// Interrupt mode is the older way, kept for comparison: an interrupt polls its
// source there and then, up to the budget, and it is armed again whatever the poll
// found. There is no list, no round robin and no window, and sources have the fixed
// priority of their registration. Only ITR protects the rest of the program.
//
// Giving way. After [Config.Slice] of work without a pause a Turn does nothing but ask for
// a yield: the programs whose packets these are may need the same CPU. The loop keeps
// account of what such yields give away, and makes them rare while that is more than
// it has itself, so a program that never waits takes about half of the CPU and not all. A
// poller may want it earlier, when what it handed over fills the queue of who takes it
// ([Result]).
//
// Limits: a Turn polls each listed source once, so a listed source waits for at most
// one budget of each other, and one that interrupts in the middle of a Turn for two
// or three, and for the yields in between.
package napi
