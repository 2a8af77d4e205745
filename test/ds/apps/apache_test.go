package apps_test

import (
	"fmt"
	"testing"

	"exnet/test/debroot"
)

const apacheConfiguration = `
LoadModule mpm_%[4]s_module /usr/lib/apache2/modules/mod_mpm_%[4]s.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ServerName localhost
ServerRoot %[1]s
DocumentRoot %[1]s/www
PidFile %[1]s/%[4]s.pid
DefaultRuntimeDir %[1]s
Mutex sem
Listen 127.0.0.1:%[2]d
User #%[3]d
Group #%[3]d
ErrorLog %[1]s/%[4]s.log
FileETag None
MaxKeepAliveRequests 0
StartServers 3
`

// Apache in each of its ways to serve: a process for each connection, threads that
// block, threads that share an event queue.
func TestApache(t *testing.T) {
	root := debroot.Need(t, "apache2", "wrk", "curl")
	compare(t, scenario{root: root, lanes: true, user: nobody, play: func(s *stage) string {
		website(s)
		out := ""
		for _, mpm := range []string{"prefork", "worker", "event"} {
			port := freePort()
			config := s.write(mpm+".conf", fmt.Sprintf(apacheConfiguration, s.dir, port, nobody, mpm))
			s.serve(port, "apache2", "-DFOREGROUND", "-f", config)
			base := fmt.Sprintf("http://127.0.0.1:%d", port)
			out += browse(s, base)
			load(s, base+"/100k")
		}
		return out
	}})
}
