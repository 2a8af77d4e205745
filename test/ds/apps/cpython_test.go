package apps_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/exn/netns"
	"exnet/test/debroot"
)

// CPython's own tests of what stands on sockets. Both ends are mostly threads of
// one process. Connections go to lanes after their first call, since most of the
// tests make only a few.
func TestCPython(t *testing.T) {
	root := debroot.Need(t, "python3", "^libpython3.*-testsuite$")
	for _, name := range []string{"test_socket", "test_httplib", "test_ftplib", "test_selectors", "test_asyncore", "test_socketserver", "test_subprocess", "test_ssl", "test_asyncio"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they sleep most of the time
			if name == "test_asyncore" && root.Command(t.Context(), "python3", "-Wignore", "-c", "import asyncore").Run() != nil {
				t.Skip("Python has no asyncore since 3.12")
			}
			// In a namespace of its own nobody else takes the ports that its tests find free.
			start := (*exec.Cmd).Start
			if ns, err := netns.New(); err == nil { // root may
				t.Cleanup(func() { ns.Close() })
				start = func(cmd *exec.Cmd) error { return ns.Start(cmd) }
			}
			known := map[string]bool{} // failures without the library
			compare(t, scenario{root: root, bothOnly: true, settings: []string{"EXN_DS_CALLS=1"}, play: func(s *stage) string {
				results := filepath.Join(s.dir, "results.xml")
				os.Remove(results)
				// Its temporary directory is the scenario's, and it must not look for the
				// network. That it fails is no news: what fails only with the library is.
				args := []string{"-m", "test", "-i", "*VSOCK*", "--tempdir", s.dir, "--junit-xml", results}
				switch name {
				case "test_socketserver":
					args = append(args, "-u", "network") // it means the loopback
				case "test_asyncio":
					// Those that have to do with sockets. One wants a small SO_SNDBUF to stop
					// a writer, which has no effect on a lane.
					args = append(args, "-m", "*test_asyncio.test_s*", "-i", "*close_peer_in_the_middle_of_receiving")
				}
				cmd := s.command(s.client, "python3", append(args, name)...)
				var buffer bytes.Buffer
				cmd.Stdout, cmd.Stderr = &buffer, &buffer
				if err := start(cmd); err != nil {
					s.Fatal(err)
				}
				s.watch.follow(cmd.Process.Pid)
				err, out := cmd.Wait(), buffer.Bytes()
				text, readErr := os.ReadFile(results)
				if readErr != nil {
					s.Fatalf("%v: %v\n%.4000s", err, readErr, out)
				}
				failed, ran, err := failures(text)
				if err != nil {
					s.Fatal(err)
				}
				s.Logf("%d tests, %d fail", ran, len(failed))
				if len(s.client) == 0 {
					for _, name := range failed {
						known[name] = true
					}
				}
				failed = slices.DeleteFunc(failed, func(name string) bool { return known[name] })
				if len(failed) > 0 {
					s.Logf("%.8000s", out)
				}
				return fmt.Sprintf("%s\n%d ran", strings.Join(failed, "\n"), ran)
			}})
		})
	}
}

// failures lists the tests that failed in a report of regrtest.
func failures(text []byte) (failed []string, ran int, err error) {
	type testcase struct {
		Name    string        `xml:"name,attr"`
		Failure *xml.CharData `xml:"failure"`
		Error   *xml.CharData `xml:"error"`
	}
	var report struct {
		Suites []struct {
			Suites []struct {
				Cases []testcase `xml:"testcase"`
			} `xml:"testsuite"`
			Cases []testcase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, 0, fmt.Errorf("read regrtest's report: %w", err)
	}
	for _, outer := range report.Suites {
		cases := outer.Cases
		for _, inner := range outer.Suites {
			cases = append(cases, inner.Cases...)
		}
		for _, c := range cases {
			ran++
			if c.Failure != nil || c.Error != nil {
				failed = append(failed, c.Name)
			}
		}
	}
	slices.Sort(failed)
	return failed, ran, nil
}
