package workload

import (
	"context"
	"path/filepath"
	"strconv"
)

// The data of MariaDB are made once for all runs of a test, as those of PostgreSQL, and only read.

const (
	sysbenchRows = 10_000
	sysbenchUser = "sbtest" // its name for user and database, too
)

// sysbenchTable makes the data.
func sysbenchTable(ctx context.Context, b *bench) error {
	a := b.preparing()
	defer a.close()
	if _, err := a.run(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+b.data(), "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return err
	}
	port, err := a.mariadb(ctx)
	if err != nil {
		return err
	}
	const text = "create database " + sysbenchUser + "; create user " + sysbenchUser + "; grant all on *.* to " + sysbenchUser
	if _, err := a.run(ctx, a.mariadbClient(port, "mariadb", "-e", text)...); err != nil {
		return err
	}
	_, err = a.run(ctx, a.sysbench(port, "prepare")...)
	return err
}

// mariadb starts a server on the data.
func (a *arena) mariadb(ctx context.Context) (port int, err error) {
	a.asNobody = true // it refuses to be root
	port = freePort()
	socket := filepath.Join(a.data(), "socket")
	_, err = a.serve(ctx, port, "mariadbd", "--no-defaults", "--datadir="+a.data(), "--socket="+socket, "--pid-file="+socket+".pid", "--bind-address="+a.host, "--port="+strconv.Itoa(port),
		"--skip-log-bin", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0")
	if err != nil {
		return 0, err
	}
	return port, a.untilReady(ctx, a.mariadbClient(port, "mariadb-admin", "ping")...)
}

// mariadbClient is a client of the server at a port.
func (a *arena) mariadbClient(port int, program string, args ...string) []string {
	return append([]string{program, "--no-defaults", "-h", a.host, "-P", strconv.Itoa(port), "-u", "root"}, args...)
}

// sysbench is a command of the client, which reads a row by its key each time.
func (a *arena) sysbench(port int, args ...string) []string {
	return append([]string{"sysbench", "oltp_point_select", "--mysql-host=" + a.host, "--mysql-port=" + strconv.Itoa(port), "--mysql-user=" + sysbenchUser, "--mysql-db=" + sysbenchUser,
		"--table-size=" + strconv.Itoa(sysbenchRows)}, args...)
}

// pointSelect reads with so many threads, each with a connection that it sleeps on.
func pointSelect(threads int) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		port, err := a.mariadb(ctx)
		if err != nil {
			return o, err
		}
		text, err := a.run(ctx, a.sysbench(port, "--threads="+strconv.Itoa(threads), "--events="+strconv.Itoa(n), "--time=0", "run")...)
		if err != nil {
			return o, err
		}
		o.rate, err = number(text, `transactions:\s+\d+\s+\(([\d.]+) per sec`)
		o.value = o.rate
		return o, err
	}
}
