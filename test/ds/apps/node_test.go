package apps_test

import (
	"strconv"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Node as server and client, on connections that are kept and on new ones.
func TestNode(t *testing.T) {
	root := debroot.Need(t, "nodejs")
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
