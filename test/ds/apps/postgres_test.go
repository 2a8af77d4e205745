package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// nobody is as whom PostgreSQL runs, which refuses to run as root.
const nobody = 65534

// PostgreSQL forks for each connection. Its balances tell whether each
// transaction came exactly once; a large table goes out and in by COPY.
func TestPostgres(t *testing.T) {
	root := debroot.Need(t, "postgresql")
	transactions, rows := 50, 200_000 // of about 100 bytes; a machine that is busy takes long to find lanes
	if ds.Long() {
		transactions, rows = 5000, 10_000_000
	}
	try := 0
	compare(t, scenario{root: root, lanes: true, user: nobody, play: func(s *stage) string {
		try++
		number, pg := s.postgres("data", try)
		pipe := func(stdin io.Reader, stdout io.Writer, program string, args ...string) {
			s.pipe(stdin, stdout, "sh", pg(program, append([]string{"-h", "127.0.0.1", "-p", number, "-U", "nobody"}, args...)...)...)
		}
		client := func(input []byte, program string, args ...string) []byte {
			var out bytes.Buffer
			pipe(bytes.NewReader(input), &out, program, args...)
			return out.Bytes()
		}
		sql := func(text string) []byte { return client(nil, "psql", "-qAtd", "postgres", "-c", text) }
		var out strings.Builder
		client(nil, "pgbench", "-i", "-q", "-s", "1", "postgres")
		for _, load := range [][]string{
			{"-c", "8", "-j", "2"},
			{"-c", "8", "-j", "2", "-M", "prepared"},
			{"-c", "4", "-j", "1", "-C"}, // a connection for each transaction
			{"-c", "8", "-j", "2", "-S"}, // reads only
		} {
			text := client(nil, "pgbench", append([]string{"-n", "-t", strconv.Itoa(transactions)}, append(load, "postgres")...)...)
			if !bytes.Contains(text, []byte("number of failed transactions: 0")) {
				s.Errorf("pgbench %v:\n%s", load, text)
			}
		}
		fmt.Fprintf(&out, "transactions: %s", sql("select count(*) from pgbench_history"))
		fmt.Fprintf(&out, "balanced: %s", sql("select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history) and "+
			"(select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)"))

		sql(fmt.Sprintf("create table big as select i, md5(i::text) a, repeat(md5((i*7)::text), 2) b from generate_series(1, %d) i", rows))
		table, err := os.Create(filepath.Join(s.dir, "table"))
		if err != nil {
			s.Fatal(err)
		}
		defer table.Close()
		digest := sha256.New()
		pipe(nil, io.MultiWriter(table, digest), "psql", "-qAtd", "postgres", "-c", "copy (select * from big order by i) to stdout")
		size, _ := table.Seek(0, io.SeekCurrent)
		fmt.Fprintf(&out, "out: %d bytes, %x\n", size, digest.Sum(nil))
		if _, err := table.Seek(0, io.SeekStart); err != nil {
			s.Fatal(err)
		}
		sql("create table again (like big)")
		pipe(table, nil, "psql", "-qAtd", "postgres", "-c", "copy again from stdin")
		fmt.Fprintf(&out, "in: %s", sql("select count(*), bool_and(a = md5(i::text)), count(distinct i) from again"))
		// An error on the way and a cancelled query leave the connection usable.
		fmt.Fprintf(&out, "after errors: %s", client([]byte("select 1/0;\nset statement_timeout = 50;\nselect pg_sleep(9);\nselect 'well';\n"), "psql", "-qAtd", "postgres"))
		return out.String()
	}})
}

// postgres starts a server on a new cluster, for which name and try are names. pg is how a
// program of its is run: Debian has them below the version, the last of which is meant,
// as the machine may have another one than EXN_DEBIAN.
func (s *stage) postgres(name string, try int) (port string, pg func(program string, args ...string) []string) {
	const run = `program=$1; shift; exec "$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/$program" "$@"`
	pg = func(program string, args ...string) []string {
		return append([]string{"-c", run, "sh", program}, args...)
	}
	number := freePort()
	port = strconv.Itoa(number)
	data := filepath.Join(s.dir, fmt.Sprintf("%s%d", name, try))
	if out, err := s.command(nil, "sh", pg("initdb", "-D", data, "-A", "trust", "-U", "nobody", "--no-sync", "--locale=C", "-E", "UTF8")...).CombinedOutput(); err != nil {
		s.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Cleanup(func() { os.RemoveAll(data) }) // after the server's end; in a long run it has gigabytes
	// Killed, it would leave POSIX shared memory.
	s.serve(number, "sh", pg("postgres", "-D", data, "-p", port, "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "dynamic_shared_memory_type=mmap", "-c", "fsync=off", "-c", "max_wal_size=4GB")...)
	s.ready(port, pg)
	return port, pg
}

// ready waits until a server of PostgreSQL takes connections.
func (s *stage) ready(port string, pg func(program string, args ...string) []string) {
	s.Helper()
	for s.ctx.Err() == nil {
		if s.command(nil, "sh", pg("pg_isready", "-q", "-h", "127.0.0.1", "-p", port)...).Run() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("PostgreSQL on port %s does not get ready", port)
}

// A Go program with database/sql and lib/pq, over package directsockets.
func TestPostgresFromGo(t *testing.T) {
	root := debroot.Need(t, "postgresql", "golang-github-lib-pq-dev")
	program := driver(t, root, "pqdriver", "github.com/lib/pq")
	try := 0
	compare(t, scenario{root: root, lanes: true, user: nobody, play: func(s *stage) string {
		try++
		port, _ := s.postgres("data", try)
		mine := filepath.Join(s.dir, "pqdriver")
		if err := os.WriteFile(mine, program, 0o755); err != nil {
			s.Fatal(err)
		}
		command := []string{mine, port}
		if len(s.client) == 0 {
			command = append([]string{"env", "EXN_DS=off"}, command...)
		}
		var out bytes.Buffer
		s.pipe(nil, &out, command[0], command[1:]...)
		return out.String()
	}})
}

// driver builds a program of testdata with the sources of Debian's package of a driver, without
// a module of ours that knows of them.
func driver(t *testing.T, root *debroot.Root, name, driver string) []byte {
	t.Helper()
	dir := t.TempDir()
	sources := filepath.Join(dir, "driver")
	if text, err := root.Command(t.Context(), "cp", "-r", "/usr/share/gocode/src/"+driver, sources).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), file))
		if err != nil {
			t.Fatal(err)
		}
		if file == "go.mod" {
			text = fmt.Appendf(text, "\nrequire %[1]s v0.0.0\nreplace %[1]s => %[2]s\n", driver, sources)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-modfile="+filepath.Join(dir, "go.mod"), "-mod=mod", "-o", binary, "./testdata/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, text)
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
