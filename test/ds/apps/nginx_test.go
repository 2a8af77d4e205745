package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Two workers, since the one that accepts is not the one that was asked first.
const nginxConfiguration = `
daemon off;
user root;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
	access_log off;
	sendfile on;
	keepalive_requests 100000000;
	default_type application/octet-stream;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 127.0.0.1:%[2]d;
		root %[1]s/www;
		location /plain/ { sendfile off; alias %[1]s/www/; }
	}
}
`

// Nginx: files of several sizes, one of 1 GB, keep-alive or not, with curl and
// under load with wrk.
func TestNginx(t *testing.T) {
	root := debroot.Need(t, "nginx-light", "wrk", "curl")
	large := int64(200 << 20)
	seconds := "1"
	if ds.Long() {
		large, seconds = 1<<30, "5"
	}
	www := ""
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		if www == "" {
			www = filepath.Join(s.dir, "www")
			for name, size := range map[string]int64{"empty": 0, "1k": 1 << 10, "100k": 100 << 10, "large": large} {
				writeRandom(s.T, filepath.Join(www, name), size)
			}
		}
		port := freePort()
		config := s.write("nginx.conf", fmt.Sprintf(nginxConfiguration, s.dir, port))
		s.serve(port, "nginx", "-p", s.dir, "-c", config, "-e", "stderr")
		url := func(path string) string { return fmt.Sprintf("http://127.0.0.1:%d/%s", port, path) }

		var out strings.Builder
		for _, path := range []string{"empty", "1k", "100k", "plain/100k", "missing", "large", "plain/large"} {
			head := filepath.Join(s.dir, "head")
			body := sha256.New()
			s.pipe(nil, body, "curl", "-sS", "-D", head, url(path))
			text, err := os.ReadFile(head)
			if err != nil {
				s.Fatal(err)
			}
			text = regexp.MustCompile(`(?m)^(Date|ETag|Last-Modified):.*$`).ReplaceAll(text, nil)
			fmt.Fprintf(&out, "%s: %x\n%s\n", path, body.Sum(nil), text)
		}
		// Many requests on one connection, and as many on as many.
		many := strings.Fields(strings.Repeat(url("1k")+" "+url("100k")+" ", 50))
		fmt.Fprintf(&out, "kept: %x\n", sha256.Sum256(s.run(nil, "curl", append([]string{"-sS"}, many...)...)))
		fmt.Fprintf(&out, "closed: %x\n", sha256.Sum256(s.run(nil, "curl", append([]string{"-sS", "-H", "Connection: close"}, many...)...)))
		fmt.Fprintf(&out, "part: %x\n", sha256.Sum256(s.run(nil, "curl", "-sS", "-r", "1000000-3000000", url("large"))))

		for i, path := range []string{"1k", "100k"} {
			for j, header := range []string{"Connection: keep-alive", "Connection: close"} {
				if i == j && !ds.Long() {
					continue
				}
				text := s.run(nil, "wrk", "-t", "2", "-c", "50", "-d", seconds, "-H", header, url(path))
				if bytes.Contains(text, []byte("errors")) || bytes.Contains(text, []byte("Non-2xx")) || requests(text) == 0 {
					s.Errorf("wrk %s, %s:\n%s", path, header, text)
				}
			}
		}
		return out.String()
	}})
}

// requests is how many wrk says it made.
func requests(text []byte) int {
	m := regexp.MustCompile(`(\d+) requests in`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

func writeRandom(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{byte(size >> 10)}), size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
