package directsockets

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// copySize is the size of the pieces in which bytes from another source are copied: as much as a
// lane announces at once.
const copySize = 64 << 10

// ReadFrom writes what it reads from r. While the connection is on TCP, it sends a file with
// sendfile. On a connection that stays on TCP it does what a *net.TCPConn does, splice included.
// Otherwise it copies the bytes. It consumes exactly as much of a file as it has written.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	if c.begin(&c.tx) {
		n, err := c.tcp.ReadFrom(r)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	f, limit := fileOf(r)
	if f != nil {
		n, err = c.sendFile(f, limit)
	}
	c.tx.mu.Unlock()
	if f == nil {
		n, err = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{r}, make([]byte, copySize))
		return n, c.copyError("readfrom", err)
	}
	take(r, n)
	if !errors.Is(err, errCopy) {
		return n, c.copyError("readfrom", err)
	}
	ahead := &counter{r: r}
	k, err := io.CopyBuffer(struct{ io.Writer }{c}, ahead, make([]byte, copySize))
	if unsent := ahead.n - k; unsent > 0 {
		if _, cannot := f.Seek(-unsent, io.SeekCurrent); cannot == nil { // a pipe cannot seek
			take(r, -unsent)
		}
	}
	return n + k, c.copyError("readfrom", err)
}

// take counts bytes that went past a limited reader.
func take(r io.Reader, n int64) {
	if l, limited := r.(*io.LimitedReader); limited {
		l.N -= n
	}
}

// A counter counts the bytes read from r, which may be more than are written.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// copyError wraps an error of a copy, from either side, as package net does.
func (c *Conn) copyError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.tcp.LocalAddr(), Addr: c.tcp.RemoteAddr(), Err: err}
}

// fileOf returns the file behind a reader, if it is one, and how much of it to copy.
func fileOf(r io.Reader) (f *os.File, limit int64) {
	limit = 1<<63 - 1
	if l, ok := r.(*io.LimitedReader); ok {
		r, limit = l.R, l.N
	}
	f, _ = r.(*os.File)
	return f, limit
}

// errCopy means that the rest must be copied: the connection has left TCP, or the kernel cannot
// send from such a file.
var errCopy = errors.New("copy")

// sendFile sends up to limit bytes of a file by TCP. Unlike sendFile of package net it can be
// interrupted at any byte, to engage. The caller holds tx.mu.
func (c *Conn) sendFile(f *os.File, limit int64) (done int64, err error) {
	const most = 4 << 20 // in one call, as in package net
	from, err := f.SyscallConn()
	if err != nil {
		return 0, errCopy // reading it will report the error
	}
	for !c.engaged() {
		c.count()
		c.tx.enter()
		if c.closing.Load() {
			c.tx.leave()
			return done, errCopy // writing will report it
		}
		if c.tx.wanted.Load() > 0 {
			c.tx.leave()
			c.tx.yield()
			continue
		}
		var told error
		gone := from.Control(func(file uintptr) {
			err = c.raw.Write(func(socket uintptr) bool {
				for limit > 0 {
					n, e := unix.Sendfile(int(socket), int(file), nil, int(min(limit, most)))
					if n > 0 {
						c.tcpTx.Add(uint64(n))
						done += int64(n)
						limit -= int64(n)
					}
					if e == unix.EAGAIN {
						return false
					}
					if e != nil && e != unix.EINTR {
						told = e
						break
					}
					if n == 0 && e == nil {
						break // the end of the file
					}
				}
				return true
			})
		})
		rung := c.tx.leave()
		c.tx.yield()
		switch {
		case gone != nil:
			return done, errCopy
		case told == unix.EINVAL || told == unix.ENOSYS || told == unix.EOPNOTSUPP:
			return done, errCopy
		case told != nil:
			return done, os.NewSyscallError("sendfile", told)
		case err == nil:
			return done, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && rung && !c.tx.expired():
			continue
		case done == 0:
			return 0, errCopy // writing will report the error, as with package net
		case errors.Is(err, os.ErrDeadlineExceeded):
			return done, os.ErrDeadlineExceeded
		default:
			return done, net.ErrClosed
		}
	}
	return done, errCopy
}

// WriteTo reads up to the end of the stream and writes the bytes to w.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if c.begin(&c.rx) {
		n, err := c.tcp.WriteTo(w)
		c.tcpRx.Add(uint64(max(n, 0)))
		return n, err
	}
	c.rx.mu.Unlock()
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{c}, make([]byte, copySize))
	return n, c.copyError("writeto", err)
}

// WriteBuffers writes all buffers, as v.WriteTo does with a *net.TCPConn. Package net does not know
// a Conn, so v.WriteTo(c) calls Write for each buffer. On a lane that is no loss.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	if c.begin(&c.tx) {
		n, err := v.WriteTo(c.tcp)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	defer c.tx.mu.Unlock()
	return v.WriteTo(holder{c})
}

// A holder writes for a caller that already holds tx.mu.
type holder struct{ c *Conn }

func (h holder) Write(b []byte) (int, error) { return h.c.writeAll(b) }

var _ interface {
	net.Conn
	syscall.Conn
	io.ReaderFrom
	io.WriterTo
} = (*Conn)(nil)
