package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// Socat and netcat, which wait in poll and select, with programs of their own behind
// the socket.
func TestSocat(t *testing.T) {
	root := debroot.Need(t, "socat", "netcat-openbsd")
	input := make([]byte, 30<<20)
	rand.NewChaCha8([32]byte{1}).Read(input)
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		back, through := freePort(), freePort()
		s.serveBehind(back, "socat", fmt.Sprintf("TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork", back), "EXEC:cat")
		s.serve(through, "socat", fmt.Sprintf("TCP-LISTEN:%d,bind=127.0.0.1,reuseaddr,fork", through), fmt.Sprintf("TCP:127.0.0.1:%d", back))
		out := ""
		for _, client := range [][]string{
			{"socat", "-t", "60", "-", fmt.Sprintf("TCP:127.0.0.1:%d", through)},
			{"nc.openbsd", "-N", "127.0.0.1", fmt.Sprint(through)},
		} {
			body := sha256.New()
			s.pipe(bytes.NewReader(input), body, client[0], client[1:]...)
			out += fmt.Sprintf("%s: %x\n", client[0], body.Sum(nil))
		}
		return out
	}})
}

// Git and wget over HTTP, whose other end is nginx.
func TestFetching(t *testing.T) {
	root := debroot.Need(t, "nginx-light", "git", "wget", "curl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		www := website(s)
		const repository = `cd "$1" && rm -rf work repo.git && git init -q work && cd work && git config user.name x && git config user.email x@y &&
			for i in $(seq 20); do head -c 1000000 ../large | tail -c $((i * 40000)) >file$i; git add . ; GIT_AUTHOR_DATE=1700000000Z GIT_COMMITTER_DATE=1700000000Z git commit -qm $i; done &&
			git clone -q --bare . ../repo.git && git -C ../repo.git update-server-info`
		if out, err := s.command(nil, "sh", "-c", repository, "sh", www).CombinedOutput(); err != nil {
			s.Fatalf("git: %v\n%s", err, out)
		}
		port := freePort()
		s.serve(port, "nginx", "-p", s.dir, "-c", s.write("nginx.conf", fmt.Sprintf(nginxConfiguration, s.dir, port)), "-e", "stderr")
		base := fmt.Sprintf("http://127.0.0.1:%d/", port)
		clone := filepath.Join(s.fresh("clones"), "repo")
		s.run(nil, "git", "clone", "-q", base+"repo.git", clone)
		out := string(s.run(nil, "git", "-C", clone, "log", "--format=%H %s"))
		body := sha256.New()
		s.pipe(nil, body, "wget", "-qO", "-", base+"large", base+"1k", base+"large", base+"100k", base+"large")
		return out + fmt.Sprintf("wget: %x\n", body.Sum(nil))
	}})
}

// uring builds a program that uses liburing.
func uring(t *testing.T, root *debroot.Root, name string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), name)
	if out, err := root.Command(t.Context(), "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, testdata(t, name+".c"), "-luring").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

// A server that does everything by an io_uring stays on TCP.
func TestURing(t *testing.T) {
	root := debroot.Need(t, "liburing-dev", "gcc", "libc6-dev", "ruby")
	program := uring(t, root, "uring")
	compare(t, scenario{root: root, play: func(s *stage) string {
		port := freePort()
		s.serve(port, program, fmt.Sprint(port))
		out := string(s.run(nil, "ruby", testdata(t, "echo.rb"), "talk", fmt.Sprint(port), "60"))
		if lane, all := s.watch.bytes(); lane > 0 {
			s.Errorf("%d of %d bytes by lanes, want none", lane, all)
		}
		return out
	}})
}

// One that has an io_uring for its files does not; and goes back to TCP when it uses it for
// a connection.
func TestURingForFiles(t *testing.T) {
	root := debroot.Need(t, "liburing-dev", "gcc", "libc6-dev", "ruby")
	program := uring(t, root, "fileuring")
	for name, rounds := range map[string]int{"files": 1 << 30, "then sockets": 50} {
		t.Run(name, func(t *testing.T) {
			compare(t, scenario{root: root, lanes: name == "files", play: func(s *stage) string {
				port := freePort()
				file := s.write("file", strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 300))
				s.serve(port, program, fmt.Sprint(port), file, fmt.Sprint(rounds))
				out := string(s.run(nil, "ruby", testdata(t, "echo.rb"), "talk", fmt.Sprint(port), "60"))
				both := len(s.server) > 0 && len(s.client) > 0
				if lane, all := s.watch.bytes(); both && lane == 0 {
					s.Errorf("%d of %d bytes by lanes, want some", lane, all)
				}
				if name != "files" && both && !strings.Contains(s.watch.reasons(), "(io_uring)") {
					s.Errorf("no connection is back on TCP for the ring:\n%s", s.watch.reasons())
				}
				return out
			}})
		})
	}
}
