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
