package apps_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// MariaDB, with a thread for each connection, and an io_uring for its files.
func TestMariaDB(t *testing.T) {
	root := debroot.Need(t, "mariadb-server", "mariadb-client")
	var script bytes.Buffer
	script.WriteString("create table t (id int primary key, a varchar(64), b varchar(4000));\nbegin;\n")
	for i := range 2000 {
		fmt.Fprintf(&script, "insert into t values (%d, md5(%d), repeat(md5(%d), %d));\n", i, i, i, i%120)
	}
	script.WriteString("commit;\n")
	for range 5 {
		script.WriteString("select * from t order by id;\nselect count(*), sum(crc32(b)) from t where id % 7 = 3;\n")
	}
	compare(t, scenario{root: root, lanes: true, user: nobody, play: func(s *stage) string {
		data := filepath.Join(s.fresh("maria"), "data")
		port := freePort()
		socket := filepath.Join(s.dir, "maria", "sock")
		if out, err := s.command(nil, "mariadb-install-db", "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput(); err != nil {
			s.Fatalf("mariadb-install-db: %v\n%s", err, out)
		}
		s.serve(port, "mariadbd", "--no-defaults", "--datadir="+data, "--socket="+socket, "--pid-file="+socket+".pid", "--bind-address=127.0.0.1", "--port="+strconv.Itoa(port),
			"--innodb-flush-log-at-trx-commit=0", "--skip-log-bin")
		client := func(input []byte, args ...string) []byte {
			return s.run(input, "mariadb", append([]string{"--no-defaults", "-h", "127.0.0.1", "-P", strconv.Itoa(port), "-u", "root", "-N"}, args...)...)
		}
		client(nil, "-e", "create database test")
		out := digest(client(script.Bytes(), "test"))
		dump := s.run(nil, "mariadb-dump", "--no-defaults", "-h", "127.0.0.1", "-P", strconv.Itoa(port), "-u", "root", "--skip-dump-date", "test")
		out += digest(dump)
		client(nil, "-e", "create database again")
		client(dump, "again")
		var checks []string
		for _, name := range []string{"test", "again"} {
			checks = append(checks, string(client(nil, "-e", "select count(*), sum(crc32(a)), sum(crc32(b)) from t", name)))
		}
		return out + strings.Join(checks, "")
	}})
}
