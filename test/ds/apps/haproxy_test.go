package apps_test

import (
	"fmt"
	"testing"

	"exnet/test/debroot"
)

const haproxyConfiguration = `
global
	nbthread 2
defaults
	timeout connect 30s
	timeout client 60s
	timeout server 60s
	option splice-request
	option splice-response
listen bytes
	mode tcp
	bind 127.0.0.1:%[2]d
	server upstream 127.0.0.1:%[1]d
listen requests
	mode http
	bind 127.0.0.1:%[3]d
	server upstream 127.0.0.1:%[1]d
`

// HAProxy before nginx, which moves large answers by splice. Both of its sides take
// lanes.
func TestHAProxy(t *testing.T) {
	root := debroot.Need(t, "haproxy", "nginx-light", "wrk", "curl")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		website(s)
		upstream, port, http := freePort(), freePort(), freePort()
		s.serveBehind(upstream, "nginx", "-p", s.dir, "-c", s.write("nginx.conf", fmt.Sprintf(nginxConfiguration, s.dir, upstream)), "-e", "stderr")
		s.serve(port, "haproxy", "-db", "-f", s.write("haproxy.cfg", fmt.Sprintf(haproxyConfiguration, upstream, port, http)))
		out := ""
		for _, port := range []int{port, http} {
			base := fmt.Sprintf("http://127.0.0.1:%d", port)
			out += browse(s, base)
			load(s, base+"/100k")
		}
		return out
	}})
}
