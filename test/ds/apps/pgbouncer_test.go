package apps_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

const pgbouncerConfiguration = `
[databases]
* = host=127.0.0.1 port=%s user=nobody
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = nobody
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
`

// PgBouncer before PostgreSQL: more clients than it has connections to the server, which
// it passes from one to the other after each transaction.
func TestPgBouncer(t *testing.T) {
	root := debroot.Need(t, "postgresql", "pgbouncer")
	try := 0
	compare(t, scenario{root: root, lanes: true, among: true, user: nobody, play: func(s *stage) string {
		try++
		server, pg := s.postgres("pool", try)
		port := freePort()
		s.serve(port, "pgbouncer", s.write("pgbouncer.ini", fmt.Sprintf(pgbouncerConfiguration, server, port)))
		client := func(program string, args ...string) []byte {
			return s.run(nil, "sh", pg(program, append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "nobody"}, args...)...)...)
		}
		client("pgbench", "-i", "-q", "-s", "1", "postgres")
		for _, load := range [][]string{{"-c", "20", "-t", "50"}, {"-c", "20", "-t", "200", "-S"}, {"-c", "5", "-t", "20", "-S", "-C"}} {
			text := client("pgbench", append(append([]string{"-n"}, load...), "postgres")...)
			if !bytes.Contains(text, []byte("number of failed transactions: 0")) {
				s.Errorf("pgbench %v:\n%s", load, text)
			}
		}
		return string(client("psql", "-qAtd", "postgres", "-c", "select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts) from pgbench_history"))
	}})
}
