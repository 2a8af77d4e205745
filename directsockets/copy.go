package directsockets

import (
	"io"
	"net"

	"exnet/directsockets/status"
)

// copySize is that of the pieces in which bytes of another source are copied: as
// much as a lane announces at once.
const copySize = 64 << 10

// ReadFrom writes what r gives. A connection that stays on TCP does what a
// *net.TCPConn does, splice and sendfile included; else the bytes are copied.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if c.State() == status.TCP {
		n, err := c.tcp.ReadFrom(r)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	return io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{r}, make([]byte, copySize))
}

// WriteTo reads up to the end of the stream, and writes it to w.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if c.State() == status.TCP {
		n, err := c.tcp.WriteTo(w)
		c.tcpRx.Add(uint64(max(n, 0)))
		return n, err
	}
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{c}, make([]byte, copySize))
}

// WriteBuffers writes all buffers, as v.WriteTo does for a *net.TCPConn, which
// knows no other connections: of these v.WriteTo makes a Write for each buffer.
// That is no loss on a lane.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	if c.State() == status.TCP {
		n, err := v.WriteTo(c.tcp)
		c.tcpTx.Add(uint64(max(n, 0)))
		return n, err
	}
	return v.WriteTo(struct{ io.Writer }{c})
}
