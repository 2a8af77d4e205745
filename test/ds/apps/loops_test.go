package apps_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// Python's event loops that are not in its library, each with the next one: of C's libuv
// and libev, of coroutines and of callbacks.
func TestPythonLoops(t *testing.T) {
	root := debroot.Need(t, "python3-gevent", "python3-trio", "python3-twisted", "python3-uvloop")
	servers := []string{"uvloop", "trio", "twisted", "gevent"}
	clients := append(slices.Clone(servers[1:]), servers[0])
	compare(t, scenario{root: root, lanes: true, bothOnly: true, play: func(s *stage) string {
		var out strings.Builder
		for i, server := range servers {
			port := freePort()
			s.serve(port, "python3", testdata(t, "loops.py"), "serve", server, strconv.Itoa(port))
			fmt.Fprintf(&out, "%s, %s:\n%s", server, clients[i], s.run(nil, "python3", testdata(t, "loops.py"), "talk", clients[i], strconv.Itoa(port), "20"))
		}
		return out.String()
	}})
}
