// Package measure runs a thing and its reference side by side in two
// processes and says how they compare.
//
// # Theory of operation
//
// A [Duo] is two processes, this program started twice as its hidden peer
// command: lead and follow, each with its measuring thread locked and pinned
// to a core of its own. The coordinator, which sleeps meanwhile, speaks JSON
// with them over one socket each:
//
//	coordinator              lead                     follow
//	  prepare ────────────────► make half
//	  prepare ─────────────────────────────────────────► make half
//	  meet ───────────────────► the other's words
//	  meet ────────────────────────────────────────────► the other's words
//	  run n ───────────────────────────────────────────► "running", n operations
//	  run n ──────────────────► n operations
//	        ◄───────────────── sample
//	        ◄────────────────────────────────────────── sample
//
// What is measured is a [Contender]: a pair of halves. The coordinator
// prepares two contenders in the same two processes, a reference and a
// subject, and [Alternate] runs them in turn, A B A B, so that whatever
// disturbs the machine disturbs both. Reported are medians, interquartile
// ranges and the median of the ratios within the pairs.
//
// # Ends
//
// The peers die with the coordinator (PR_SET_PDEATHSIG, and the end of their
// socket), and when the coordinator closes the Duo, also while a half spins or
// sleeps: it has to look at [Site.Stopped] whenever it waits, and is woken by
// [Site.OnStop]. A peer that dies or says nothing for too long ends the Duo
// with an error that names it.
//
// # What it is not
//
// It knows neither the fabric nor sockets: contenders live in the packages
// beside it. It takes no decision on what is good: see package report.
package measure
