// Package comparison sends the same traffic over every path between two programs
// of a machine, in turn, and says how the paths compare. It is `dsbench` without a
// command, and with more sizes `dsbench figures`.
//
//	tcp           kernel TCP over loopback: the reference of all others
//	unix          an AF_UNIX stream
//	veth          kernel TCP between two network namespaces
//	exn0          kernel TCP between two, over the interface exn0
//	exn0-…        the same with other settings
//	ds-preload    TCP over loopback with libextds.so preloaded
//	fabric        VELO and RMA themselves, no sockets: what the others could reach
//	tcp-iperf3    iperf3 and sockperf over loopback: whether what is
//	tcp-sockperf  measured here is what others measure
//
//	stream[-N]    bytes as fast as they go, over one or N connections at a time
//	stream-cpu    CPU time of both sides, and of daemons, for each GB of it
//	rr            half of a round trip, one message after the other
//	rr-paced      the same at 1000 messages a second, so that both sides sleep
//	crr           connections a second, each for one round trip
//
// # Theory of operation
//
// Over paths with sockets goes the traffic of one plain C program (bin/pump); an
// implementation that a program is linked with would be one more [way], whose program
// is another. Every run has a server and a client of its own.
//
//	round 1   stream:  tcp unix veth exn0 …    rr:  tcp unix …
//	round 2   stream:  … exn0 veth unix tcp    rr:  … unix tcp
//
// So the runs of a round lie seconds apart, and no path is always the first. A run is
// compared with that of tcp in its round. Beside each run a loop of arithmetic is timed
// ([measure.Yardstick]) and the CPU time of other programs is counted
// ([measure.Watch]): a run that either calls noisy is made again, once, and if it is
// noisy then, too, the row is marked.
//
// # What can be trusted
//
// The receiver of a stream says at the end how many bytes it got and whether they
// were those sent; echoes are numbered. What is wrong or missing fails the row and
// dsbench. A first tenth of each run does not count. Percentiles come from every round
// trip of all runs, and where messages have a schedule, one that is late because the
// one before was counts from when it was due.
//
// Messages of rr are exchanged by two processes with a CPU each: left alone, the
// scheduler puts them on one or on two, as it likes.
package comparison
