package gopeer_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/status"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// A client speaks RESP over a connection of ours, as Go drivers do.
type client struct {
	c *directsockets.Conn
	r *bufio.Reader
	w *bufio.Writer
}

// send writes a command, which goes out at the next receive.
func (c *client) send(words ...string) {
	fmt.Fprintf(c.w, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(c.w, "$%d\r\n%s\r\n", len(word), word)
	}
}

// receive reads an answer: a string, a number or nothing.
func (c *client) receive() (string, error) {
	if err := c.w.Flush(); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	switch kind, rest := line[0], line[1:len(line)-2]; kind {
	case '+', ':':
		return rest, nil
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		b := make([]byte, n+2)
		_, err = io.ReadFull(c.r, b)
		return string(b[:n]), err
	default:
		return "", fmt.Errorf("redis: %s", line)
	}
}

// A Go client and redis-server under the library: short requests, pipelines, large
// values, and a snapshot, for which the server forks.
func TestRedis(t *testing.T) {
	root := debroot.Need(t, "redis-server")
	library, fabric, dir := ds.Library(t), ds.Fabric(t), t.TempDir()
	socket := filepath.Join(dir, "ready")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := root.Command(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir, "--unixsocket", socket)
	if server.Env == nil {
		server.Env = os.Environ()
	}
	server.Env = append(server.Env, ds.Preload(library, fabric)...)
	if server.SysProcAttr == nil {
		server.SysProcAttr = dieWithUs()
	}
	var out bytes.Buffer
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { server.Process.Kill(); server.Wait() }()
	d := directsockets.Dialer{Lanes: directsockets.Options{Fabric: fabric}}
	dial := func() *client {
		for {
			c, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				return &client{c.(*directsockets.Conn), bufio.NewReader(c), bufio.NewWriter(c)}
			}
			if ctx.Err() != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			time.Sleep(10 * time.Millisecond) // it is starting
		}
	}
	const clients, each = 10, 300
	var all sync.WaitGroup
	var mu sync.Mutex
	lane := 0
	for k := range clients {
		c := dial()
		all.Go(func() {
			defer c.c.Close()
			want := func(want string, words ...string) bool {
				c.send(words...)
				got, err := c.receive()
				if err != nil || got != want {
					t.Errorf("%s gives %.50q, %v", words[0], got, err)
				}
				return err == nil
			}
			for i := range each {
				key, value := fmt.Sprintf("k%d-%d", k, i), string(bytes.Repeat([]byte{byte('a' + i%26)}, []int{3, 300, 20000, 400000}[i%4]))
				if !want("OK", "SET", key, value) || !want(value, "GET", key) {
					return
				}
				for range 20 { // a pipeline
					c.send("INCR", "sum")
				}
				for range 20 {
					if _, err := c.receive(); err != nil {
						t.Error(err)
						return
					}
				}
				if i == each/2 && k == 0 {
					c.send("BGSAVE")
					c.receive() // it may be at it already
				}
			}
			if s := c.c.Status(); s.State == status.Lane {
				mu.Lock()
				lane++
				mu.Unlock()
			} else {
				t.Logf("%v: %v, %+v", s.State, s.Reason, s)
			}
		})
	}
	all.Wait()
	c := dial()
	defer c.c.Close()
	c.send("GET", "sum")
	if sum, err := c.receive(); err != nil || sum != strconv.Itoa(clients*each*20) {
		t.Errorf("sum is %s, %v: commands were lost or came twice", sum, err)
	}
	if lane < clients/2 {
		t.Errorf("%d of %d clients have lanes", lane, clients)
	}
}
