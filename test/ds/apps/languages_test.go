package apps_test

import (
	"runtime"
	"slices"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// Perl with a process for each connection, Ruby with a thread for each.
func TestPerlRuby(t *testing.T) {
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

// Java by sockets that block and by a selector; also where the server starts programs, which inherit
// its sockets for a moment.
func TestJava(t *testing.T) {
	compare(t, scenario{root: debroot.Need(t, "default-jdk-headless"), lanes: true, play: func(s *stage) string {
		const home = "/usr/lib/jvm/default-java"
		java := s.compile(home, "Echo")
		out := ""
		for _, server := range [][]string{{"blocking"}, {"nio"}, {"nio", "100"}} {
			port := freePort()
			s.serve(port, home+"/bin/java", java(slices.Concat([]string{"serve", server[0], strconv.Itoa(port)}, server[1:])...)...)
			for _, client := range []string{"blocking", "nio"} {
				out += string(s.run(nil, home+"/bin/java", java("talk", client, strconv.Itoa(port), "100")...))
			}
		}
		return out
	}})
}

// Virtual threads came with Java 21, which Debian has since trixie. Four run at a time,
// however few CPUs there are, and change epoll sets in which Java's pollers wait.
func TestJavaVirtualThreads(t *testing.T) {
	root := debroot.NeedRelease(t, "trixie", "openjdk-21-jdk-headless")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		home := "/usr/lib/jvm/java-21-openjdk-" + runtime.GOARCH // Debian has the same names for those the library runs on
		java := s.compile(home, "-Djdk.virtualThreadScheduler.parallelism=4", "Virtual")
		port := freePort()
		s.serve(port, home+"/bin/java", java("serve", strconv.Itoa(port))...)
		return string(s.run(nil, home+"/bin/java", java("talk", strconv.Itoa(port), "100", "50")...))
	}})
}

// compile compiles a class of testdata by the JDK in a directory. What it returns are
// the arguments of java that run it, with options before its name.
func (s *stage) compile(home string, command ...string) func(args ...string) []string {
	s.Helper()
	classes := s.fresh("classes")
	source := testdata(s.T, command[len(command)-1]+".java")
	if out, err := s.command(nil, home+"/bin/javac", "-d", classes, source).CombinedOutput(); err != nil {
		s.Fatalf("javac: %v\n%s", err, out)
	}
	command = append([]string{"-Xshare:auto", "-cp", classes}, command...)
	return func(args ...string) []string { return append(slices.Clone(command), args...) }
}
