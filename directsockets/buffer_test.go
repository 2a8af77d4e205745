package directsockets

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// buffering returns two connections on their lanes with small windows. Writes from a's buffer
// announce parts from 64 KiB on.
func buffering(t *testing.T, size int) (a, b *Conn, buffer *Buffer) {
	t.Helper()
	from, window := bufferFrom.Swap(64<<10), env.geometry.Window
	env.geometry.Window = 16 << 10
	t.Cleanup(func() {
		bufferFrom.Store(from)
		env.geometry.Window = window
	})
	a, b = upgraded(t)
	buffer = a.Buffer(size)
	t.Cleanup(buffer.Release)
	if !buffer.Registered() || len(buffer.Bytes()) != size {
		t.Fatalf("%d bytes, registered %v", len(buffer.Bytes()), buffer.Registered())
	}
	return a, b, buffer
}

// ZCP-1: reads of any size take what is announced from a buffer in parts, in order with what comes
// before and after it, and nobody copies it into a window.
func TestBufferParts(t *testing.T) {
	a, b, buffer := buffering(t, 3<<20)
	large := buffer.Bytes()
	copy(large, noise(len(large), 2))
	want := append(append(noise(1000, 1), large[5:]...), large[:100<<10]...)
	go func() {
		a.Write(want[:1000])
		a.Write(large[5:])
		a.Write(large[:100<<10])
	}()
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		k, err := b.Read(got[n:min(len(got), n+1+n%(70<<10))])
		if n += k; err != nil {
			t.Fatal(n, err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes")
	}
	s := b.Status()
	if s.ZCopy.Read < 3<<20 || s.ZCopy.Read != a.Status().ZCopy.Written {
		t.Errorf("%d bytes out of the buffer, the writer says %d", s.ZCopy.Read, a.Status().ZCopy.Written)
	}
}

// ZCP-1: when a write returns, its buffer belongs to the program again, and the count is what the
// reader gets, whatever ended the write.
func TestBufferCancel(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(a *Conn)
		want error
	}{
		"deadline":    {func(a *Conn) { a.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"CloseWrite":  {func(a *Conn) { a.CloseWrite() }, syscall.EPIPE},
		"back to TCP": {func(a *Conn) { a.stay(reasonOption) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, buffer := buffering(t, 1<<20)
			lent := buffer.Bytes()
			copy(lent, noise(len(lent), 3))
			want := bytes.Clone(lent)
			type result struct {
				n   int
				err error
			}
			done := make(chan result, 1)
			go func() {
				n, err := a.Write(lent)
				clear(lent)
				done <- result{n, err}
			}()
			awaitAdvert(t, a, true)
			got := make([]byte, 200<<10)
			if _, err := io.ReadFull(b, got); err != nil {
				t.Fatal(err)
			}
			rest := make(chan []byte, 1)
			read := func() {
				all, _ := io.ReadAll(b)
				rest <- all
			}
			if end.want == nil { // it needs the reader
				go read()
			}
			end.by(a)
			r := <-done
			if !errors.Is(r.err, end.want) || r.n < len(got) || (end.want != nil) != (r.n < len(lent)) {
				t.Fatalf("%d bytes written, %v", r.n, r.err)
			}
			a.SetWriteDeadline(time.Time{})
			a.CloseWrite()
			if end.want != nil {
				read()
			}
			if got = append(got, <-rest...); !bytes.Equal(got, want[:r.n]) {
				t.Errorf("%d bytes read; %d were written", len(got), r.n)
			}
		})
	}
}

// A peer that refuses adverts of the writer's own memory accepts those in memory that it has
// mapped.
func TestBufferNeedsNoPermission(t *testing.T) {
	a, b, buffer := buffering(t, 1<<20)
	b.ch.zcopy.Store(zcopyImpossible)
	lent := buffer.Bytes()
	copy(lent, noise(len(lent), 4))
	go a.Write(lent)
	got := make([]byte, len(lent))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, lent) {
		t.Fatal("other bytes", err)
	}
	if b.Status().ZCopy.Read == 0 {
		t.Error("nothing out of the buffer")
	}
}

// Memory that cannot be registered is ordinary memory, and is written as such.
func TestBufferUnregistered(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, a *Conn) *Buffer{
		"on TCP": func(_ *testing.T, a *Conn) *Buffer {
			a.stay(reasonOption)
			return a.Buffer(1 << 20)
		},
		"too large": func(_ *testing.T, a *Conn) *Buffer {
			return a.Buffer(int(env.geometry.Windows+1) * int(env.geometry.Window))
		},
		"a peer that does not know them": func(_ *testing.T, a *Conn) *Buffer {
			a.ch.takes = false
			return a.Buffer(1 << 20)
		},
		"no memory left": func(t *testing.T, a *Conn) *Buffer {
			budget.mu.Lock()
			used := budget.used
			budget.used = budget.most
			budget.mu.Unlock()
			defer func() {
				budget.mu.Lock()
				budget.used = used
				budget.mu.Unlock()
			}()
			return a.Buffer(1 << 20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _ := buffering(t, 1000)
			buffer := prepare(t, a)
			if buffer.Registered() {
				t.Fatal("it is registered")
			}
			sent := buffer.Bytes()[:1<<20]
			copy(sent, noise(len(sent), 5))
			go a.Write(sent)
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent) {
				t.Error("other bytes", err)
			}
			if s := b.Status().ZCopy.Read; s != 0 {
				t.Errorf("%d bytes copied once", s)
			}
			buffer.Release()
			buffer.Release()
			if buffer.Bytes() != nil {
				t.Error("there is memory after Release")
			}
		})
	}
}

