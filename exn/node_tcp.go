package exn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A TCPConn is a TCP connection of a [Node]. It behaves like [net.TCPConn].
type TCPConn struct {
	socket
	remote net.Addr
}

var _ net.Conn = (*TCPConn)(nil)

// newTCPConn makes a connection of a connected endpoint.
func newTCPConn(ep tcpip.Endpoint, queue *waiter.Queue, network string, node chan struct{}) *TCPConn {
	c := new(TCPConn)
	c.open(ep, queue, network, node)
	// An endpoint that was reset meanwhile has no addresses any more. Then errors show none.
	c.local, c.remote = &net.TCPAddr{}, &net.TCPAddr{}
	if a, err := ep.GetLocalAddress(); err == nil {
		c.local = net.TCPAddrFromAddrPort(addrPortOf(a))
	}
	if a, err := ep.GetRemoteAddress(); err == nil {
		c.remote = net.TCPAddrFromAddrPort(addrPortOf(a))
	}
	ep.SocketOptions().SetDelayOption(false) // TCP_NODELAY, as package net sets it
	return c
}

// RemoteAddr implements net.Conn.
func (c *TCPConn) RemoteAddr() net.Addr { return c.remote }

// Read implements net.Conn.
func (c *TCPConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, c.opError("read", c.remote, c.usable("read"))
	}
	into := tcpip.SliceWriter(b)
	n, err := c.readTo(&into)
	return n, c.opError("read", c.remote, err)
}

// readTo writes what has arrived to w, which must not block.
func (c *TCPConn) readTo(w io.Writer) (int, error) {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	var got tcpip.ReadResult
	failed, err := c.do(&c.read, func() (err tcpip.Error) {
		got, err = c.ep.Read(w, tcpip.ReadOptions{})
		return err
	})
	if err != nil {
		return 0, err
	}
	if failed == nil {
		c.ep.ModerateRecvBuf(got.Count)
		return got.Count, nil
	}
	return 0, c.failure("read", failed)
}

// failure returns the error of a call on a connection. After a Close, any error of the endpoint and
// any apparent end of the stream is reported as net.ErrClosed.
func (c *TCPConn) failure(call string, err tcpip.Error) error {
	select {
	case <-c.closed:
		return net.ErrClosed
	case <-c.node:
		return net.ErrClosed
	default:
	}
	if _, end := err.(*tcpip.ErrClosedForReceive); end {
		return io.EOF
	}
	return callError(call, err)
}

// Write implements net.Conn.
func (c *TCPConn) Write(b []byte) (n int, err error) {
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	var from bytes.Reader
	from.Reset(b)
	for first := true; first || from.Len() > 0; first = false {
		var failed tcpip.Error
		failed, err = c.do(&c.write, func() tcpip.Error {
			if len(b) == 0 {
				return nil
			}
			k, err := c.ep.Write(&from, tcpip.WriteOptions{})
			n += int(k)
			return err
		})
		if failed != nil {
			err = c.failure("write", failed)
		}
		if err != nil {
			return n, c.opError("write", c.remote, err)
		}
		from.Reset(b[n:]) // the endpoint may have read more than it accepted
	}
	return n, nil
}

// CloseRead shuts down the reading side.
func (c *TCPConn) CloseRead() error { return c.shutdown(tcpip.ShutdownRead) }

// CloseWrite shuts down the writing side: the peer reads the end of the stream.
func (c *TCPConn) CloseWrite() error { return c.shutdown(tcpip.ShutdownWrite) }

func (c *TCPConn) shutdown(how tcpip.ShutdownFlags) error {
	if err := c.usable("close"); err != nil {
		return err
	}
	if err := c.ep.Shutdown(how); err != nil {
		return c.opError("close", c.remote, c.failure("shutdown", err))
	}
	return nil
}

