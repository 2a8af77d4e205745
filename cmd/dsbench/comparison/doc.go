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
//	ds-go         TCP over loopback by a Go program with package directsockets
//	fabric        VELO and RMA themselves, no sockets: what the others could reach
//	tcp-iperf3    iperf3 and sockperf over loopback: whether what is
//	tcp-sockperf  measured here is what others measure
//	pasta         kernel TCP from a network namespace to the host's loopback through a
//	slirp4netns   program without privileges, as rootless containers have it
//	wireguard-go  kernel TCP between two through an encrypting daemon behind TUNs
//	ucx           UCX and libfabric over shared memory, by tools of
//	libfabric     their own: what others reach without sockets
//
//	stream[-N]    bytes as fast as they go, over one or N connections at a time
//	stream-cpu    CPU time of both sides, and of daemons, for each GB of it
//	rr            half of a round trip, one message after the other
//	rr-paced      the same at 1000 messages a second, so that both sides sleep
//	crr           connections a second, each for one round trip
//
// with [Plan.Sweep] also
//
//	message-rate  messages a second of stream
//
// and over a setting instead of a size:
//
//	pinned-…      a stream whose sides have a CPU each, or share one
//	threshold-…   rr of small messages, all by VELO or all by RMA, of lanes and of exn0
//	window, mtu, budget, itr
//	              a stream over a setting of its path; itr-rr: messages
//	tuning        a stream over veth with what administrators tune: GSO, jumbo frames, socket
//	              buffers, BIG TCP; tuning-rr: messages. What is of the whole machine, as
//	              busy_poll, stays as it is
//	sleep         rr with a pause before each message: when polling turns into sleeping
//	crr-rounds    round trips a second over connections for 1 to 1024 each
//	many          round trips a second over 1 to 10,000 connections in turn; many-cpu: of each
//	idle, memory  CPU time and memory of the same connections before that, when they were used
//	              and do nothing
//
// # Theory of operation
//
// Over paths with sockets goes the traffic of one plain C program (bin/pump), and over
// ds-go that of its like in Go (bin/gopump). Every run has a server and a client of its
// own.
//
//	round 1   stream:  tcp unix veth exn0 …    rr:  tcp unix …
//	round 2   stream:  … exn0 veth unix tcp    rr:  … unix tcp
//
// A path that only one load goes over, with one value of a setting, stands as long as that
// load is measured. What the setting does not touch, as the reference, is measured once.
//
// So the runs of a round lie seconds apart, and no path is always the first. A run is
// compared with that of tcp in its round. Beside each run a loop of arithmetic is timed
// and the CPU time of other programs is counted ([measure.Quiet]): a run that either calls
// noisy is made again, once, and if it is noisy then, too, the row is marked.
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
// scheduler puts them on one or on two, as it likes. Those of ds-go are: a Go program
// polls only where it has two.
package comparison
