// Package exn gives tests of exn0 a fleet of nodes on one fabric. Each node is a network namespace
// in which `exn-tun up` runs as a process of its own.
//
//	f := exn.Up(t, exn.Options{Nodes: 2})
//	a, b := f.Nodes[0], f.Nodes[1]
//	b.Serve(5201, b.Program(root, "iperf3", "-s", "-p", "5201"))
//	out := a.Run(a.Program(root, "iperf3", "-c", b.IPv4.String()))
//
// A node has the addresses 10.87.0.N and fd87::N on an interface exn0. Tests can kill, stop and
// restart its daemon. The namespaces have no other path to each other, so what arrives has come
// through exn0.
//
// # Evidence
//
// When a test fails, its artifact directory (go test -artifacts -outputdir) gets, for each node,
// the output of the daemon, the output of `exn-tun show --json` and the kernel's counters. With
// Options.Capture it also gets a capture of all frames.
//
// # Checking the test itself
//
// EXNET_TEST_WIRE=veth joins the nodes by veth pairs instead, over a bridge if there are more than
// two. A test that then passes but fails over exn0 has found a bug. Tests of features that only
// exn0 has are skipped then: see [Fleet.OnlyExn].
//
// # Contents
//
// Package programs has the tests with real programs from Debian packages. Package faults has tests
// of daemons that die, stall or lie.
package exn
