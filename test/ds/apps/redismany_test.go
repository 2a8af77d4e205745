package apps_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/test/debroot"
)

// Redis with ten thousand clients at once, as far as RLIMIT_NOFILE lets a process have
// so many descriptors. All of them ask for lanes when they begin, of which some get one.
func TestRedisTenThousandClients(t *testing.T) {
	const want, others = 10_000, 200 // what the programs, and the library in them, have open besides
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	clients := min(want, int(limit.Max)-others)
	if clients < want {
		t.Logf("%d clients, not %d: the limit of descriptors (ulimit -Hn) is %d", clients, want, limit.Max)
	}
	root := debroot.Need(t, "redis-server", "redis-tools")
	compare(t, scenario{root: root, bothOnly: true, settings: []string{"EXN_DS_CALLS=1", "EXN_DS_BYTES=1"}, play: func(s *stage) string {
		port := freePort()
		number := strconv.Itoa(port)
		most := func(program string, args ...string) []string {
			return append([]string{"-c", `ulimit -n "$(ulimit -Hn)"; exec "$@"`, "sh", program}, args...)
		}
		s.serve(port, "sh", most("redis-server", "--port", number, "--bind", "127.0.0.1", "--save", "", "--dir", s.dir, "--maxclients", strconv.Itoa(clients+100), "--tcp-backlog", "4096")...)
		var out strings.Builder
		text := s.run(nil, "sh", most("redis-benchmark", "-p", number, "--csv", "-c", strconv.Itoa(clients), "-n", "40000", "-d", "1000", "-r", "1000", "-t", "set")...)
		if bytes.Contains(text, []byte("rror")) {
			s.Errorf("redis-benchmark: %s", text)
		}
		cli := func(args ...string) []byte {
			return s.run(nil, "redis-cli", append([]string{"-p", number}, args...)...)
		}
		for _, m := range regexp.MustCompile(`(?m)^(total_connections_received|rejected_connections|total_error_replies|evicted_clients):.*|^cmdstat_set:calls=\d+`).FindAll(bytes.Join([][]byte{cli("info", "stats"), cli("info", "commandstats")}, nil), -1) {
			fmt.Fprintf(&out, "%s\n", m)
		}
		fmt.Fprintf(&out, "keys: %s", cli("dbsize"))
		// The queue between two processes for who asks for a lane takes some 280 at once.
		if lane, all := s.watch.bytes(); len(s.server) > 0 && lane == 0 {
			s.Errorf("none of %d bytes by lanes%s", all, s.watch.reasons())
		}
		return out.String()
	}})
}
