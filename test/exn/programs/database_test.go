package programs

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/exn"
)

// redis-benchmark runs with many connections and with pipelines. Redis must have counted all
// commands.
func TestRedis(t *testing.T) {
	root := debroot.Need(t, "redis-server", "redis-tools")
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	b.Serve(6379, b.Program(root, "redis-server", "--bind", b.IPv4.String(), b.IPv6.String(), "--protected-mode", "no", "--save", "", "--dir", t.TempDir()))
	requests := "20000"
	loads := [][]string{{"-t", "set,get", "-c", "50", "-d", "100"}, {"-t", "set,get", "-c", "20", "-P", "16", "-d", "4000"}}
	if !testing.Short() {
		requests = "100000"
		loads = append(loads, []string{"-t", "lpush,lrange_100", "-c", "20"}, []string{"-t", "set", "-c", "50", "-k", "0"})
	}
	for _, host := range []string{b.IPv4.String(), b.IPv6.String()} {
		for _, load := range loads {
			if load[len(load)-2] == "-k" {
				requests = "20000" // each needs a connection of its own
			}
			out := a.Run(a.Program(root, "redis-benchmark", append([]string{"-h", host, "--csv", "-n", requests}, load...)...))
			if bytes.Contains(out, []byte("rror")) || bytes.Count(out, []byte("\n")) < 2 {
				t.Errorf("redis-benchmark %v: %s", load, out)
			}
		}
	}
	out := string(a.Run(a.Program(root, "redis-cli", "-h", b.IPv4.String(), "info", "commandstats")))
	if !strings.Contains(out, "cmdstat_set:calls=") || strings.Contains(out, "failed_calls=1") {
		t.Errorf("redis counted:\n%s", out)
	}
}

// The database needs what its package would set up: a user other than root, and a directory for its
// socket. If several versions are installed, the last one is used.
const startPostgres = `
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
chown nobody "$1"
as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
cd "$1"
$as $bin/initdb -D "$1/data" -A trust -U bench >/dev/null
echo "host all all 0.0.0.0/0 trust" >> "$1/data/pg_hba.conf"
exec $as $bin/postgres -D "$1/data" -k "$1" -c listen_addresses=* -c dynamic_shared_memory_type=mmap -c fsync=off
`

// It listens before it accepts connections.
const awaitPostgres = `for i in $(seq 200); do "$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/pg_isready" -q -h "$1" && exit; sleep 0.1; done; exit 1`

// pgbench runs with several clients. PostgreSQL checks the sums.
func TestPostgres(t *testing.T) {
	root := debroot.Need(t, "postgresql", "postgresql-contrib")
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	// users other than root must be able to enter it
	dir, err := os.MkdirTemp("", "exnet-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b.Serve(5432, b.Program(root, "sh", "-c", startPostgres, "postgres", dir))
	bench := func(args ...string) string {
		all := append([]string{"-h", b.IPv4.String(), "-U", "bench"}, args...)
		return string(a.Run(a.Program(root, "sh", append([]string{"-c", `exec "$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/pgbench" "$@"`, "pgbench"}, all...)...)))
	}
	a.Run(a.Program(root, "sh", "-c", awaitPostgres, "await", b.IPv4.String()))
	bench("-i", "-s", "2", "postgres")
	out := bench("-c", "8", "-j", "2", "-t", "500", "postgres")
	if !strings.Contains(out, "number of transactions actually processed: 4000/4000") {
		t.Errorf("pgbench:\n%s", out)
	}
	sums := string(a.Run(a.Program(root, "psql", "-h", b.IPv4.String(), "-U", "bench", "-At", "-c",
		"select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), (select count(*) from pgbench_history)", "postgres")))
	if strings.TrimSpace(sums) != "t|4000" {
		t.Errorf("the sums after 4000 transactions: %q", sums)
	}
}
