package apps_test

import (
	"bytes"
	"strconv"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// UCX over TCP, as MPI libraries have it beneath them. Both ends poll, without ever sleeping.
func TestUCX(t *testing.T) {
	root := debroot.Need(t, "ucx-utils")
	rounds := 1
	if ds.Long() {
		rounds = 20
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		ucx := []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "ucx_perftest", "-w", "10"}
		for _, test := range []struct {
			name        string
			size, count int
		}{{"tag_lat", 64, 1000}, {"tag_lat", 20_000, 500}, {"tag_bw", 1 << 20, 200}, {"stream_bw", 65536, 1000}, {"ucp_put_bw", 8192, 2000}} {
			port := freePort()
			s.serve(port, "env", append(ucx, "-p", strconv.Itoa(port))...)
			text := s.run(nil, "env", append(ucx, "-p", strconv.Itoa(port), "-t", test.name,
				"-s", strconv.Itoa(test.size), "-n", strconv.Itoa(test.count*rounds), "127.0.0.1")...)
			if !bytes.Contains(text, []byte("Final:")) {
				s.Errorf("%s of %d bytes:\n%s", test.name, test.size, text)
			}
		}
		return ""
	}})
}
