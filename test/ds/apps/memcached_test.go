package apps_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Memcached with threads, which hand connections to each other, and memcaslap,
// which verifies what it gets back.
func TestMemcached(t *testing.T) {
	root := debroot.Need(t, "memcached", "libmemcached-tools")
	operations := "20000"
	if ds.Long() {
		operations = "1000000"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		var out strings.Builder
		for _, load := range [][]string{
			{"-c", "1", "-T", "1"},
			{"-c", "50", "-T", "2"},
			{"-c", "16", "-T", "1", "-d", "10"},    // ten keys per get
			{"-c", "16", "-T", "1", "-X", "30000"}, // values beyond one window piece together
			{"-c", "16", "-T", "2", "-B"},          // binary protocol
			{"-c", "16", "-T", "1", "-n", "20"},    // a new connection after 20 operations
		} {
			port := freePort()
			s.serve(port, "memcached", "-u", "root", "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0", "-t", "4", "-m", "256")
			text := s.run(nil, "memcaslap", append([]string{"-s", "127.0.0.1:" + strconv.Itoa(port), "-x", operations, "--verify=1.0"}, load...)...)
			misses := regexp.MustCompile(`(?m)^(verify_misses|verify_failed|written_bytes): .*`).FindAll(text, -1)
			for _, m := range misses {
				if !bytes.HasPrefix(m, []byte("written_bytes")) {
					fmt.Fprintf(&out, "%v: %s\n", load, m)
				}
			}
			if !bytes.Contains(text, []byte("Run time:")) {
				s.Errorf("memcaslap %v:\n%s", load, text)
			}
		}
		return out.String()
	}})
}
