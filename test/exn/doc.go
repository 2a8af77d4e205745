// Package exn gives tests of exn0 a fleet of nodes: a network namespace each,
// in which `exn-tun up` runs as a process of its own, all on one fabric.
//
//	f := exn.Up(t, exn.Options{Nodes: 2})
//	a, b := f.Nodes[0], f.Nodes[1]
//	b.Serve(5201, b.Program(root, "iperf3", "-s", "-p", "5201"))
//	out := a.Run(a.Program(root, "iperf3", "-c", b.IPv4.String()))
//
// A node has the addresses 10.87.0.N and fd87::N, on an interface exn0. A
// daemon can be killed, stopped and started again. The namespaces have no
// other way to each other, so what arrives has come through exn0.
//
// # Evidence
//
// When a test fails, its artifact directory (go test -artifacts -outputdir)
// gets for each node what the daemon said, and what `exn-tun show --json` and
// the kernel's counters say at that moment; where Options.Capture is set,
// a capture of all frames too.
//
// # Is it the test that is wrong?
//
// EXNET_TEST_WIRE=veth joins the nodes by veth pairs instead, over a bridge
// when they are more than two. A test that passes so and fails over exn0 has
// found something. Tests of what only exn0 does skip then: see [Fleet.OnlyExn].
//
// # What is where
//
// programs has the tests of real programs, from Debian packages; faults what
// happens when daemons die, stall or lie.
package exn
