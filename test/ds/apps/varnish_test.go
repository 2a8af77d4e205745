package apps_test

import (
	"fmt"
	"testing"

	"exnet/test/debroot"
)

const lighttpdConfiguration = `
server.document-root = "%[1]s"
server.port = %[2]d
server.bind = "127.0.0.1"
server.max-keep-alive-requests = 100000
`

const varnishConfiguration = `
vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "%d"; }
sub vcl_recv {
	if (req.url ~ "pass") { return (pass); }
	if (req.url ~ "pipe") { return (pipe); }
}
`

// Varnish before lighttpd: what it keeps, what it fetches each time, and what it only
// hands on.
func TestVarnish(t *testing.T) {
	root := debroot.Need(t, "varnish", "lighttpd", "wrk", "curl", "gcc", "libc6-dev")
	compare(t, scenario{root: root, lanes: true, bothOnly: true, play: func(s *stage) string {
		site := website(s)
		upstream, port := freePort(), freePort()
		s.serveBehind(upstream, "lighttpd", "-D", "-f", s.write("lighttpd.conf", fmt.Sprintf(lighttpdConfiguration, site, upstream)))
		s.serve(port, "varnishd", "-F", "-j", "none", "-a", fmt.Sprintf("127.0.0.1:%d", port), "-f", s.write("varnish.vcl", fmt.Sprintf(varnishConfiguration, upstream)),
			"-n", s.fresh("varnish"), "-s", "malloc,100m")
		out := ""
		base := fmt.Sprintf("http://127.0.0.1:%d", port)
		for _, how := range []string{"", "?pass", "?pipe"} {
			for _, f := range []string{"1k", "100k"} {
				out += digest(s.run(nil, "curl", "-sS", base+"/"+f+how, base+"/1k"+how, base+"/"+f+how))
			}
			if how != "?pipe" {
				load(s, base+"/100k"+how)
			}
		}
		return out
	}})
}
