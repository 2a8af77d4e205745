package directsockets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A tcpConn has the methods that *net.TCPConn and *Conn have in common.
type tcpConn interface {
	net.Conn
	syscall.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(int) error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
	File() (*os.File, error)
	MultipathTCP() (bool, error)
}

// told formats an error as a program sees it, without ports.
func told(err error) string {
	if err == nil {
		return "nil"
	}
	text := fmt.Sprintf("%T", err)
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		text += fmt.Sprintf(" %s %s from %v to %v: %T", op.Op, op.Net, op.Source != nil, op.Addr != nil, op.Err)
		if call := (*os.SyscallError)(nil); errors.As(err, &call) {
			text += " of " + call.Syscall
		}
	}
	if number := syscall.Errno(0); errors.As(err, &number) {
		text += fmt.Sprintf(" errno %d", int(number))
	}
	for name, is := range map[string]error{"EOF": io.EOF, "closed": net.ErrClosed, "deadline": os.ErrDeadlineExceeded} {
		if errors.Is(err, is) {
			text += " " + name
		}
	}
	if timeout, ok := err.(net.Error); ok {
		text += fmt.Sprintf(" timeout %v", timeout.Timeout())
	}
	return text
}

// A program sees the same on our connections, on TCP and on a lane, as on those of package net:
// values, errors and their numbers.
func TestLikeNet(t *testing.T) {
	some := func(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), (n+15)/16)[:n] }
	for name, play := range map[string]func(say func(what string, result ...any), a, b tcpConn){
		"end": func(say func(string, ...any), a, b tcpConn) {
			n, err := b.Write(some(1000))
			say("write", n, err)
			say("close", b.Close())
			got, err := io.ReadAll(a)
			say("all", len(got), err)
			n, err = a.Read(make([]byte, 1))
			say("read", n, err)
			say("close again", b.Close())
		},
		"half": func(say func(string, ...any), a, b tcpConn) {
			say("closewrite", a.CloseWrite())
			n, err := a.Write([]byte("x"))
			say("write", n, err)
			n, err = b.Read(make([]byte, 1))
			say("end", n, err)
			n, err = b.Write([]byte("answer"))
			say("answer", n, err)
			n, err = io.ReadFull(a, make([]byte, 6))
			say("read", n, err)
			say("closeread", a.CloseRead())
			n, err = a.Read(make([]byte, 1))
			say("read after closeread", n, err)
		},
		"closed": func(say func(string, ...any), a, b tcpConn) {
			a.Close()
			n, err := a.Read(make([]byte, 1))
			say("read", n, err)
			n, err = a.Write([]byte("x"))
			say("write", n, err)
			n64, err := a.ReadFrom(strings.NewReader("x"))
			say("readfrom", n64, err)
			n64, err = a.WriteTo(io.Discard)
			say("writeto", n64, err)
			say("closeread", a.CloseRead())
			say("closewrite", a.CloseWrite())
			say("deadline", a.SetDeadline(time.Time{}))
			say("linger", a.SetLinger(1))
			say("nodelay", a.SetNoDelay(true))
			say("keepalive", a.SetKeepAlive(true))
			say("read buffer", a.SetReadBuffer(1<<16))
			raw, err := a.SyscallConn()
			say("syscallconn", err)
			if err == nil {
				say("control", raw.Control(func(uintptr) {}))
				say("raw read", raw.Read(func(uintptr) bool { return true }))
			}
			_, err = a.File()
			say("file", err != nil)
		},
		"deadline": func(say func(string, ...any), a, b tcpConn) {
			say("set", a.SetDeadline(time.Unix(1, 0)))
			n, err := a.Read(make([]byte, 1))
			say("read", n, err)
			n, err = a.Write([]byte("x"))
			say("write", n, err)
			say("set", a.SetReadDeadline(time.Now().Add(time.Millisecond)))
			n, err = a.Read(make([]byte, 1))
			say("asleep", n, err)
			say("none", a.SetDeadline(time.Time{}))
			n, err = a.Write([]byte("x"))
			say("write", n, err)
			n, err = b.Read(make([]byte, 1))
			say("read", n, err)
		},
		"reset": func(say func(string, ...any), a, b tcpConn) {
			say("linger", b.SetLinger(0))
			say("close", b.Close())
			for range 3 {
				n, err := a.Read(make([]byte, 1))
				say("read", n, err)
			}
			n, err := a.Write([]byte("x"))
			say("write", n, err)
		},
		"empty": func(say func(string, ...any), a, b tcpConn) {
			n, err := a.Write(nil)
			say("write", n, err)
			n, err = a.Read(nil)
			say("read", n, err)
			b.Close()
			n, err = a.Read(make([]byte, 1))
			say("end", n, err)
			n, err = a.Read(nil)
			say("read nothing of nothing", n, err)
		},
		"copies": func(say func(string, ...any), a, b tcpConn) {
			n, err := a.ReadFrom(bytes.NewReader(some(100_000)))
			say("readfrom", n, err)
			n, err = a.ReadFrom(io.LimitReader(bytes.NewReader(some(100_000)), 10))
			say("limited", n, err)
			n, err = (&net.Buffers{some(1000), nil, some(20)}).WriteTo(a)
			say("buffers", n, err)
			n, err = a.ReadFrom(io.MultiReader(strings.NewReader("x"), &failing{}))
			say("failing source", n, err)
			a.CloseWrite()
			var got bytes.Buffer
			n, err = b.WriteTo(&got)
			say("writeto", n, err, bytes.Equal(got.Bytes(), append(append(append(append(some(100_000), some(10)...), some(1000)...), some(20)...), 'x')))
			b.Write([]byte("back"))
			_, err = a.WriteTo(&failing{})
			say("failing sink", err)
		},
		"a file, too late": func(say func(string, ...any), a, b tcpConn) {
			f, err := os.Open("likenet_test.go")
			if err != nil {
				say("open", err)
				return
			}
			defer f.Close()
			a.SetDeadline(time.Unix(1, 0))
			n, err := a.ReadFrom(f)
			say("late", n, err)
		},
		"a file, and an end that is closed": func(say func(string, ...any), a, b tcpConn) {
			f, err := os.Open("likenet_test.go")
			if err != nil {
				say("open", err)
				return
			}
			f.Close()
			n, err := a.ReadFrom(f)
			say("closed", n, err)
			if f, err = os.Open("likenet_test.go"); err != nil {
				say("open", err)
				return
			}
			defer f.Close()
			a.Close()
			n, err = a.ReadFrom(f)
			say("both", n, err)
		},
		"options": func(say func(string, ...any), a, b tcpConn) {
			say("nodelay", a.SetNoDelay(false), "keepalive", a.SetKeepAlive(true), a.SetKeepAlivePeriod(20*time.Second))
			multipath, err := a.MultipathTCP()
			say("multipath", multipath, err)
			raw, err := a.SyscallConn()
			say("syscallconn", err)
			say("control", raw.Control(func(fd uintptr) {
				for _, option := range [][2]int{{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}} {
					v, err := unix.GetsockoptInt(int(fd), option[0], option[1])
					say("option", v, err)
				}
			}))
		},
		"raw": func(say func(string, ...any), a, b tcpConn) {
			b.Write([]byte("unread"))
			raw, _ := a.SyscallConn()
			got := make([]byte, 6)
			for done := 0; done < len(got); {
				err := raw.Read(func(fd uintptr) bool {
					n, err := unix.Read(int(fd), got[done:])
					done += max(n, 0)
					return err != unix.EAGAIN
				})
				if err != nil {
					say("read", err)
					return
				}
			}
			say("read", string(got))
			say("write", raw.Write(func(fd uintptr) bool { _, err := unix.Write(int(fd), []byte("raw")); return err != unix.EAGAIN }))
			n, err := io.ReadFull(b, got[:3])
			say("arrived", n, err, string(got[:3]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(a, b tcpConn) (said []string) {
				defer a.Close()
				defer b.Close()
				play(func(what string, result ...any) {
					for _, r := range result {
						if err, is := r.(error); is || r == nil {
							r = told(err)
						}
						what += fmt.Sprint(" ", r)
					}
					said = append(said, what)
				}, a, b)
				return said
			}
			want := run(plainPair(t))
			for state, made := range map[string]func() (a, b *Conn){
				"never upgraded":     func() (a, b *Conn) { return pipe(t, Options{Off: true}) },
				"not upgraded (yet)": func() (a, b *Conn) { return pipe(t, Options{Fabric: fabric(t)}) },
				"on a lane":          func() (a, b *Conn) { return upgraded(t) },
			} {
				a, b := made()
				if got := run(a, b); !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\n%s\nof package net:\n%s", state, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

type failing struct{}

var errFailing = errors.New("out of order")

func (*failing) Read([]byte) (int, error)  { return 0, errFailing }
func (*failing) Write([]byte) (int, error) { return 0, errFailing }

// plainPair returns two connections of package net.
func plainPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}
