package directsockets

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// perched starts a call that reads, and waits until it sleeps on a perch.
func perched(t *testing.T, c *Conn, b []byte) (result chan error) {
	t.Helper()
	c.rx.mu.Lock()
	c.in.slept = longSleep
	c.rx.mu.Unlock()
	result = make(chan error, 1)
	go func() {
		_, err := io.ReadFull(c, b)
		result <- err
	}()
	asleepSoon(t, c)
	return result
}

// asleepSoon waits until the reader sleeps on a perch. After a short sleep there, for example
// because of a ring that came late, the reader sleeps elsewhere; woken from that, it has had a long
// sleep.
func asleepSoon(t *testing.T, c *Conn) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for i := 1; ; i++ {
		time.Sleep(time.Millisecond)
		for i := range c.ch.roost.perch {
			if p := &c.ch.roost.perch[i]; c.ch.roost.taken.Load()>>i&1 == 1 && c.own.RxWaiters.Load()>>p.waiter&1 == 1 {
				return
			}
		}
		if i%100 == 0 {
			c.SetReadDeadline(time.Time{}) // as it was
		}
		if time.Now().After(end) {
			t.Fatal("the reader does not sleep on a perch")
		}
	}
}

// A reader on a perch wakes for bytes, for its deadline, for a changed deadline, for Close, for a
// goroutine that wants the connection, and for the end of the peer and its channel.
func TestPerch(t *testing.T) {
	for name, c := range map[string]struct {
		by   func(a, b *Conn)
		want error
	}{
		"bytes":        {func(_, b *Conn) { b.Write([]byte("x")) }, nil},
		"a deadline":   {func(a, _ *Conn) { a.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		"the past":     {func(a, _ *Conn) { a.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"its close":    {func(a, _ *Conn) { a.Close() }, net.ErrClosed},
		"the peer's":   {func(_, b *Conn) { b.Close() }, io.EOF},
		"half a close": {func(_, b *Conn) { b.CloseWrite() }, io.EOF},
		"back to TCP, and bytes": {func(a, b *Conn) {
			a.stay(reasonOption)
			b.Write([]byte("x"))
		}, nil},
		"the end of the channel": {func(a, b *Conn) {
			a.home.mu.Lock()
			a.ch.kill(reasonPeerGone)
			a.home.mu.Unlock()
		}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := upgraded(t)
			got := make([]byte, 1)
			result := perched(t, a, got)
			roost := &a.ch.roost
			c.by(a, b)
			select {
			case err := <-result:
				if !errors.Is(err, c.want) {
					t.Errorf("%v instead of %v", err, c.want)
				}
				if err == nil && got[0] != 'x' {
					t.Errorf("%q", got)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("it sleeps on")
			}
			if taken := roost.taken.Load(); taken != 0 {
				t.Errorf("perches %b are taken", taken)
			}
		})
	}
}

// With a deadline that does not pass, the reader sleeps again and again on its perch. It is not
// disturbed by an earlier deadline or by the reader that was there before.
func TestPerchDeadlines(t *testing.T) {
	a, b := upgraded(t)
	got := make([]byte, 1)
	for i := range 20 {
		c, d := a, b
		if i%2 == 1 {
			c, d = b, a
		}
		c.SetReadDeadline(time.Now().Add(time.Duration(i%3) * 2 * time.Millisecond).Add(time.Microsecond))
		if _, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(i, err)
		}
		c.SetReadDeadline(time.Time{})
		result := perched(t, c, got)
		time.Sleep(3 * time.Millisecond)
		d.Write([]byte{byte(i)})
		if err := <-result; err != nil || got[0] != byte(i) {
			t.Fatal(i, err, got)
		}
	}
}

// There are more sleepers than perches, in both processes' roles at once. Each message arrives, and
// no wake-up is lost.
func TestPerchesAreShared(t *testing.T) {
	const conns, rounds = 2*perches + 1, 300
	dir := fabric(t)
	var all sync.WaitGroup
	for range conns {
		a, b := pipe(t, Options{Fabric: dir})
		warm(t, a, b)
		for _, c := range []*Conn{a, b} {
			c.SetDeadline(time.Now().Add(time.Minute))
		}
		all.Go(func() {
			b := make([]byte, 1)
			for i := range rounds {
				time.Sleep(longSleep * time.Duration(i%5))
				if _, err := a.Write([]byte{byte(i)}); err != nil {
					t.Error(err)
					return
				}
				if _, err := a.Read(b); err != nil || b[0] != byte(i) {
					t.Error(err, b[0])
					return
				}
			}
		})
		all.Go(func() {
			one := make([]byte, 1)
			for range rounds {
				if _, err := b.Read(one); err != nil {
					t.Error(err)
					return
				}
				b.Write(one)
			}
		})
	}
	all.Wait()
}

// A peer that rings a perch without a reason loses its channel. After a short sleep, which happens
// on a busy machine, the reader is not on a perch and does not notice the rings. So the test wakes
// it until it sleeps there again.
func TestPerchRungForNothing(t *testing.T) {
	a, b := upgraded(t)
	var err error
	for end := time.Now().Add(time.Minute); err == nil; {
		if time.Now().After(end) {
			t.Fatal("the channel is there")
		}
		a.rx.mu.Lock()
		a.in.rings = ringsLeaving + ringsOfLane - 100
		a.rx.mu.Unlock()
		result := perched(t, a, make([]byte, 1))
		for i := 0; i < 1000 && a.ch.live.Load() == alive; i++ {
			time.Sleep(20 * longSleep)
			for i := range perches {
				ringBell(b.ch.bells[firstPerch+i])
			}
		}
		if a.ch.live.Load() == alive {
			b.Write([]byte{0})
		}
		err = <-result
	}
	if a.ch.live.Load() == alive {
		t.Error(err)
	}
	b.Close()
}
