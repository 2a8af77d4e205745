// Package demo shows on this machine, in a minute, what exnet does for programs that use TCP.
// It is `dsbench demo`, which `make run` and exn-tun demo start.
//
//	redis   redis-server and redis-benchmark over loopback, on kernel TCP and under EXT-DS
//	bridge  the same between two network namespaces on a bridge, before and after
//	        exn-tun bridge is started; needs root
//	exn0    the interface exn0 beside a relay between two TUNs and a veth pair; needs root
//
// # Theory of operation
//
// A scene is one of these three. Scenes follow each other, and each has a share of the minute.
// What a scene needs and the machine lacks becomes one line that names the remedy, and the others
// still run. Where redis cannot be had, our own program pump takes its place.
//
// Runs alternate: plain, EXT-DS, plain, EXT-DS. A pair beside which other programs took CPU time is
// made again while the scene has time left. What is still disturbed then is no result: the figure
// is not shown, and the line says why.
//
// Beside the figures stands what they depend on: how far the two CPUs are apart, how long it takes
// to wake a thread on the other one, and what other programs took meanwhile.
//
// All of it becomes a [report.Report], so that `dsbench compare` reads two demonstrations, too. The
// sentences are computed from its rows.
//
// # What it is not
//
// It is no benchmark to quote: three short runs each. It measures nothing by itself either: the
// runs are those of packages workload and exn0.
package demo
