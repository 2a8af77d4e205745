package directsockets

import (
	"io"
	"testing"
	"time"

	"exnet/directsockets/internal/lane"
)

// A writer that finds no window writes through slots until the reader has taken SWITCH, and then by
// TCP. TCP holds more, though nobody reads: both ends may write before they read.
func TestPoorGoesBackToTCP(t *testing.T) {
	defer func(was lane.Geometry) { env.geometry = was }(env.geometry)
	env.geometry.Windows = 1
	o := Options{Fabric: fabric(t)}
	hog, other := pipe(t, o)
	warm(t, hog, other)
	for _, c := range []*Conn{hog, other} { // has the window of its side
		c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Write(make([]byte, 1<<20)); err == nil {
			t.Fatalf("%d bytes", n)
		}
	}
	a, b := pipe(t, o)
	for !a.engaged() || !b.engaged() {
		write(t, b, "x") // or a was on the lane before
		read(t, a, "x")
	}
	b.rx.mu.Lock()
	const size = 60 << 10
	done := make(chan error, 1)
	go func() {
		_, err := a.Write(make([]byte, size))
		done <- err
	}()
	for a.tx.nap.state.Load() != asleep {
		time.Sleep(time.Millisecond)
	}
	b.turn() // as the night watch does, or who wants to write
	b.rx.mu.Unlock()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the reader")
	}
	a.CloseWrite()
	if got, err := io.ReadAll(b); len(got) != size || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), size, err)
	}
}
