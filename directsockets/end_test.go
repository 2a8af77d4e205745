package directsockets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
)

// upgraded returns two connections that are on their lanes in both directions.
func upgraded(t testing.TB) (a, b *Conn) {
	t.Helper()
	a, b = pipe(t, Options{Fabric: fabric(t)})
	warm(t, a, b)
	return a, b
}

func read(t *testing.T, c *Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

func write(t *testing.T, c *Conn, text string) {
	t.Helper()
	if n, err := c.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func TestHalfClose(t *testing.T) {
	a, b := upgraded(t)
	write(t, a, "last")
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	read(t, b, "last")
	if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("after the end: %d, %v", n, err)
	}
	write(t, b, "answer") // by TCP: who has the peer's end cannot know of its death else
	read(t, a, "answer")
	if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after CloseWrite: %v", err)
	}
	b.Close()
	if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after both ends: %d, %v", n, err)
	}
}

// As with TCP, closing with unread bytes resets, and so does linger 0.
func TestReset(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, a, b *Conn){
		"unread": func(t *testing.T, a, b *Conn) {
			write(t, a, "not read")
			b.Close()
		},
		"linger 0": func(t *testing.T, a, b *Conn) {
			b.SetLinger(0)
			b.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := upgraded(t)
			end(t, a, b)
			_, err := a.Read(make([]byte, 1))
			var op *net.OpError
			if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" || op.Addr == nil {
				t.Errorf("read: %v", err)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write: %v", err)
			}
		})
	}
}

// A close wakes a reader and a writer that sleep.
func TestCloseWakes(t *testing.T) {
	for _, own := range []bool{true, false} {
		a, b := upgraded(t)
		var sleepers sync.WaitGroup
		sleepers.Go(func() {
			_, err := a.Read(make([]byte, 1))
			if own && !errors.Is(err, net.ErrClosed) || !own && !errors.Is(err, syscall.ECONNRESET) && err != io.EOF {
				t.Errorf("own %v: read: %v", own, err)
			}
		})
		sleepers.Go(func() {
			for {
				if _, err := a.Write(make([]byte, 100<<10)); err != nil {
					if own && !errors.Is(err, net.ErrClosed) || !own && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
						t.Errorf("own %v: write: %v", own, err)
					}
					return
				}
			}
		})
		for a.Status().RMA.Written < 200<<10 { // the window is full
			time.Sleep(time.Millisecond)
		}
		if own {
			a.Close()
			if err := a.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		} else {
			b.Close()
		}
		sleepers.Wait()
	}
}

// If two goroutines close a connection at the same time, the first one closes it, even if the
// second returns earlier.
func TestClosesAtATime(t *testing.T) {
	a, b := upgraded(t)
	a.tx.mu.Lock()
	first := make(chan error)
	go func() { first <- a.Close() }()
	for !a.closing.Load() {
		runtime.Gosched()
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	a.tx.mu.Unlock()
	if err := <-first; err != nil {
		t.Errorf("first close: %v", err)
	}
	if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the close: %d, %v", n, err)
	}
}

// A deadline that is moved while a call sleeps takes effect at once.
func TestDeadlineMoves(t *testing.T) {
	a, b := upgraded(t)
	for _, c := range []*Conn{a, b} { // the other way round as well
		c.SetReadDeadline(time.Now().Add(time.Hour))
		done := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			done <- err
		}()
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		c.SetReadDeadline(time.Time{})
	}
	write(t, a, "still there")
	read(t, b, "still there")
}

// An operation that needs the TCP socket returns the connection to TCP, with everything unread, and
// neither end notices.
func TestBackToTCP(t *testing.T) {
	for name, leave := range map[string]func(c *Conn) error{
		"File": func(c *Conn) error {
			f, err := c.File()
			if err == nil {
				f.Close()
			}
			return err
		},
		"SyscallConn": func(c *Conn) error {
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			return raw.Write(func(uintptr) bool { return true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := upgraded(t)
			text := strings.Repeat("unread ", 2000)
			write(t, a, text)
			read(t, b, text[:10])
			go a.Read(make([]byte, 1)) // as programs do
			if err := leave(b); err != nil {
				t.Fatal(err)
			}
			if s := b.Status(); s.State != status.TCP || s.Reason != reasonRaw {
				t.Errorf("%+v", s)
			}
			read(t, b, text[10:])
			write(t, b, "x")
			write(t, a, text)
			read(t, b, text)
		})
	}
}

// Options concern the socket and leave the lane alone.
func TestOptions(t *testing.T) {
	a, b := upgraded(t)
	raw, err := a.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		a.SetNoDelay(false), a.SetKeepAlive(true), a.SetKeepAlivePeriod(time.Minute), a.SetReadBuffer(1 << 16),
		a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}), a.SetWriteBuffer(1 << 16), a.SetLinger(5),
		raw.Control(func(uintptr) {}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	write(t, a, "x")
	read(t, b, "x")
	if !a.Status().Upgraded() || a.LocalAddr().String() != b.RemoteAddr().String() {
		t.Errorf("%+v", a.Status())
	}
}

