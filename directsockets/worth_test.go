package directsockets

import (
	"context"
	"io"
	"net"
	"testing"

	"exnet/directsockets/status"
)

// If most connections to a port end soon, the next ones stay on TCP for longer, until some have
// lasted.
func TestShortConnections(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	l, err := (&ListenConfig{Lanes: o}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	open := func() (client, server *Conn) {
		c, err := (&Dialer{Lanes: o}).Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*Conn), s.(*Conn)
	}
	play := func(rounds int, a, b net.Conn) {
		var x [5]byte
		for range rounds {
			a.Write(x[:])
			io.ReadFull(b, x[:])
			b.Write(x[:])
			if _, err := io.ReadFull(a, x[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	const short, long, early = 5, 100, 20 // rounds
	for range 2 * worthMost {
		a, b := open()
		play(short, a, b)
		a.Close()
		b.Close()
	}
	a, b := open()
	play(early, a, b)
	if s := a.Status(); s.State != status.Counting || s.Reason != reasonBrief {
		t.Errorf("after short connections: %v, %v", s.State, s.Reason)
	}
	warm(t, a, b) // it gets a lane all the same
	a.Close()
	b.Close()
	for range worthMost {
		a, b := open()
		play(long, a, b)
		a.Close()
		b.Close()
	}
	a, b = open()
	defer a.Close()
	defer b.Close()
	play(early, a, b)
	if s := a.Status(); s.Reason == reasonBrief {
		t.Errorf("after long connections: %v, %v", s.State, s.Reason)
	}
}
