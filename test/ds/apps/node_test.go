package apps_test

import (
	"strconv"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Node as server and client, on connections that are kept and on new ones.
func TestNode(t *testing.T) {
	askNode(t, debroot.Need(t, "nodejs"))
}

// The same by a libuv that changes its epoll sets by an io_uring if it gets one.
func TestNodeWithRing(t *testing.T) {
	askNode(t, debroot.NeedRelease(t, "trixie", "nodejs"))
}

func askNode(t *testing.T, root *debroot.Root) {
	requests := "300"
	if ds.Long() {
		requests = "10000"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "node", testdata(t, "http.js"), "serve", strconv.Itoa(port))
		return string(s.run(nil, "node", testdata(t, "http.js"), "ask", strconv.Itoa(port), requests))
	}})
}

// Streams over node's cluster. Where each worker accepts, connections get lanes; where
// the first process accepts and passes them on, by SCM_RIGHTS, they stay on TCP.
func TestNodeCluster(t *testing.T) {
	root := debroot.Need(t, "nodejs")
	for _, policy := range []string{"none", "rr"} {
		t.Run(policy, func(t *testing.T) {
			compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
				port := freePort()
				s.serveIn(append([]string{"NODE_CLUSTER_SCHED_POLICY=" + policy}, s.server...), port+1, "node", testdata(t, "streams.js"), "serve", strconv.Itoa(port), "3")
				return string(s.run(nil, "node", testdata(t, "streams.js"), "talk", strconv.Itoa(port), "8", "20000000"))
			}})
		})
	}
}
