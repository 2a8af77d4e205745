package apps_test

import (
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// gRPC's C core, on which most languages' gRPC stands: it asks for TCP_INQ, and reads again
// only where that says so or an edge comes.
func TestGRPC(t *testing.T) {
	compare(t, scenario{root: debroot.Need(t, "python3-grpcio"), lanes: true, bothOnly: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "python3", testdata(t, "grpcecho.py"), "serve", strconv.Itoa(port))
		return string(s.run(nil, "python3", testdata(t, "grpcecho.py"), "talk", strconv.Itoa(port), "60"))
	}})
}
