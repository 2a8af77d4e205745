package apps_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/test/debroot"
)

const namedConfiguration = `
options {
	directory "%[1]s";
	listen-on port %[2]d { 127.0.0.1; };
	listen-on-v6 { none; };
	recursion no;
	allow-transfer { any; };
	pid-file none;
	session-keyfile "%[1]s/session.key";
};
controls { };
zone "x" { type %[3]s; file "%[1]s/x"; %[4]s };
`

// BIND asked over TCP, many questions under way on each connection, and its zone
// transferred, to another server too, which is at the end of the clients.
func TestNamed(t *testing.T) {
	root := debroot.Need(t, "bind9", "bind9-dnsutils", "dnsperf")
	const names = 3000
	var zone, questions bytes.Buffer
	fmt.Fprint(&zone, "$TTL 300\n@ IN SOA ns.x. r.x. 1 3600 600 86400 300\n@ IN NS ns.x.\nns IN A 127.0.0.1\n")
	for i := range names {
		fmt.Fprintf(&zone, "h%d IN TXT %s\n", i, strings.Repeat("t", 1+i%250))
		fmt.Fprintf(&questions, "h%d.x TXT\n", i)
	}
	lost := regexp.MustCompile(`Queries lost: +(\d+)`)
	compare(t, scenario{root: root, lanes: true, among: true, play: func(s *stage) string {
		port, second := freePort(), freePort()
		first, other := s.fresh("first"), s.fresh("second")
		s.write("first/x", zone.String())
		s.serve(port, "named", "-g", "-n", "2", "-c", s.write("first.conf", fmt.Sprintf(namedConfiguration, first, port, "master", "")))
		out := ""
		for range 2 {
			text := s.run(nil, "dnsperf", "-m", "tcp", "-s", "127.0.0.1", "-p", strconv.Itoa(port), "-d", s.write("questions", questions.String()), "-c", "10", "-n", "2")
			if m := lost.FindSubmatch(text); m == nil || string(m[1]) != "0" {
				s.Errorf("dnsperf:\n%s", text)
			}
		}
		from := fmt.Sprintf("masters { 127.0.0.1 port %d; };", port)
		s.serveBehind(second, "named", "-g", "-n", "2", "-c", s.write("second.conf", fmt.Sprintf(namedConfiguration, other, second, "slave", from)))
		ask := func(port int, args ...string) []byte {
			return s.run(nil, "dig", append([]string{"@127.0.0.1", "-p", strconv.Itoa(port), "+tcp", "+noall", "+answer", "+onesoa", "x"}, args...)...)
		}
		for len(ask(second, "soa")) == 0 && s.ctx.Err() == nil { // it has no zone yet
			time.Sleep(100 * time.Millisecond)
		}
		for _, p := range []int{port, second} {
			out += digest(ask(p, "axfr"))
		}
		return out
	}})
}
