package directsockets

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// advertising are two connections on their lanes, where writes above 64 KiB are
// advertised; the second one has read enough at once to invite them.
func advertising(t *testing.T) (a, b *Conn) {
	t.Helper()
	least, window := zcopyFrom.Swap(64<<10), env.geometry.Window
	env.geometry.Window = 16 << 10
	t.Cleanup(func() {
		zcopyFrom.Store(least)
		env.geometry.Window = window
	})
	a, b = upgraded(t)
	large := make([]byte, 1<<20)
	write(t, a, "x")
	if n, err := b.Read(large); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if !a.out.w.Wanted() {
		t.Skip("process_vm_readv is not permitted here, or Linux is older than 6.5")
	}
	return a, b
}

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// awaitAdvert waits until a's write sleeps with its advert out, or has it no more.
func awaitAdvert(a *Conn, want bool) {
	for out := !want; out != want; time.Sleep(time.Millisecond) {
		a.tx.take()
		out = a.out.lent != nil
		a.tx.mu.Unlock()
	}
}

// ZCP-1: reads of any size take an advert in parts, in order with what is before it
// and behind it.
func TestZCopyParts(t *testing.T) {
	a, b := advertising(t)
	want := append(noise(1000, 1), noise(3<<20, 2)...)
	go func() {
		a.Write(want[:1000])
		a.Write(want[1000:])
	}()
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		k, err := b.Read(got[n:min(len(got), n+(100<<10)+n%3000)])
		if n += k; err != nil {
			t.Fatal(n, err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes")
	}
	if s := b.Status().ZCopy.Read; s < 2<<20 || s != a.Status().ZCopy.Written {
		t.Errorf("%d bytes by ZCopy, the writer says %d", s, a.Status().ZCopy.Written)
	}
}

// ZCP-1: when a write returns, its memory is the program's again, and the count is
// what the reader gets, whatever ended it.
func TestZCopyCancel(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(a *Conn)
		want error
	}{
		"deadline":   {func(a *Conn) { a.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"CloseWrite": {func(a *Conn) { a.CloseWrite() }, syscall.EPIPE},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := advertising(t)
			lent := noise(1<<20, 3)
			want := bytes.Clone(lent)
			type result struct {
				n   int
				err error
			}
			done := make(chan result)
			go func() {
				n, err := a.Write(lent)
				clear(lent)
				done <- result{n, err}
			}()
			awaitAdvert(a, true)
			got := make([]byte, 200<<10)
			if _, err := io.ReadFull(b, got); err != nil {
				t.Fatal(err)
			}
			end.by(a)
			r := <-done
			if !errors.Is(r.err, end.want) || r.n < len(got) || r.n == len(lent) {
				t.Fatalf("%d bytes written, %v", r.n, r.err)
			}
			a.SetWriteDeadline(time.Time{})
			a.CloseWrite()
			rest, err := io.ReadAll(b)
			if got = append(got, rest...); err != nil || !bytes.Equal(got, want[:r.n]) {
				t.Errorf("%d bytes read, %v; %d were written", len(got), err, r.n)
			}
		})
	}
}

// A reader that may not copy, or whose calls are small, gets the bytes by the window.
func TestZCopyRefused(t *testing.T) {
	for name, refuse := range map[string]func(b *Conn){
		"not permitted": func(b *Conn) { b.ch.zcopy.Store(zcopyImpossible) },
		"small reads":   func(*Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := advertising(t)
			want := noise(1<<20, 4)
			go a.Write(want)
			awaitAdvert(a, true)
			refuse(b)
			got := make([]byte, len(want))
			for n, reads := 0, 0; n < len(got); reads++ {
				k, err := b.Read(got[n:min(len(got), n+5000)])
				if n += k; err != nil {
					t.Fatal(n, err)
				}
				if reads == 1 { // it has come to the advert, and does not like it
					awaitAdvert(a, false)
				}
			}
			if !bytes.Equal(got, want) {
				t.Error("other bytes")
			}
			if s := b.Status(); s.RMA.Read < 1<<19 {
				t.Errorf("%d bytes by the window", s.RMA.Read)
			}
		})
	}
}