// SetNoDelay sets whether small writes are sent at once. By default they are.
func (c *TCPConn) SetNoDelay(on bool) error {
	c.ep.SocketOptions().SetDelayOption(!on)
	return c.usable("set")
}

// SetKeepAlive sets whether an idle connection is probed.
func (c *TCPConn) SetKeepAlive(on bool) error {
	c.ep.SocketOptions().SetKeepAlive(on)
	return c.usable("set")
}

// SetKeepAlivePeriod sets how long a connection must be idle before it is probed, and the time
// between probes.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	idle, interval := tcpip.KeepaliveIdleOption(d), tcpip.KeepaliveIntervalOption(d)
	for _, err := range []tcpip.Error{c.ep.SetSockOpt(&idle), c.ep.SetSockOpt(&interval)} {
		if err != nil {
			return c.opError("set", c.remote, c.failure("setsockopt", err))
		}
	}
	return c.usable("set")
}

// SetLinger sets what Close does with unsent data. For seconds < 0 it is sent in the background;
// for 0 the connection is reset.
func (c *TCPConn) SetLinger(seconds int) error {
	c.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: seconds >= 0, Timeout: time.Duration(max(seconds, 0)) * time.Second})
	return c.usable("set")
}

// A TCPListener accepts TCP connections to a [Node].
type TCPListener struct{ socket }

var _ net.Listener = (*TCPListener)(nil)

// backlog is Linux's default of net.core.somaxconn, which package net uses.
const backlog = 4096

// Accept implements net.Listener.
func (l *TCPListener) Accept() (net.Conn, error) {
	l.read.mu.Lock()
	defer l.read.mu.Unlock()
	var ep tcpip.Endpoint
	var queue *waiter.Queue
	failed, err := l.do(&l.read, func() (err tcpip.Error) {
		ep, queue, err = l.ep.Accept(nil)
		return err
	})
	if failed != nil {
		err = callError("accept", failed)
		if l.usable("accept") != nil {
			err = net.ErrClosed
		}
	}
	if err != nil {
		return nil, l.opError("accept", l.local, err)
	}
	return newTCPConn(ep, queue, l.network, l.node), nil
}

// Addr implements net.Listener.
func (l *TCPListener) Addr() net.Addr { return l.local }

func (n *Node) listenTCP(network string, at netip.AddrPort) (*TCPListener, error) {
	queue := new(waiter.Queue)
	ep, err := n.bound(tcp.ProtocolNumber, network, at, queue)
	if err != nil {
		return nil, err
	}
	if err := ep.Listen(backlog); err != nil {
		ep.Close()
		return nil, callError("listen", err)
	}
	l := new(TCPListener)
	l.open(ep, queue, network, n.net.done)
	if a, err := ep.GetLocalAddress(); err == nil {
		l.local = net.TCPAddrFromAddrPort(addrPortOf(a))
	}
	return l, nil
}

func (n *Node) dialTCP(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	queue := new(waiter.Queue)
	protocol := ipv4.ProtocolNumber
	if to.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	ep, failed := n.net.NewEndpoint(tcp.ProtocolNumber, protocol, queue)
	if failed != nil {
		return nil, callError("socket", failed)
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	failed = ep.Connect(fullAddress(to))
	if _, started := failed.(*tcpip.ErrConnectStarted); started {
		var err error
		select {
		case <-ready:
			failed = ep.LastError()
		case <-ctx.Done():
			err = ctxError(ctx)
		case <-n.net.done:
			err = net.ErrClosed
		}
		if err != nil {
			abort(ep)
			return nil, err
		}
	}
	if failed != nil {
		ep.Close()
		err := callError("connect", failed)
		if errors.Is(err, syscall.EPIPE) { // the node was closed meanwhile
			err = net.ErrClosed
		}
		return nil, err
	}
	return newTCPConn(ep, queue, network, n.net.done), nil
}

// abort closes an endpoint without waiting for its peer.
func abort(ep tcpip.Endpoint) {
	ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: true})
	ep.Close()
}
