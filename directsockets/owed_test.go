package directsockets

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// Many unread bytes return to TCP, which has no room for them. They arrive as the reader reads,
// whatever the writer does meanwhile, and before everything written later.
func TestOwed(t *testing.T) {
	testNarrow.Store(true)
	t.Cleanup(func() { testNarrow.Store(false) })
	text := make([]byte, 200<<10)
	rand.NewChaCha8([32]byte{7}).Read(text)
	later := []byte("later")
	for name, way := range map[string]struct {
		before, after func(a *Conn) error // what the writer does
		more          []byte
	}{
		"it makes no call": {},
		"it reads":         {before: func(a *Conn) error { go a.Read(make([]byte, 1)); return nil }},
		"a write has given up": {after: func(a *Conn) error {
			a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := a.Write(later); !errors.Is(err, os.ErrDeadlineExceeded) {
				return errors.Join(errors.New("it did not wait"), err)
			}
			return nil
		}},
		"a write waits": {after: func(a *Conn) error { go a.Write(later); return nil }, more: later},
		"it is closed":  {after: func(a *Conn) error { go a.CloseWrite(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := upgraded(t)
			for _, c := range []*Conn{a, b} {
				c.SetReadBuffer(4 << 10)
				c.SetWriteBuffer(4 << 10)
			}
			if way.before != nil {
				if err := way.before(a); err != nil {
					t.Fatal(err)
				}
			}
			write(t, a, string(text))
			if err := b.stay(reasonTest); err != nil {
				t.Fatal(err)
			}
			a.tx.take()
			owes := a.out.w.HasAgain()
			a.tx.mu.Unlock()
			if !owes {
				t.Fatal("TCP had room for all of it")
			}
			if way.after != nil {
				if err := way.after(a); err != nil {
					t.Fatal(err)
				}
			}
			want := append(bytes.Clone(text), way.more...)
			got := make([]byte, len(want))
			b.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d of %d, %v, equal: %v", n, len(want), err, bytes.Equal(got[:n], want[:n]))
			}
		})
	}
}
