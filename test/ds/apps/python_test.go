package apps_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// testdata is the absolute path of a file there.
func testdata(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Python's servers, each with clients that block in threads and with such that
// share one epoll set.
func TestPython(t *testing.T) {
	root := debroot.Need(t, "python3")
	rounds := "60" // the first ones go by TCP
	if ds.Long() {
		rounds = "300"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		var out strings.Builder
		for _, server := range []string{"asyncio", "forking", "threading"} {
			port := freePort()
			s.serve(port, "python3", testdata(t, "pairs.py"), "serve", server, strconv.Itoa(port))
			for _, client := range []string{"asyncio", "blocking"} {
				text := s.run(nil, "python3", testdata(t, "pairs.py"), "talk", client, strconv.Itoa(port), "8", rounds)
				fmt.Fprintf(&out, "%s, %s:\n%s", server, client, text)
			}
		}
		return out.String()
	}})
}

// Python's multiprocessing over TCP: listeners, managers, and clients begun by fork,
// spawn and a fork server.
func TestPythonMultiprocessing(t *testing.T) {
	root := debroot.Need(t, "python3")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		var out strings.Builder
		for _, kind := range []string{"listener", "manager"} {
			port := freePort()
			s.serve(port, "python3", testdata(t, "multi.py"), "serve", kind, strconv.Itoa(port))
			for _, way := range []string{"fork", "spawn", "forkserver"} {
				fmt.Fprintf(&out, "%s, %s:\n%s", kind, way, s.run(nil, "python3", testdata(t, "multi.py"), "talk", kind, strconv.Itoa(port), way))
			}
		}
		return out.String()
	}})
}

// Programs begun by pidfd_spawn, a way that C libraries have had since 2.39, and that
// runs them without any further call of the process, as posix_spawn does.
func TestPidfdSpawn(t *testing.T) {
	root := debroot.NeedRelease(t, "trixie", "python3")
	compare(t, scenario{root: root, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "python3", testdata(t, "spawn.py"), "serve", strconv.Itoa(port))
		out := s.run(nil, "python3", testdata(t, "spawn.py"), "talk", strconv.Itoa(port), "inherited", "by-copies")
		if lane, _ := s.watch.bytes(); len(s.server) > 0 && len(s.client) > 0 && lane == 0 {
			s.Error("no byte by lanes: nothing is shown")
		}
		return string(out)
	}})
}