func TestCopies(t *testing.T) {
	a, b := upgraded(t)
	want := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(want)
	got := new(bytes.Buffer)
	var wait sync.WaitGroup
	wait.Go(func() {
		if n, err := b.WriteTo(got); err != nil || n != 3*int64(len(want)) {
			t.Errorf("WriteTo: %d, %v", n, err)
		}
	})
	if n, err := a.ReadFrom(bytes.NewReader(want)); err != nil || n != int64(len(want)) {
		t.Errorf("ReadFrom: %d, %v", n, err)
	}
	v := net.Buffers{want[:1000], want[1000:]}
	if n, err := v.WriteTo(a); err != nil || n != int64(len(want)) {
		t.Errorf("net.Buffers: %d, %v", n, err)
	}
	v = net.Buffers{want[:1], want[1:]}
	if n, err := a.WriteBuffers(&v); err != nil || n != int64(len(want)) {
		t.Errorf("WriteBuffers: %d, %v", n, err)
	}
	a.CloseWrite()
	wait.Wait()
	if !bytes.Equal(got.Bytes(), bytes.Repeat(want, 3)) {
		t.Error("something else arrived")
	}
}

// If bytes are there, a call makes no allocation and no system call.
func TestNoAllocation(t *testing.T) {
	a, b := upgraded(t)
	x := make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() {
		a.Write(x)
		io.ReadFull(b, x)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A program can ask why a connection is on TCP.
func TestReasons(t *testing.T) {
	// where no other case's server has used the port
	own := func() Options { return Options{Fabric: fabric(t)} }
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dial, listen Options
		want         status.Reason
	}{
		"off":                 {Options{Off: true}, own(), reasonSetting},
		"plain peer":          {own(), Options{Off: true}, reasonNoPeer},
		"directory of all":    {Options{Fabric: open}, own(), reasonDirectory},
		"no directory at all": {Options{Fabric: "/proc/nowhere"}, own(), reasonDirectory},
		"another fabric":      {own(), own(), reasonNoPeer},
		"a file for a fabric": {Options{Fabric: "/proc/self/exe"}, own(), reasonDirectory},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := (&ListenConfig{Lanes: c.listen}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if s, err := l.Accept(); err == nil {
					// Not spliced: package net keeps the pipes.
					io.Copy(struct{ io.Writer }{s}, struct{ io.Reader }{s})
					s.Close()
				}
			}()
			d, err := (&Dialer{Lanes: c.dial}).Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			// It takes some looks and some time until an end says that nobody has shown up.
			calls := uint64(0)
			for deadline := time.Now().Add(time.Minute); calls < 200 || d.(*Conn).Status().Reason == 0 && time.Now().Before(deadline); calls++ {
				write(t, d.(*Conn), "x")
				read(t, d.(*Conn), "x")
			}
			if s := d.(*Conn).Status(); s.Reason != c.want || s.Upgraded() || s.TCP.Read != calls {
				t.Errorf("%v, %+v", s.Reason, s)
			}
		})
	}
}

// The reasons have the numbers of ext-ds.md and the C library.
func TestReasonNames(t *testing.T) {
	for r, name := range map[status.Reason]string{
		reasonSetting: "setting", reasonDirectory: "directory", reasonAddress: "address", reasonProof: "proof",
		reasonVersion: "version", reasonMemory: "memory", reasonFiles: "files", reasonLanes: "lanes",
		reasonUncounted: "uncounted bytes", reasonOption: "option", reasonPeerGone: "peer gone", reasonTripwire: "tripwire",
		reasonHostile: "hostile memory", reasonTest: "test", reasonRefused: "refused by peer", reasonRaw: "raw system call", reasonPolicy: "policy",
		reasonBrief: "short connections", reasonNAT: "nat", reasonUnread: "unread",
	} {
		if r.String() != name {
			t.Errorf("reason %d is %q, want %q", r, r, name)
		}
	}
}

// A peer that leaves the lane gets an answer although the program makes no call.
func TestAnswersWhileIdle(t *testing.T) {
	a, b := upgraded(t)
	text := strings.Repeat("unread ", 2000)
	write(t, a, text)
	if err := b.stay(reasonTest); err != nil { // nobody is in a call on a
		t.Fatal(err)
	}
	read(t, b, text)
}

