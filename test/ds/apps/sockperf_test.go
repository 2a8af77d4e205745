package apps_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Sockperf checks the content and the order of its messages itself; servers that
// wait for several sockets by each of its ways.
func TestSockperf(t *testing.T) {
	root := debroot.Need(t, "sockperf")
	seconds := "1" // and three more to begin and to end
	servers := [][]string{{"-F", "epoll"}}
	if ds.Long() {
		seconds, servers = "5", append(servers, []string{}, []string{"-F", "poll"}, []string{"-F", "select"}, []string{"--nonblocked"})
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		var out strings.Builder
		for _, server := range servers {
			port := freePort()
			args := []string{"server"}
			if len(server) == 2 { // waits for several sockets, of which one is used
				feed := s.write("feed", fmt.Sprintf("T:127.0.0.1:%d\nT:127.0.0.1:%d\n", port, port+1))
				args = append(args, "-f", feed)
			} else {
				args = append(args, "--tcp", "-i", "127.0.0.1", "-p", strconv.Itoa(port))
			}
			s.serve(port, "sockperf", append(args, server...)...)
			// Without --mps it ends by itself when it is faster than it thought possible.
			text := s.run(nil, "sockperf", "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", strconv.Itoa(port),
				"-m", "64", "-t", seconds, "--mps=6000000", "--data-integrity")
			valid := regexp.MustCompile(`Valid Duration\].*SentMessages=(\d+); ReceivedMessages=(\d+)`).FindSubmatch(text)
			lost := regexp.MustCompile(`# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)`).FindSubmatch(text)
			if valid == nil || lost == nil || string(valid[1]) != string(valid[2]) {
				s.Errorf("sockperf with a server of %v:\n%s", server, text)
				continue
			}
			fmt.Fprintf(&out, "%v: %s\n", server, lost[0])
		}
		return out.String()
	}})
}
