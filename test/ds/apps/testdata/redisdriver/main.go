// Redisdriver is a Go program that uses a Redis server by redigo and its pool, over
// connections of package directsockets, and prints what came of it:
//
//	redisdriver PORT
//
// It is built by the test alone, since redigo comes as a Debian package.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"exnet/directsockets"
)

const clients, rounds, messages = 8, 500, 300

func main() {
	log.SetFlags(0)
	pool := &redis.Pool{MaxIdle: clients, Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", "127.0.0.1:"+os.Args[1], redis.DialReadTimeout(time.Minute), redis.DialNetDial(func(network, address string) (net.Conn, error) {
			return directsockets.Dial(network, address)
		}))
	}}
	for _, step := range []func(*redis.Pool) error{transactions, pipeline, values, subscribe, blocked} {
		if err := step(pool); err != nil {
			log.Fatal(err)
		}
	}
	if err := pool.Close(); err != nil {
		log.Fatal(err)
	}
}

// each does something on many connections at a time.
func each(pool *redis.Pool, do func(k int, c redis.Conn) error) error {
	errs := make([]error, clients)
	var all sync.WaitGroup
	for k := range clients {
		all.Go(func() {
			c := pool.Get()
			defer c.Close()
			errs[k] = do(k, c)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// transactions count by WATCH and EXEC, which meet.
func transactions(pool *redis.Pool) error {
	err := each(pool, func(_ int, c redis.Conn) error {
		for done := 0; done < rounds; {
			if _, err := c.Do("WATCH", "count"); err != nil {
				return err
			}
			n, err := redis.Int(c.Do("GET", "count"))
			if err != nil && !errors.Is(err, redis.ErrNil) {
				return err
			}
			c.Send("MULTI")
			c.Send("SET", "count", n+1)
			switch took, err := c.Do("EXEC"); {
			case err != nil:
				return err
			case took != nil:
				done++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c := pool.Get()
	defer c.Close()
	n, err := redis.Int(c.Do("GET", "count"))
	fmt.Println("transactions:", n)
	return err
}

// pipeline sends many commands before the first answer is read.
func pipeline(pool *redis.Pool) error {
	err := each(pool, func(k int, c redis.Conn) error {
		for i := range rounds {
			c.Send("RPUSH", fmt.Sprint("list", k), i)
		}
		if err := c.Flush(); err != nil {
			return err
		}
		for i := range rounds {
			if n, err := redis.Int(c.Receive()); err != nil || n != i+1 {
				return fmt.Errorf("%d items after %d: %w", n, i+1, err)
			}
		}
		items, err := redis.Ints(c.Do("LRANGE", fmt.Sprint("list", k), 0, -1))
		if err == nil && (len(items) != rounds || !slices.IsSorted(items)) {
			err = fmt.Errorf("list: %v", items)
		}
		return err
	})
	fmt.Println("pipelines are right:", err == nil)
	return err
}

// values are of all sizes, every byte compared.
func values(pool *redis.Pool) error {
	err := each(pool, func(k int, c redis.Conn) error {
		for i, size := range []int{0, 1, 100, 5_000, 70_000, 1_000_000, 8_000_000} {
			value := bytes.Repeat([]byte{byte(k), byte(i), 0, '\r', '\n', 255, 7}, size/7+1)[:size]
			if _, err := c.Do("SET", fmt.Sprint("value", k), value); err != nil {
				return err
			}
			got, err := redis.Bytes(c.Do("GET", fmt.Sprint("value", k)))
			if err != nil || !bytes.Equal(got, value) {
				return fmt.Errorf("%d of %d bytes: %w", len(got), size, err)
			}
		}
		return nil
	})
	fmt.Println("values are right:", err == nil)
	return err
}

// subscribe gets what others publish, in order.
func subscribe(pool *redis.Pool) error {
	s := redis.PubSubConn{Conn: pool.Get()}
	defer s.Close()
	if err := s.Subscribe("news"); err != nil {
		return err
	}
	s.Receive() // that it has subscribed
	go func() {
		c := pool.Get()
		defer c.Close()
		for i := range messages {
			c.Do("PUBLISH", "news", i)
		}
	}()
	for i := range messages {
		switch m := s.Receive().(type) {
		case redis.Message:
			if string(m.Data) != fmt.Sprint(i) {
				return fmt.Errorf("message %d is %q", i, m.Data)
			}
		case error:
			return m
		}
	}
	fmt.Println("messages are right")
	return s.Unsubscribe()
}

// blocked waits for what somebody else gives, or for nothing.
func blocked(pool *redis.Pool) error {
	c := pool.Get()
	defer c.Close()
	_, err := redis.DoWithTimeout(c, 100*time.Millisecond, "BLPOP", "nothing", 0)
	var slow net.Error
	fmt.Println("times out:", errors.As(err, &slow) && slow.Timeout())
	d := pool.Get()
	defer d.Close()
	go func() {
		c := pool.Get()
		defer c.Close()
		time.Sleep(50 * time.Millisecond)
		c.Do("RPUSH", "gift", "x")
	}()
	got, err := redis.Strings(d.Do("BLPOP", "gift", 0))
	fmt.Println("gift:", got)
	_, wrong := d.Do("LPUSH", "count", 1)
	fmt.Println("error:", wrong)
	return err
}
