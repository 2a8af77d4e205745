package apps_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/debroot"
)

// Before it: TLS, and a proxy to an upstream whose connections are kept. What nginx is
// replaced by gets only the variables that it names. A worker that is to go waits for
// timers, and a connection that has sent sendfile_max_chunk without being blocked has none.
// Nor, from 1.17.5 to 1.23.0 and without the library too, has one whose upstream's bytes end
// exactly where nginx' buffers do, unless they pass unbuffered.
const frontConfiguration = `
daemon on;
env LD_PRELOAD;
env EXN_FABRIC;
user root;
worker_processes 2;
pid %[1]s/front-%[3]d.pid;
error_log stderr warn;
events { }
http {
	access_log off;
	keepalive_requests 100000000;
	sendfile_max_chunk 0;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	upstream behind { server 127.0.0.1:%[2]d; keepalive 8; }
	server {
		listen 127.0.0.1:%[3]d;
		listen 127.0.0.1:%[4]d ssl http2;
		ssl_certificate %[1]s/cert;
		ssl_certificate_key %[1]s/key;
		location / {
			proxy_pass http://behind;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
		location /through/ {
			proxy_pass http://behind/;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
		}
		location /own/ { alias %[1]s/www/; }
	}
}
`

// Nginx with TLS and HTTP/2, as a proxy, while it reads its configuration again and
// is replaced by a new binary.
func TestNginxInFront(t *testing.T) {
	root := debroot.Need(t, "nginx-light", "wrk", "curl", "openssl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		website(s)
		if out, err := s.command(nil, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
			"-keyout", filepath.Join(s.dir, "key"), "-out", filepath.Join(s.dir, "cert")).CombinedOutput(); err != nil {
			s.Fatalf("openssl: %v\n%s", err, out)
		}
		behind, port, tls := freePort(), freePort(), freePort()
		s.serveBehind(behind, "nginx", "-p", s.dir, "-c", s.write("nginx.conf", fmt.Sprintf(nginxConfiguration, s.dir, behind)), "-e", "stderr")
		// Only a daemon can be replaced. It leaves its process group.
		s.serve(port, "sh", "-c", `"$@" && exec sleep 1000`, "sh", "/usr/sbin/nginx", "-p", s.dir, "-c", s.write("front.conf", fmt.Sprintf(frontConfiguration, s.dir, behind, port, tls)), "-e", "stderr")
		plain, secure := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("https://localhost:%d", tls)
		trust := []string{"--cacert", filepath.Join(s.dir, "cert")}

		out := browse(s, plain) + browse(s, secure, trust...) + browse(s, secure, append(trust, "--http1.1")...) + browse(s, secure+"/own", trust...)
		load(s, plain+"/100k")
		number := fmt.Sprintf("front-%d.pid", port)
		pid := s.pid(number, 0)
		s.Cleanup(func() { syscall.Kill(s.pid(number, 0), syscall.SIGTERM) })
		s.watch.follow(pid)
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR2} {
			done := make(chan string)
			go func() { done <- browse(s, plain+"/own") + browse(s, plain+"/through") }()
			if err := syscall.Kill(pid, sig); err != nil {
				s.Fatal(err)
			}
			out += <-done
		}
		replaced := s.pid(number, pid)
		syscall.Kill(pid, syscall.SIGQUIT)
		s.ended(pid) // it takes connections until then, and closes them
		s.watch.follow(replaced)
		load(s, plain+"/100k")
		return out + browse(s, plain)
	}})
}

// ended waits until a process that is not ours has ended, reaped or not.
func (s *stage) ended(pid int) {
	s.Helper()
	for begin := time.Now(); time.Since(begin) < patience(); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, ok := strings.Cut(string(text), ") "); err != nil || ok && state[0] == 'Z' {
			return
		}
	}
	s.Fatalf("process %d does not end", pid)
}

// pid waits until a file has the number of a process other than this one.
func (s *stage) pid(file string, not int) int {
	s.Helper()
	for begin := time.Now(); time.Since(begin) < patience(); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(s.dir, file)) // nginx renames it for a moment
		if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); pid != 0 && pid != not {
			return pid
		}
	}
	s.Fatalf("no process writes its number to %s", file)
	return 0
}
