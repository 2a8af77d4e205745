package directsockets

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
)

// Writes of several goroutines do not mix, whatever happens to the connection during one of them:
// each is a unit, as with package net. And no write times out that has no deadline.
func TestWritesDoNotMix(t *testing.T) {
	const writers, rounds, size = 4, 3, 1 << 20
	for name, way := range map[string]struct {
		off  bool
		play func(t testing.TB, a, b *Conn)
		each func(c *Conn) // of the writing end, while they write
	}{
		"on TCP, and asked":      {off: true, each: func(c *Conn) { c.Status() }},
		"on a lane, and asked":   {play: warm, each: func(c *Conn) { c.Status() }},
		"upgraded in the middle": {},
		"back in the middle":     {play: warm, each: func(c *Conn) { c.stay(reasonTest); c.Status() }},
		"never upgraded": {each: func(c *Conn) {
			c.home.mu.Lock()
			c.stayLocked(reasonTest)
			c.home.mu.Unlock()
			c.Status()
		}},
	} {
		play := func(t *testing.T) {
			a, b := pipe(t, Options{Fabric: fabric(t), Off: way.off})
			if way.play != nil {
				way.play(t, a, b)
			}
			var all sync.WaitGroup
			defer all.Wait()
			defer b.Close()
			for w := range writers {
				all.Go(func() {
					for i := range rounds {
						m := bytes.Repeat([]byte{byte(w*rounds + i)}, size)
						n, err := size, error(nil)
						if i%2 == 0 {
							n, err = a.Write(m)
						} else {
							_, err = a.WriteBuffers(&net.Buffers{m[:size/3], m[size/3 : size/2], m[size/2:]})
						}
						if n != size || err != nil {
							if !t.Failed() {
								t.Errorf("writer %d: %d, %v", w, n, err)
							}
							return
						}
					}
				})
			}
			done := make(chan struct{})
			defer close(done)
			if way.each != nil {
				all.Go(func() {
					for {
						select {
						case <-done:
							return
						case <-time.After(100 * time.Microsecond):
							way.each(a)
						}
					}
				})
			}
			m := make([]byte, size)
			for range writers * rounds {
				// In steps, so that the writers sleep.
				for rest := m; len(rest) > 0; {
					n, err := io.ReadFull(b, rest[:min(len(rest), 50_000)])
					if err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
					time.Sleep(10 * time.Microsecond)
				}
				if n := bytes.Count(m, m[:1]); n != size {
					t.Errorf("a message of writer %d has %d bytes of others", m[0]/rounds, size-n)
					return
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			for range 5 {
				play(t)
			}
		})
	}
}

// A peer dies, but processes that it forked hold the channel, so its lane shows nothing. A writer
// that waits for room notices the end, even if it was not asleep yet when the kernel reported it.
func TestEndBeforeSleep(t *testing.T) {
	defer func(spin time.Duration, most int32) { env.spin = spin; procs.Store(most) }(env.spin, procs.Load())
	env.spin = 500 * time.Millisecond
	procs.Store(8)
	for _, reader := range []bool{false, true} {
		a, b := upgraded(t)
		if reader {
			go a.Read(make([]byte, 1))
		}
		done := make(chan error, 1)
		go func() {
			for err := error(nil); ; _, err = a.Write(make([]byte, 100<<10)) {
				if err != nil {
					done <- err
					return
				}
			}
		}()
		for a.Status().RMA.Written < 200<<10 { // the window is full
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // it looks for room, since Status has woken it
		b.control(func(fd int) { unix.Shutdown(fd, unix.SHUT_WR) })
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("reader %v: it waits for ever", reader)
		}
		b.Close()
	}
}

// A connection that returns to TCP waits for its own writer for longer than the peer has to answer,
// as happens on an overloaded machine. The peer still gets its full time after that.
func TestGoesBackLate(t *testing.T) {
	a, b := upgraded(t)
	got := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		got <- err
	}()
	done := make(chan struct{})
	a.tx.mu.Lock()
	go func() {
		a.stay(reasonTest)
		close(done)
	}()
	time.Sleep(patience + patience/5)
	a.tx.mu.Unlock()
	<-done
	if _, err := a.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if s := a.Status(); s.State != status.TCP {
		t.Errorf("it is %v", s.State)
	}
}

// A reader that may take nothing, because the connection is returning to TCP, yields to the
// goroutine that brings it there, even if the kernel has news meanwhile.
func TestFrozenReaderGivesWay(t *testing.T) {
	for range 10 {
		a, b := upgraded(t)
		go a.Read(make([]byte, 1))
		for a.rx.nap.state.Load() != asleep {
			time.Sleep(time.Millisecond)
		}
		b.rx.mu.Lock() // a peer that is stopped
		b.tx.mu.Lock()
		done, own := make(chan struct{}), a.own
		go func() {
			a.stay(reasonTest)
			close(done)
		}()
		for own.GoBack.Load() == 0 {
			time.Sleep(10 * time.Microsecond)
		}
		b.control(func(fd int) { unix.Shutdown(fd, unix.SHUT_WR) })
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("it waits for ever")
		}
		b.tx.mu.Unlock()
		b.rx.mu.Unlock()
		a.Close()
		b.Close()
	}
}
