package directsockets

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// advertising returns two connections on their lanes, where writes above 64 KiB are advertised. The
// second one has read enough at once to invite adverts. However late it reads the rest, TCP does
// not carry it.
func advertising(t *testing.T) (a, b *Conn) {
	t.Helper()
	least, window, stuck := zcopyFrom.Swap(64<<10), env.geometry.Window, env.stuck
	env.geometry.Window, env.stuck = 16<<10, 0
	t.Cleanup(func() {
		zcopyFrom.Store(least)
		env.geometry.Window, env.stuck = window, stuck
	})
	a, b = upgraded(t)
	large := make([]byte, 1<<20)
	write(t, a, "x")
	if n, err := b.Read(large); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if a.out.w.Least() == 0 {
		t.Skip("process_vm_readv is not permitted here, or Linux is older than 6.5")
	}
	return a, b
}

// writing writes b meanwhile, and is over when the test is.
func writing(t *testing.T, a *Conn, b []byte) {
	done := make(chan struct{})
	go func() {
		a.Write(b)
		close(done)
	}()
	t.Cleanup(func() {
		a.Close()
		<-done
	})
}

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// awaitAdvert waits until a's write sleeps with its advert current, or until there is none.
func awaitAdvert(t *testing.T, a *Conn, want bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for out := !want; out != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("an advert is out: %v", out)
		}
		a.tx.take()
		out = a.out.lent != nil
		a.tx.mu.Unlock()
	}
}

// ZCP-1: reads of any size take an advert in parts, in order with what comes before and after it.
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

// ZCP-1: when a write returns, its memory belongs to the program again, and the count is what the
// reader gets, whatever ended the write.
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
			awaitAdvert(t, a, true)
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

// ZCP-1: a withdrawal that finds the reader busy is completed later, not forgotten: otherwise
// neither side would ever continue.
func TestZCopyWithdrawnWhileBusy(t *testing.T) {
	a, b := advertising(t)
	want := noise(1<<20, 5)
	writing(t, a, want)
	awaitAdvert(t, a, true)
	got := make([]byte, len(want))
	b.rx.mu.Lock()
	b.turn()
	k, _ := b.in.r.Read(got)
	m, hostile := b.in.r.Pull(got[k:][:1000], func(address uint64, p []byte) int {
		b.own.Shut.Store(1) // so that a wants to go back to TCP
		a.tx.wake()
		time.Sleep(20 * time.Millisecond)
		return readProcess(b.ch.pid, address, p)
	})
	b.in.r.Give()
	b.rx.mu.Unlock()
	if m != 1000 || hostile {
		t.Fatal(m, hostile)
	}
	b.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := io.ReadFull(b, got[k+m:]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes more, %v", n, err)
	}
}

// A reader that may not or cannot copy, or whose calls are small, gets all bytes through the
// window. A current advert is withdrawn.
func TestZCopyRefused(t *testing.T) {
	const large, small = 100 << 10, 5000
	again := func(b *Conn) { b.ch.zcopy.Store(zcopyUntried) }
	for _, c := range []struct {
		name   string
		read   int
		refuse func(t *testing.T, b *Conn)
	}{
		{"small reads", small, func(*testing.T, *Conn) {}},
		{"impossible before", large, func(_ *testing.T, b *Conn) { b.ch.zcopy.Store(zcopyImpossible) }},
		{"another user", large, func(_ *testing.T, b *Conn) { b.ch.uid++; again(b) }},
		{"no pidfd, as before Linux 6.5", large, func(t *testing.T, b *Conn) { become(t, b, -1); again(b) }},
		{"a process that may not be read", large, func(_ *testing.T, b *Conn) { b.ch.pid = nobody; again(b) }},
		{"the same, found out too late", large, func(_ *testing.T, b *Conn) { b.ch.pid = nobody }},
		{"a process that has ended, and whose number another has", large, func(t *testing.T, b *Conn) { become(t, b, deceased(t)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := advertising(t)
			want := noise(1<<20, 4)
			writing(t, a, want)
			awaitAdvert(t, a, true)
			b.rx.mu.Lock()
			c.refuse(t, b)
			b.rx.mu.Unlock()
			got := make([]byte, len(want))
			for n, reads := 0, 0; n < len(got); reads++ {
				k, err := b.Read(got[n:min(len(got), n+c.read)])
				if n += k; err != nil {
					t.Fatal(n, err)
				}
				if reads == 1 { // it has come to the advert, and does not like it
					awaitAdvert(t, a, false)
				}
			}
			if !bytes.Equal(got, want) {
				t.Error("other bytes")
			}
			most := uint64(0)
			if c.read == small {
				most = 2 * small // of the advert that it has come to, until it is withdrawn
			}
			if s := b.Status(); s.RMA.Read+s.VELO.Read+most < uint64(len(want)) || s.ZCopy.Read > most {
				t.Errorf("%d and %d bytes by the window and by slots, %d copied", s.RMA.Read, s.VELO.Read, s.ZCopy.Read)
			}
		})
	}
}

// nobody is a pid that no process can have.
const nobody = 1 << 22

// become makes b take another process for its peer's.
func become(t *testing.T, b *Conn, process int) {
	t.Helper()
	if err := unix.Close(b.ch.process); err != nil {
		t.Fatal(err)
	}
	b.ch.process = process
}

// deceased returns a pidfd of a process that has ended.
func deceased(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// ZCP-1: a writer withdraws because a reader has begun to read little at a time. It counts what the
// reader has taken meanwhile.
func TestZCopyLittleReads(t *testing.T) {
	a, b := advertising(t)
	const size, rounds = 100 << 10, 1500
	want := noise(size, 5)
	wrote := make(chan error, 1)
	go func() {
		for range rounds {
			if _, err := a.Write(want); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	r := rand.New(rand.NewPCG(5, 5))
	got := make([]byte, size)
	for round := range rounds {
		for n := 0; n < size; {
			most := 1 + r.IntN(500)
			if n == 0 {
				most = 64<<10 + r.IntN(20<<10)
			} else if r.IntN(20) == 0 {
				most = size
			}
			k, err := b.Read(got[n:min(n+most, size)])
			if err != nil {
				t.Fatal(round, n, err)
			}
			if !bytes.Equal(got[n:n+k], want[n:n+k]) {
				t.Fatalf("round %d: other bytes among %d from %d on", round, k, n)
			}
			n += k
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if n := b.Status().ZCopy.Read; n < rounds*size/4 {
		t.Errorf("%d of %d bytes by ZCopy: this says little about it", n, rounds*size)
	}
}
