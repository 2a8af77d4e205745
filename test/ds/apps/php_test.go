package apps_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

const fpmConfiguration = `
[global]
error_log = /dev/stderr
daemonize = no
[www]
listen = 127.0.0.1:%d
pm = static
pm.max_children = 2
user = root
group = root
catch_workers_output = yes
`

const fastcgiConfiguration = `
daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	fastcgi_temp_path %[1]s/fastcgi;
	proxy_temp_path %[1]s/proxy;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 100m;
	upstream php { server 127.0.0.1:%[3]d; keepalive 2; }
	server {
		listen 127.0.0.1:%[2]d;
		location / {
			fastcgi_pass php;
			fastcgi_keep_conn on;
			fastcgi_param SCRIPT_FILENAME %[1]s/page.php;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param QUERY_STRING $query_string;
			fastcgi_param CONTENT_TYPE $content_type;
			fastcgi_param CONTENT_LENGTH $content_length;
		}
	}
}
`

// It answers with as many bytes as asked for, and the digest of what was posted.
const phpPage = `<?php
echo str_repeat(md5($_GET['n'] ?? ''), (int)($_GET['n'] ?? 0) / 32), "\n", hash('sha256', file_get_contents('php://input')), "\n";
`

// PHP-FPM behind nginx, on connections that nginx keeps.
func TestPHP(t *testing.T) {
	root := debroot.Need(t, "nginx-light", "php-fpm", "curl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port, fpm := freePort(), freePort()
		s.write("page.php", phpPage)
		s.serveBehind(fpm, "sh", "-c", `exec /usr/sbin/php-fpm[0-9]* --nodaemonize --allow-to-run-as-root --fpm-config "$1"`, "sh", s.write("fpm.conf", fmt.Sprintf(fpmConfiguration, fpm)))
		s.serve(port, "nginx", "-p", s.dir, "-c", s.write("nginx.conf", fmt.Sprintf(fastcgiConfiguration, s.dir, port, fpm)), "-e", "stderr")
		base := fmt.Sprintf("http://127.0.0.1:%d/", port)
		body := s.write("posted", string(bytes.Repeat([]byte("0123456789abcdef"), 1<<18)))
		ask := []string{"-sS"}
		for i := range 100 {
			ask = append(ask, fmt.Sprintf("%s?n=%d", base, []int{0, 32, 1 << 10, 1 << 17, 1 << 20}[i%5]))
		}
		out := s.run(nil, "curl", ask...)
		for range 3 {
			out = append(out, s.run(nil, "curl", "-sS", "--data-binary", "@"+body, base+"?n=3200000")...)
		}
		return digest(out)
	}})
}

// It fetches a page again and again on a connection that it keeps.
const curlScript = `<?php
$c = curl_init($argv[1]);
curl_setopt($c, CURLOPT_RETURNTRANSFER, true);
$h = hash_init('sha256');
for ($i = 0; $i < 300; $i++) {
	curl_setopt($c, CURLOPT_POSTFIELDS, str_repeat("$i ", $i * 20));
	hash_update($h, curl_exec($c) . curl_error($c));
}
echo hash_final($h), "\n";
`

// PHP loads its extensions with RTLD_DEEPBIND, and so libcurl with one.
func TestPHPExtension(t *testing.T) {
	root := debroot.Need(t, "python3", "php-cli", "php-curl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "python3", "-c", echoingServer, strconv.Itoa(port))
		return digest(s.run(nil, "sh", "-c", `exec /usr/bin/php[0-9]* -n -d extension=curl.so "$@"`, "sh", s.write("fetch.php", curlScript), fmt.Sprintf("http://127.0.0.1:%d/", port)))
	}})
}

// It answers with what was posted.
const echoingServer = `
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body at once
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`
