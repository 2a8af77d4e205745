package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A cluster of PostgreSQL is made once for all runs of a test: that takes longer than they do.
// It is read only.

// What is in it: pgbench's tables, and for COPY a table of a GB in rows of a KB.
const (
	pgbenchScale = 5
	copyRows     = 1_000_000
	quickRows    = copyRows / 10
	copyRow      = 1000 // bytes of the text of a row, about
)

// postgres is a command of the packages, which Debian has below the version.
func postgres(program string, args ...string) []string {
	return append([]string{"sh", "-c", `program=$1; shift; exec /usr/lib/postgresql/*/bin/$program "$@"`, "sh", program}, args...)
}

// cluster makes the data, with a table for COPY if so wanted.
func cluster(big bool) func(ctx context.Context, b *bench) error {
	return func(ctx context.Context, b *bench) error {
		a := b.preparing()
		defer a.close()
		if _, err := a.run(ctx, postgres("initdb", "-D", b.data(), "-A", "trust", "-U", "nobody", "--no-sync", "--locale=C", "-E", "UTF8")...); err != nil {
			return err
		}
		if err := admitAll(b.data()); err != nil {
			return err
		}
		port, err := a.postgres(ctx)
		if err != nil {
			return err
		}
		if _, err := a.run(ctx, a.pgClient(port, "pgbench", "-i", "-q", "-s", strconv.Itoa(pgbenchScale))...); err != nil {
			return err
		}
		if big {
			text := fmt.Sprintf("create table big as select i, repeat(md5(i::text), %d) as t from generate_series(1, %d) i", copyRow/32, b.copyRows())
			if _, err := a.run(ctx, a.pgClient(port, "psql", "-qc", text)...); err != nil {
				return err
			}
		}
		_, err = a.run(ctx, a.pgClient(port, "psql", "-qc", "vacuum freeze analyze", "-c", "checkpoint")...) // so that no run has to
		return err
	}
}

// admitAll lets clients in from anywhere: the server listens between two private namespaces, or on
// the loopback.
func admitAll(data string) error {
	f, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("PostgreSQL's data: %w", err)
	}
	_, err = f.WriteString("host all all all trust\n")
	return errors.Join(err, f.Close())
}

// preparing is where the data are made, without the library. Servers of data refuse to be root.
func (b *bench) preparing() *arena {
	return &arena{bench: b, dir: b.dir, fabric: b.dir, host: loopback, asNobody: true}
}

func (b *bench) data() string { return filepath.Join(b.dir, "data") }

func (b *bench) copyRows() int {
	if b.Quick {
		return quickRows
	}
	return copyRows
}

// postgres starts a server on the data.
func (a *arena) postgres(ctx context.Context) (port int, err error) {
	a.asNobody = true // it refuses to be root
	port = freePort()
	_, err = a.serve(ctx, port, postgres("postgres", "-D", a.data(), "-p", strconv.Itoa(port), "-k", "", "-c", "listen_addresses="+a.host,
		"-c", "dynamic_shared_memory_type=mmap", "-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB")...)
	if err != nil {
		return 0, err
	}
	return port, a.untilReady(ctx, a.pgClient(port, "pg_isready", "-q")...)
}

// untilReady waits for a server of data, which listens before it is ready: until a command succeeds.
func (a *arena) untilReady(ctx context.Context, command ...string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, notYet := a.run(ctx, command...); notYet == nil || time.Now().After(deadline) {
			return notYet
		}
	}
}

// pgClient is a client of the server at a port.
func (a *arena) pgClient(port int, program string, args ...string) []string {
	args = append([]string{"-h", a.host, "-p", strconv.Itoa(port), "-U", "nobody"}, args...)
	if program != "pg_isready" {
		args = append(args, "postgres")
	}
	return postgres(program, args...)
}

// pgbench reads only, with so many clients.
func pgbench(clients int) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		port, err := a.postgres(ctx)
		if err != nil {
			return o, err
		}
		text, err := a.run(ctx, a.pgClient(port, "pgbench", "-n", "-S", "-c", strconv.Itoa(clients), "-j", "1", "-t", strconv.Itoa(max(1, n/clients)))...)
		if err != nil {
			return o, err
		}
		if failed, err := number(text, `number of failed transactions: (\d+)`); err != nil || failed > 0 {
			return o, fmt.Errorf("pgbench had failed transactions: %s", text)
		}
		o.rate, err = number(text, `tps = ([\d.]+) \(without`)
		o.value = o.rate
		return o, err
	}
}

// copyOut is COPY of the big table to a client that throws it away.
func copyOut(ctx context.Context, a *arena, _ int) (o outcome, err error) {
	port, err := a.postgres(ctx)
	if err != nil {
		return o, err
	}
	// No pipe to another program: that would be two fifths of all CPU time.
	text, err := a.run(ctx, a.pgClient(port, "psql", "-c", `\timing on`, "-c", `\copy big to '/dev/null'`)...)
	if err != nil {
		return o, err
	}
	if rows, err := number(text, `COPY (\d+)`); err != nil || int(rows) != a.copyRows() {
		return o, fmt.Errorf("COPY was not of %d rows: %s", a.copyRows(), text)
	}
	ms, err := number(text, `Time: ([\d.]+) ms`)
	if err != nil {
		return o, err
	}
	o.value = float64(a.copyRows()) * copyRow / (ms / 1000)
	return o, nil
}
