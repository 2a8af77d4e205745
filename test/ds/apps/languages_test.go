package apps_test

import (
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// Perl with a process for each connection, Ruby with a thread for each.
func TestPerlRuby(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	root := debroot.Need(t, "perl", "ruby")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		out := ""
		for _, language := range [][]string{{"perl", testdata(t, "echo.pl")}, {"ruby", testdata(t, "echo.rb")}} {
			port := freePort()
			s.serve(port, language[0], language[1], "serve", strconv.Itoa(port))
			out += string(s.run(nil, language[0], language[1], "talk", strconv.Itoa(port), "60"))
		}
		return out
	}})
}

// Java by sockets that block and by a selector.
func TestJava(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	root := debroot.Need(t, "default-jdk-headless")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		classes := s.fresh("classes")
		if out, err := s.command(nil, "javac", "-d", classes, testdata(t, "Echo.java")).CombinedOutput(); err != nil {
			s.Fatalf("javac: %v\n%s", err, out)
		}
		java := func(args ...string) []string {
			return append([]string{"-Xshare:auto", "-cp", classes, "Echo"}, args...)
		}
		out := ""
		for _, server := range []string{"blocking", "nio"} {
			port := freePort()
			s.serve(port, "java", java("serve", server, strconv.Itoa(port))...)
			for _, client := range []string{"blocking", "nio"} {
				out += string(s.run(nil, "java", java("talk", client, strconv.Itoa(port), "100")...))
			}
		}
		return out
	}})
}
