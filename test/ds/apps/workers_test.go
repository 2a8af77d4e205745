package apps_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// Nginx that root starts has workers of another user, which accept. In a directory of root's none of
// them can meet anybody: check says no and names them, and the library says it once when they change
// their user. With a directory of their group both are content.
func TestWorkersOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	root := debroot.Need(t, "nginx-light")
	library, tun := ds.Library(t), built.Path(t, "exn-tun")
	const user, name, group = 65534, "nobody", "nogroup" // of every Debian
	type acceptor struct {
		UID     int
		Upgrade bool
		Why     string
	}
	for _, c := range []struct {
		shared bool
		code   int
	}{{false, 6}, {true, 0}} {
		t.Run(fmt.Sprintf("shared=%v", c.shared), func(t *testing.T) {
			s := &stage{T: t, scenario: scenario{root: root}, dir: t.TempDir(), ctx: t.Context(), watch: new(watch)}
			fabric, peers := ds.Fabric(t), ""
			t.Setenv("EXN_PEERS", "")
			if c.shared {
				peers = "group"
				t.Setenv("EXN_PEERS", peers) // of check
				if err := errors.Join(os.Chown(fabric, 0, user), os.Chmod(fabric, os.ModeSetgid|0o770)); err != nil {
					t.Fatal(err)
				}
			}
			port := freePort()
			config := s.write("nginx.conf", strings.Replace(fmt.Sprintf(nginxConfiguration, s.dir, port), "user root;", "user "+name+" "+group+";", 1))
			s.serve(port, "env", "EXN_LIBRARY="+library, "EXN_PEERS="+peers, tun, "run", "--fabric", fabric, "--", "nginx", "-p", s.dir, "-c", config, "-e", "stderr")
			var v struct {
				Upgrade   bool
				Why       string
				UID       int
				Acceptors []acceptor
			}
			s.eventually("both workers hold the socket", func() bool {
				cmd := exec.CommandContext(t.Context(), tun, "check", "--json", "--fabric", fabric, fmt.Sprintf("127.0.0.1:%d", port))
				text, err := cmd.Output()
				if err != nil && cmd.ProcessState.ExitCode() != c.code && cmd.ProcessState.ExitCode() != 0 {
					t.Fatalf("check: %v: %s", err, text)
				}
				if err := json.Unmarshal(text, &v); err != nil {
					t.Fatalf("check: %v: %s", err, text)
				}
				workers := 0
				for _, a := range v.Acceptors {
					if a.UID == user {
						workers++
					}
				}
				return workers == 2 && cmd.ProcessState.ExitCode() == c.code
			})
			if v.Upgrade != c.shared || !c.shared && (v.UID != user || !strings.Contains(v.Why, "belongs to uid 0, not to uid 65534") || !strings.Contains(v.Why, "2 of the 3 processes")) {
				t.Errorf("check says %+v", v)
			}
			for _, a := range v.Acceptors {
				if a.Upgrade != (c.shared || a.UID == 0) {
					t.Errorf("of one that accepts it says %+v", a)
				}
			}
			logs, _ := filepath.Glob(filepath.Join(s.dir, "server*"))
			said := 0
			for _, log := range logs {
				text, err := os.ReadFile(log)
				if err != nil {
					t.Fatal(err)
				}
				said += strings.Count(string(text), "user 65534 may not use the fabric directory "+fabric+", so its connections stay on TCP")
			}
			if want := map[bool]int{false: 1, true: 0}[c.shared]; said != want {
				t.Errorf("the library complained %d times, want %d", said, want)
			}
		})
	}
}

// eventually waits until a condition holds.
func (s *stage) eventually(what string, holds func() bool) {
	s.Helper()
	for begin := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience() {
			s.Fatalf("it never came that %s", what)
		}
	}
}
