package directsockets

import (
	"context"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"exnet/directsockets/status"
)

// seen returns what others see of a connection.
func seen(t *testing.T, c *Conn) (s status.Socket, found bool) {
	t.Helper()
	p, _ := status.Of(os.Getpid())
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	for _, s := range p.Sockets {
		if s.Local == c.tuple.local && s.Remote == c.tuple.remote {
			return s, true
		}
	}
	return s, false
}

// What is published is what Status returns: on TCP, on a lane, and after the return from it.
func TestShown(t *testing.T) {
	a, b := pipe(t, Options{Fabric: fabric(t)})
	check := func(when string, state status.State) {
		t.Helper()
		for _, c := range []*Conn{a, b} {
			s, found := seen(t, c)
			if want := c.Status().Socket; !found || s != want || s.State != state {
				t.Errorf("%s: seen %v\ngot  %+v\nwant %+v", when, found, s, want)
			}
		}
	}
	exchange := func(n int) {
		t.Helper()
		for _, way := range [][2]*Conn{{a, b}, {b, a}} {
			done := make(chan error, 1)
			go func() { _, err := way[0].Write(make([]byte, n)); done <- err }()
			if _, err := io.ReadFull(way[1], make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	exchange(100)
	check("new", status.Counting)
	warm(t, a, b)
	exchange(300)
	exchange(1 << 20)
	check("on its lanes", status.Lane)
	s, _ := seen(t, a)
	if s.Inode == 0 || s.RMA.Read < 1<<20 || s.VELO.Written < 300 || s.TCP.Read < 100 || !s.ReadsLane || !s.WritesLane {
		t.Errorf("on its lanes: %+v", s)
	}
	write(t, b, "unread") // is taken back
	if err := a.stay(reasonTest); err != nil {
		t.Fatal(err)
	}
	read(t, a, "unread")
	if s, _ := seen(t, a); s.State != status.TCP || s.Reason != reasonTest || s.ReadsLane || s.WritesLane {
		t.Errorf("back: %+v", s)
	}
	if got, want := a.Status(), b.Status(); got.VELO.Read != want.VELO.Written || got.TCP.Read != want.TCP.Written {
		t.Errorf("bytes taken back: %+v, %+v", got, want)
	}
	a.Close()
	if s, found := seen(t, a); found {
		t.Errorf("closed, and seen as %+v", s)
	}
}

// A listener is shown, so that exn-tun check finds who uses the package.
func TestListenerIsShown(t *testing.T) {
	count := func() (n int) {
		p, _ := status.Of(os.Getpid())
		for _, s := range p.Sockets {
			if s.State == status.Listener {
				n++
			}
		}
		return n
	}
	before := count()
	l, err := new(ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := count(); got != before+1 {
		t.Errorf("%d listeners are seen, before %d", got, before)
	}
	l.Close()
	if got := count(); got != before {
		t.Errorf("%d listeners are seen after all, before %d", got, before)
	}
}

// A record is reused when its connection is garbage.
func TestRecordsAreUsedAgain(t *testing.T) {
	spare := func() int {
		shown.mu.Lock()
		defer shown.mu.Unlock()
		return len(shown.free)
	}
	func() {
		a, b, err := connect(Options{Off: true})
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		b.Close()
	}()
	for before := spare(); spare() <= before; time.Sleep(time.Millisecond) {
		runtime.GC() // the test ends by its timeout if nothing comes back
	}
	shown.mu.Lock()
	r := shown.free[len(shown.free)-1]
	shown.mu.Unlock()
	r.TCPRead.Store(9)
	if next, ours := shown.take(""); next != r || !ours || next.TCPRead.Load() != 0 {
		t.Errorf("the next record is not that, cleared: %v %+v", ours, next)
	}
	shown.giveBack(r)
}
