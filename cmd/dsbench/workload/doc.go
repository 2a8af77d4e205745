// Package workload measures real programs that talk TCP over loopback, in turn
// without and with libextds.so preloaded. It is `dsbench ds --preload`, which
// looks at the library itself, and `dsbench apps`, which looks at servers; and a Go
// program (gopump) in turn with package net and with package directsockets, for
// `dsbench ds --go`.
//
//	stream            iperf3, one stream
//	ping-polling      sockperf, 64 bytes, the sides on two CPUs
//	ping-asleep       the same, one request a millisecond
//	ping-one-cpu      round trips with both sides on one CPU
//	short-calls       system calls of connections too short to upgrade
//	short-time        their time, on one CPU
//	plain-calls       system calls of a long connection to a program without the library
//	plain-time        their time, on one CPU
//	slow-reader       a stream to a reader that takes little at a time and works for it;
//	                  -cpu: CPU time of both sides for a GB of it
//	start-…           what preloading adds to the start of a program
//
//	stream, ping-…    the same of the Go program; ping-polling on any CPU, since a Go
//	plain-calls       program polls only where it has two
//	stream-one-cpu    one stream, both sides on one CPU
//	requests          requests on 1,000 connections at a time
//	requests-cpu      CPU time of both sides for one
//
//	zcopy-…           of either: a stream of large writes that their reader copies, beside the
//	                  same through windows; -cpu: CPU time of both sides for a GB of it
//	buffer-…          likewise, written out of buffers that are registered with the reader
//
//	redis-get         redis-benchmark, 50 clients, one, and 500
//	redis-pipelined   50 clients with 16 requests at a time
//	redis-three       two of them at once, and redis-five four: more busy processes than CPUs
//	redis-cpu         CPU time of both sides per request
//	redis-one-cpu     50 clients, all on one CPU
//	redis-idle        CPU time while upgraded connections have nothing to do
//	redis-connect     a connection for each request
//	nginx             wrk, 50 connections, by size of the file; nginx-one: one
//	nginx-connect     ab, a connection for each request
//	memcached         memcaslap, 50 connections
//	pgbench           PostgreSQL, reads only, eight clients; pgbench-one: one
//	mariadb           sysbench's point select, eight threads; mariadb-one: one
//	postgres-copy     PostgreSQL, a table of a GB to a client that throws it away
//	mpi-…             Open MPI, latency, bandwidth and rate of messages of two ranks
//	paced-…           CPU time of a request each 30 µs, 150 µs or ms, where spinning is paid for
//	quota-…           in a cgroup of one CPU: speed, and how often it uses that up
//
// # Theory of operation
//
// The programs are Debian's (package debroot), so that everybody measures the
// same. A run is a server of its own, on a port below those that the kernel
// gives to clients, and a client that says itself how fast it was. Runs alternate,
// plain, library, plain, library, each pair in a private fabric directory; a run
// with the library that ought to upgrade is looked at on the way by what the
// processes publish (directsockets/status), and it is noted in the row when no
// connection was on a lane. As root, programs that can run once more between two network
// namespaces over exn0, as a third run of each round, and over a bridge, without the library
// and with it, if these ways are named. Noise is looked for beside each run
// ([measure.Quiet]).
//
// Where it is not said otherwise the kernel puts the processes where it likes.
// Counts are chosen by a first run of each side such that runs take about the
// same time; that run is the warm-up. Memcached stores more with each operation and
// gets slower by it, so there all sides do as many as the reference.
//
// What must be equal is measured in pairs pinned to one CPU, where neither side
// has to be woken on another and one of them always runs: there the CPU time of
// both is the time that it takes, and other programs do not count. It is judged by
// the 95 % interval of the ratio.
// System calls are counted by strace as the difference between a run of 2N and
// one of N operations, so that what a program does to start does not count.
package workload