// A file is sent whole, whenever the lane comes, and pipes are copied.
func TestSendsFiles(t *testing.T) {
	want := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{2}).Read(want)
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"never": {Off: true}, "in the middle": {Fabric: fabric(t)}, "before": {Fabric: fabric(t)}} {
		t.Run(name, func(t *testing.T) {
			a, b := pipe(t, o)
			if name == "before" {
				warm(t, a, b)
			}
			go func() {
				defer a.CloseWrite()
				f, err := os.Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for _, part := range []int64{1, 1000, 1 << 20} {
					if n, err := a.ReadFrom(io.LimitReader(f, part)); n != part || err != nil {
						t.Errorf("%d of %d, %v", n, part, err)
					}
					for range 10 { // busy, so a lane may come
						a.Write([]byte("-"))
					}
				}
				if _, err := a.ReadFrom(f); err != nil {
					t.Error(err)
				}
				r, w, err := os.Pipe()
				if err != nil {
					t.Error(err)
					return
				}
				go func() { w.Write([]byte("piped")); w.Close() }()
				if n, err := a.ReadFrom(r); n != 5 || err != nil {
					t.Errorf("pipe: %d, %v", n, err)
				}
				r.Close()
			}()
			got, err := io.ReadAll(b)
			dashes := []byte("----------")
			all := slices.Concat(want[:1], dashes, want[1:1001], dashes, want[1001:1001+1<<20], dashes, want[1001+1<<20:], []byte("piped"))
			if err != nil || !bytes.Equal(got, all) {
				t.Errorf("%d bytes of %d, %v", len(got), len(all), err)
			}
		})
	}
}

// A program that shuts down reading before there is a lane sees the end on its own side; its peer
// does not.
func TestShutDownBeforeTheLane(t *testing.T) {
	for name, shut := range map[string]func(c *Conn) error{
		"CloseRead": (*Conn).CloseRead,
		"by the descriptor": func(c *Conn) (err error) {
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			return errors.Join(raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_RD) }), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pipe(t, Options{Fabric: fabric(t)})
			if err := shut(a); err != nil {
				t.Fatal(err)
			}
			got := make(chan int64, 1)
			go func() {
				n, _ := io.Copy(io.Discard, b) // an error is seen where it is sent
				got <- n
			}()
			sent := int64(0)
			for begun := time.Now(); !a.Status().WritesLane && time.Since(begun) < 20*time.Second; {
				n, err := a.Write(make([]byte, 2000))
				if err != nil {
					t.Fatalf("after %d bytes: %v; %+v", sent, err, a.Status())
				}
				sent += int64(n)
			}
			for range 100 {
				n, err := a.Write(make([]byte, 2000))
				if err != nil {
					t.Fatalf("after %d bytes, by the lane: %v; %+v", sent, err, a.Status())
				}
				sent += int64(n)
				time.Sleep(100 * time.Microsecond) // by now each end knows what the kernel says
			}
			if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("%d, %v; it is shut down", n, err)
			}
			if !a.Status().WritesLane {
				t.Errorf("no lane: %+v", a.Status())
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if n := <-got; n != sent {
				t.Errorf("%d of %d bytes came", n, sent)
			}
		})
	}
}

// If a write deadline lets only a part of a file be sent, the file's position is at the end of that
// part, and the next call continues there.
func TestCopyOfAFileGoesOn(t *testing.T) {
	want := make([]byte, 24<<20)
	rand.NewChaCha8([32]byte{3}).Read(want)
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	const whole = 20 << 20 // of it
	for _, lane := range []bool{false, true} {
		for _, limited := range []bool{false, true} {
			t.Run(fmt.Sprintf("lane %v limited %v", lane, limited), func(t *testing.T) {
				a, b := pipe(t, Options{Fabric: fabric(t)})
				if lane {
					warm(t, a, b)
				}
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				var r io.Reader = f
				all := want
				if limited {
					r, all = io.LimitReader(f, whole), want[:whole]
				}
				a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				n, err := a.ReadFrom(r)
				if at, _ := f.Seek(0, io.SeekCurrent); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || at != n {
					t.Errorf("%d bytes, %v, and the file is at %d", n, err, at)
				}
				a.SetWriteDeadline(time.Time{})
				go func() {
					k, err := a.ReadFrom(r)
					if err != nil || n+k != int64(len(all)) {
						t.Errorf("%d and %d of %d bytes, %v", n, k, len(all), err)
					}
					a.CloseWrite()
				}()
				if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, all) {
					t.Errorf("%d bytes of %d came, %v", len(got), len(all), err)
				}
			})
		}
	}
}

// The garbage collector closes a connection that nobody refers to, as in package net.
func TestDropped(t *testing.T) {
	dir := fabric(t)
	b := func() *Conn {
		a, b, err := connect(Options{Fabric: dir})
		if err != nil {
			t.Fatal(err)
		}
		warm(t, a, b)
		write(t, a, "last")
		return b
	}()
	defer b.Close()
	read(t, b, "last")
	ended := make(chan error, 1)
	b.SetReadDeadline(time.Now().Add(20 * time.Second))
	go func() {
		_, err := b.Read(make([]byte, 1))
		ended <- err
	}()
	for {
		runtime.GC()
		select {
		case err := <-ended:
			if err != io.EOF {
				t.Errorf("after the other end was dropped: %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
