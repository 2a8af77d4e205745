package apps_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// Boost.Asio in C++, whose threads share one edge-triggered epoll set.
func TestAsio(t *testing.T) {
	root := debroot.Need(t, "g++", "libboost-dev", "libc6-dev")
	program := filepath.Join(t.TempDir(), "asio")
	if out, err := root.Command(t.Context(), "g++", "-std=c++17", "-pthread", "-o", program, testdata(t, "asio.cpp")).CombinedOutput(); err != nil {
		t.Fatalf("g++: %v\n%s", err, out)
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, program, "serve", strconv.Itoa(port))
		return string(s.run(nil, program, "talk", strconv.Itoa(port), "100"))
	}})
}