// A buffer stays until it is released, whatever happens to connection and channel. After that its
// windows belong to the lanes again.
func TestBufferOutlives(t *testing.T) {
	a, b, buffer := buffering(t, 1<<20)
	ch := a.ch
	want := noise(1<<20, 6)
	copy(buffer.Bytes(), want)
	a.Close()
	b.Close()
	a.home.mu.Lock()
	ch.kill(reasonPeerGone)
	a.home.mu.Unlock()
	for end := time.Now().Add(10 * time.Second); ch.refs.Load() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d references to the channel", ch.refs.Load())
		}
	}
	if !bytes.Equal(buffer.Bytes(), want) {
		t.Error("it has changed")
	}
	buffer.Release()
	if n := ch.refs.Load(); n != 0 {
		t.Errorf("%d references to the channel", n)
	}
}

// Invalid data about buffers resets that connection, even one that the peer's death has reset
// already.
func TestBufferHostile(t *testing.T) {
	for _, bad := range []struct {
		at   uint64
		n    int
		dead bool
	}{{1 << 62, 100, false}, {0, 1 << 40, false}, {1<<64 - 1, 1, false}, {0, 0, false}, {0, 1 << 40, true}} {
		a, b, _ := buffering(t, 1000)
		a.tx.take()
		ok := a.out.w.AdvertiseBuffer(bad.at, bad.n)
		a.ch.ring(a, &a.peer.RxWaiters)
		a.tx.mu.Unlock()
		if !ok {
			t.Fatal("it could not be posted")
		}
		if bad.dead {
			b.reset(reasonPeerGone)
		}
		if n, err := b.Read(make([]byte, 1000)); n != 0 || !errors.Is(err, syscall.ECONNRESET) || b.Status().Reason != reasonHostile {
			t.Errorf("%+v: %d bytes, %v, %v", bad, n, err, b.Status().Reason)
		}
	}
}

// HELLO tells who takes buffers; a peer of an earlier version does not mention it.
func TestBufferFeature(t *testing.T) {
	m := message{kind: msgHello, features: takesBuffers}
	var back message
	if !back.decode((*[messageSize]byte)(m.encode())) || back.features != takesBuffers {
		t.Errorf("%+v", back)
	}
	var old [messageSize]byte
	if !back.decode(&old) || back.features != 0 {
		t.Errorf("%+v", back)
	}
}
