package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// microsocks, a proxy whose threads have stacks of 32 KiB.
func TestMicrosocks(t *testing.T) {
	root := debroot.Need(t, "microsocks", "nginx-light", "curl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		origin, proxy := freePort(), freePort()
		dir := s.fresh("origin")
		file := bytes.Repeat([]byte("0123456789abcde\n"), 4<<20)
		if err := os.WriteFile(filepath.Join(dir, "file"), file, 0o644); err != nil {
			s.Fatal(err)
		}
		conf := s.write("nginx.conf", fmt.Sprintf("daemon off; user root; pid %[1]s/pid; error_log stderr; events {}\n"+
			"http { access_log off; server { listen 127.0.0.1:%[2]d; root %[1]s; } }\n", dir, origin))
		s.serveBehind(origin, "nginx", "-c", conf, "-e", "stderr")
		s.serve(proxy, "microsocks", "-i", "127.0.0.1", "-p", strconv.Itoa(proxy))
		for range 4 {
			got := sha256.New()
			s.pipe(nil, got, "curl", "--silent", "--show-error", "--proxy", fmt.Sprintf("socks5://127.0.0.1:%d", proxy),
				fmt.Sprintf("http://127.0.0.1:%d/file", origin))
			if want := sha256.Sum256(file); !bytes.Equal(got.Sum(nil), want[:]) {
				s.Errorf("other bytes than the %d of the file", len(file))
			}
		}
		return ""
	}})
}
