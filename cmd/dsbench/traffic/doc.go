// Package traffic makes the traffic that dsbench sends through network
// interfaces: what iperf3 and sockperf do, in two processes of a
// [measure.Duo], so that nothing has to be installed to measure.
//
//	traffic/stream     as iperf3: one thread on either side, poll and
//	                   non-blocking calls, 128 KiB at a time, cubic; any
//	                   number of connections, also both ways at once
//	traffic/pingpong   as sockperf ping-pong: TCP, blocking calls, each round
//	                   trip timed by itself
//	traffic/datagrams  as iperf3 -u without a rate, or as a sender with
//	                   UDP_SEGMENT and a receiver with UDP_GRO
//	traffic/connect    as netperf TCP_CRR: a connection for each round trip
//	traffic/joined     a stream, but its sender is a node of the fabric itself
//	                   (exn.Node), without a kernel's TCP or a TUN
//
//	traffic/ds-stream, traffic/ds-pingpong, traffic/ds-connect
//	                   the first, second and fourth by package directsockets: by
//	                   lanes of EXT-DS where both ends have it, else by TCP; the
//	                   sample says which
//
// A run lasts n milliseconds after a warm-up that does not count, except that
// a pingpong with pauses makes n round trips. Every run has connections of its
// own. What arrives is checked: streams in samples against the pattern that
// was sent, the others against their sequence numbers.
//
// Sockets of the kernel are used by bare system calls from a locked thread: Go's
// poller would add wake-ups that a program in C does not have, and so would its
// monitor, if the scheduler knew of calls that block.
package traffic

import "exnet/cmd/dsbench/measure"

// Contenders are the generators by name.
func Contenders() map[string]measure.Contender {
	return map[string]measure.Contender{
		"traffic/stream":    newStream,
		"traffic/pingpong":  newPingPong,
		"traffic/datagrams": newDatagrams,
		"traffic/connect":   newConnect,
		"traffic/joined":    newJoined,

		"traffic/ds-stream":   newLaneStream,
		"traffic/ds-pingpong": newLanePingPong,
		"traffic/ds-connect":  newLaneConnect,
	}
}
