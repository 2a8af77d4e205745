// Pqdriver is a Go program that uses a PostgreSQL server by database/sql and lib/pq,
// over connections of package directsockets, and prints what came of it:
//
//	pqdriver PORT
//
// It is built by the test alone, since lib/pq comes as a Debian package.
package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lib/pq"

	"exnet/directsockets"
)

const (
	clients, transfers = 8, 200
	rows               = 50_000
	accounts           = 100
)

// A connector has lib/pq dial by us.
type connector struct{ name string }

type dialer struct{}

func (dialer) Dial(network, address string) (net.Conn, error) {
	return directsockets.Dial(network, address)
}

func (dialer) DialTimeout(network, address string, limit time.Duration) (net.Conn, error) {
	return directsockets.DialTimeout(network, address, limit)
}

func (c connector) Connect(context.Context) (driver.Conn, error) {
	return pq.DialOpen(dialer{}, c.name)
}
func (c connector) Driver() driver.Driver { return &pq.Driver{} }

func main() {
	log.SetFlags(0)
	db := sql.OpenDB(connector{"host=127.0.0.1 port=" + os.Args[1] + " user=nobody dbname=postgres sslmode=disable"})
	db.SetMaxOpenConns(clients)
	for _, step := range []func(*sql.DB) error{prepare, pay, copyIn, read, cancel} {
		if err := step(db); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

func prepare(db *sql.DB) error {
	_, err := db.Exec(fmt.Sprintf(`create table account (id int primary key, balance int not null);
		insert into account select i, 1000 from generate_series(0, %d) i;
		create table big (i int, a text, b bytea)`, accounts-1))
	return err
}

// pay moves money between accounts, in transactions that meet.
func pay(db *sql.DB) error {
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for k := range clients {
		all.Go(func() {
			for i := range transfers {
				if err := transfer(db, (k*31+i)%accounts, (k*17+i*7+1)%accounts); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	var sum, n int
	err := db.QueryRow("select sum(balance), count(*) from account").Scan(&sum, &n)
	fmt.Printf("%d accounts have %d\n", n, sum)
	return err
}

func transfer(db *sql.DB, from, to int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	move := func(id, amount int) {
		if err == nil {
			_, err = tx.Exec("update account set balance = balance + $1 where id = $2", amount, id)
		}
	}
	if from < to { // in one order, so that none waits for another in a circle
		move(from, -1)
		move(to, 1)
	} else {
		move(to, 1)
		move(from, -1)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

func text(i int) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)}))
}

// copyIn loads a table by COPY.
func copyIn(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	in, err := tx.Prepare(pq.CopyIn("big", "i", "a", "b"))
	if err != nil {
		return err
	}
	for i := range rows {
		if _, err := in.Exec(i, text(i), []byte(text(i+1))); err != nil {
			return err
		}
	}
	if _, err := in.Exec(); err != nil {
		return err
	}
	return errors.Join(in.Close(), tx.Commit())
}

// read reads it back, every byte.
func read(db *sql.DB) error {
	all, err := db.Query("select i, a, b from big order by i")
	if err != nil {
		return err
	}
	defer all.Close()
	n := 0
	for ; all.Next(); n++ {
		var i int
		var a string
		var b []byte
		if err := all.Scan(&i, &a, &b); err != nil {
			return err
		}
		if i != n || a != text(i) || string(b) != text(i+1) {
			return fmt.Errorf("row %d is %d, %s, %s", n, i, a, b)
		}
	}
	fmt.Println(n, "rows are right")
	return all.Err()
}

// cancel has the server give up a query, and goes on; so it does after an error.
func cancel(db *sql.DB) error {
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	_, err := db.ExecContext(ctx, "select pg_sleep(600)")
	fmt.Println("cancelled:", err != nil)
	_, err = db.Exec("select 1/0")
	fmt.Println("error:", err)
	var well string
	err = db.QueryRow("select 'well'").Scan(&well)
	fmt.Println("after errors:", well)
	return err
}
