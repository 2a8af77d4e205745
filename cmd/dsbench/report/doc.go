// Package report is what every dsbench command prints: rows and a description
// of the machine, as a table for people or as JSON for programs; and how two of
// them compare.
//
// # Schema
//
// `dsbench … --json` prints one JSON object, which is results.json of a report's
// directory, too:
//
//	{"schema": 1, "rows": [row…], "machine": {…}}
//
// and, only if there is something to say, also
//
//	"partial":  true                                 interrupted or failed: rows are missing
//	"failures": [{"test": "rma-put", "error": "…"}]  why
//	"skipped":  [{"what": "exn0", "why": "…"}]       what cannot be measured here, and the remedy
//	"verdicts": ["redis answers 4 × as many …"]      what the figures mean, in sentences
//	"paths":    {"exn0": "kernel TCP over exn0"}     what the paths of the rows are
//	"conditions": {…}                                what the machine was like: see [Conditions]
//
// A row is one point of a measurement. Its first eight fields are always there:
//
//	test       string         what was done: "velo-latency"
//	path       string         over what: "shm"
//	size       integer        bytes of one operation, 0 if it has none
//	value      number         the result, the median of runs
//	unit       string         of value, reference and runs: "ns" (time), "B/s",
//	                          "bit/s", "msg/s", "conn/s", "%" (of one CPU), "% of all", "B", "objects/op", "calls/op" (system calls)
//	reference  number | null  the same of the reference beside it, the median of reference_runs
//	ratio      number | null  the median of runs[i] / reference_runs[i]
//	runs       [number…]      the results, in the order they were made
//
// and the others if they apply:
//
//	setting         object     what rows of the test differ in instead of their size:
//	                           {"of": "MTU", "value": 1500, "unit": "B"}, the last unless it
//	                           is a plain number; one without it is the same at any
//	reference_runs  [number…]  reference_runs[i] was made beside runs[i], in the same round
//	quartiles       [low, high] between which the middle half of runs lies, from 2 runs on
//	percentiles     object     of the single operations of all runs, in unit: {"p50": number,
//	                           "p90", "p99", "p99.9", "max"}
//	what            string     what value is exactly: "half of a round trip, …"
//	against         string     what the reference is
//	note            string     what to know about this row
//	interval        [low, high] in which the ratio of the pairs lies in 95 of 100 cases,
//	                           from 10 pairs on
//	disturbed       integer    so many of the runs had to share their CPU with other programs, or
//	                           had a slower one, also when they were made again: the row is noisy
//	core_to_core    number     ns from one CPU to the other before the runs: half of a round
//	                           trip of a cache line. Virtual CPUs wander, and with them
//	                           everything that polls
//	core_to_core_runs [number…] the same right before each of the runs
//	lanes           object     what became of connections that asked for lanes of EXT-DS, in
//	                           all runs: {"connections": integer, "upgraded": those of which
//	                           bytes went by a lane, "lane_bytes", "tcp_bytes": both
//	                           directions, warm-up included, "why": {reason: of so many others}}
//	target          object     what is wanted:
//	                           {"of": "value" | "ratio", "at_least": number} or "at_most";
//	                           of "ratio_surely": by the less favourable end of the interval
//	met             boolean    whether it is; there if target is, and a result
//	no_result       string     why value is no result: its runs disagree, or the machine was busy
//	no_ratio        string     the same of ratio
//
// More may come: readers ignore fields they do not know. Fields never change
// their meaning. Rows are the same point in another report if test, path,
// size and setting are equal. [Machine] documents the machine; [Validate] checks an object.
package report
