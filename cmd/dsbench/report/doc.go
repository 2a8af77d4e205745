// Package report is what every dsbench command prints: rows and a description
// of the machine, as a table for people or as JSON for programs.
//
// # Schema
//
// `dsbench … --json` prints one JSON object:
//
//	{"rows": [row…], "machine": {…}}
//
// and, only if something went wrong, also
//
//	"partial":  true                                 interrupted or failed: rows are missing
//	"failures": [{"test": "rma-put", "error": "…"}]  why
//
// A row is one point of a measurement. Its first eight fields are always there:
//
//	test       string         what was done: "velo-latency"
//	path       string         over what: "shm"
//	size       integer        bytes of one operation, 0 if it has none
//	value      number         the result, the median of runs
//	unit       string         of value, reference and runs: "ns" (time), "B/s",
//	                          "bit/s", "msg/s", "%" (of one CPU), "B", "objects/op", "calls/op" (system calls)
//	reference  number | null  the same of the reference beside it, the median of reference_runs
//	ratio      number | null  the median of runs[i] / reference_runs[i]
//	runs       [number…]      the results, in the order they were made
//
// and the others if they apply:
//
//	reference_runs  [number…]  reference_runs[i] was made right before runs[i]
//	what            string     what value is exactly: "half of a round trip, …"
//	against         string     what the reference is
//	note            string     what to know about this row
//	interval        [low, high] in which the ratio of the pairs lies in 95 of 100 cases,
//	                           from 10 pairs on
//	disturbed       integer    so many of the runs had to share their CPU with other programs
//	core_to_core    number     ns from one CPU to the other before the runs: half of a round
//	                           trip of a cache line. Virtual CPUs wander, and with them
//	                           everything that polls
//	target          object     what is wanted:
//	                           {"of": "value" | "ratio", "at_least": number} or "at_most";
//	                           of "ratio_surely": by the less favourable end of the interval
//	met             boolean    whether it is; there if target is
//
// More may come: readers ignore fields they do not know. Fields never change
// their meaning. Rows are the same point in another report if test, path and
// size are equal. [Machine] documents the machine; [Validate] checks an object.
package report
