package directsockets

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"exnet/directsockets/status"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// fabric makes a fabric directory for one test, and removes at its end what this process has there.
func fabric(t testing.TB) string {
	t.Helper()
	// Not t.TempDir: the names of UNIX sockets must stay below 108 bytes.
	dir, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		meetingIn(dir).retire()
		os.RemoveAll(dir)
	})
	return dir
}

// pipe joins two connections of this process.
func pipe(t testing.TB, o Options) (client, server *Conn) {
	t.Helper()
	client, server, err := connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func connect(o Options) (client, server *Conn, err error) {
	l, err := (&ListenConfig{Lanes: o}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- c
	}()
	c, err := (&Dialer{Lanes: o}).Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, ok := <-accepted
	if !ok {
		return nil, nil, os.ErrClosed
	}
	return c.(*Conn), s.(*Conn), nil
}

// warm plays ping-pong until both ends write by their lanes. It reads and writes the same number of
// bytes in each direction, and returns it.
func warm(t testing.TB, a, b *Conn) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	var x [7]byte
	for !(a.Status().WritesLane && b.Status().WritesLane) {
		for _, way := range [][2]*Conn{{a, b}, {b, a}} {
			if _, err := way[0].Write(x[:]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], x[:]); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no lane: %+v %+v", a.Status(), b.Status())
		}
	}
}

func TestUpgrade(t *testing.T) {
	a, b := pipe(t, Options{Fabric: fabric(t)})
	warm(t, a, b)
	want := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(want)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(200<<10))
			if _, err := a.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
	}
	s := b.Status()
	if s.State != status.Lane || s.RMA.Read < uint64(len(want))/2 {
		t.Errorf("%+v", s)
	}
}
