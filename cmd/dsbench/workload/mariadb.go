package workload

import (
	"context"
	"path/filepath"
	"strconv"
	"time"
)

// The data of MariaDB are made once for all runs of a test, as those of PostgreSQL, and only read.

const (
	sysbenchRows = 10_000
	sysbenchUser = "sbtest" // its name for user and database, too
)

// rows makes the data, with the table that sysbench reads.
func rows(ctx context.Context, b *bench) error {
	a := &arena{bench: b, dir: b.dir, fabric: b.dir, host: loopback, asNobody: true}
	defer a.close()
	if _, err := a.run(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+b.data(), "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return err
	}
	port, err := a.mariadb(ctx)
	if err != nil {
		return err
	}
	for _, host := range []string{"localhost", "%"} {
		text := "create database if not exists " + sysbenchUser + "; create user '" + sysbenchUser + "'@'" + host + "'; grant all on *.* to '" + sysbenchUser + "'@'" + host + "'"
		if _, err := a.run(ctx, "mariadb", "--no-defaults", "-h", a.host, "-P", strconv.Itoa(port), "-u", "root", "-e", text); err != nil {
			return err
		}
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
	for deadline := time.Now().Add(patience); err == nil; time.Sleep(10 * time.Millisecond) { // it listens before it is ready
		if _, notYet := a.run(ctx, "mariadb-admin", "--no-defaults", "-h", a.host, "-P", strconv.Itoa(port), "-u", "root", "ping"); notYet == nil || time.Now().After(deadline) {
			return port, notYet
		}
	}
	return 0, err
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
