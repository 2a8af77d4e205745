// Package exn0 measures the interface exn0 as programs see it, beside its two
// references of package path: a pair of veths, and a relay that only copies
// from one TUN to another. It is `dsbench exn`.
//
//	tcp-1           one TCP stream, MTU 65,535, against the relay
//	tcp-1-veth      the same against veth; also the relay itself
//	relay           the relay itself against another, where one is given
//	tcp-1-mtu1500   the same at MTU 1500
//	tcp-2, tcp-4    two and four streams at a time, against veth
//	tcp-bidir       a stream each way at the same time, against the relay
//	cpu-per-gb      CPU time of the daemons for each GB of tcp-1
//	rtt-p50, -p99   half of a round trip of 64 bytes of TCP, one after the other
//	first-packet    the same after 20 ms of silence
//	udp             UDP datagrams of 1400 bytes that arrive
//	udp-gso         the same handed over 44 at a time
//	node            one stream from a program that is a node of the fabric itself
//	stalled         one stream, while one of two more nodes that are sent to is
//	                stopped, against that node running
//	alloc           heap objects that the daemons allocate for each packet
//	idle            CPU use of both daemons without traffic
//	variant-…       tcp-1 and rtt with other settings than the defaults
//
// # Theory of operation
//
// All paths stand side by side for as long as dsbench runs, in namespaces of
// their own; two processes ([measure.Duo]) make the traffic on each in turn.
//
//	run 1   tcp-1:  relay, veth, exn0   rtt:  relay, veth, exn0   …
//	run 2   tcp-1:  relay, veth, exn0   …
//
// So all rows of a run were made within seconds of each other, and the paths of
// a test right after one another. A [load] is what is run; several rows may be
// read off it, as the throughput and the CPU time. What other programs took of
// the CPUs meanwhile is measured too: a test in which it was more than a little
// is made again, up to as many times as there are runs, and then counted as
// disturbed.
//
// tcp-1 of the relay and of veth is measured in every run, whatever was asked
// for: where the relay reaches less than 0.7 of veth, the machine is not itself
// and the run does not count.
//
// Daemons, sender and receiver of a stream run where the scheduler puts them,
// which is part of what is measured. Sender and receiver of round trips have a
// CPU each: left alone, the scheduler puts them on one or on two, which changes
// the time over veth fourfold and depends on what else runs.
package exn0
