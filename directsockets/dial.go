package directsockets

import (
	"context"
	"net"
	"time"

	"exnet/directsockets/status"
)

// Dial is like net.Dial. For a TCP network it returns a *Conn.
func Dial(network, address string) (net.Conn, error) {
	return DialContext(context.Background(), network, address)
}

// DialContext is Dial with a context, which only affects dialling.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, network, address)
}

// DialTimeout is Dial with a timeout.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Dialer: net.Dialer{Timeout: timeout}}
	return d.Dial(network, address)
}

// A Dialer is a net.Dialer whose TCP connections look for lanes. Its DialContext fits
// http.Transport and database drivers.
type Dialer struct {
	net.Dialer
	Lanes Options
}

// Dial is like that of net.Dialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext is like that of net.Dialer.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return newConn(tcp, true, d.Lanes), nil
	}
	return c, nil
}

// Listen is like net.Listen. For a TCP network it returns a *Listener.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// A ListenConfig is a net.ListenConfig whose TCP connections look for lanes. It turns Multipath TCP
// off, which cannot have lanes.
type ListenConfig struct {
	net.ListenConfig
	Lanes Options
}

// Listen is like that of net.ListenConfig.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	config := lc.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.(*net.TCPListener); ok {
		l := &Listener{TCPListener: tcp, lanes: lc.Lanes}
		l.shown = show(l, lc.Lanes.Fabric)
		l.shown.State.Store(uint32(status.Listener))
		return l, nil
	}
	return l, nil
}

// A Listener is a net.TCPListener whose connections look for lanes.
type Listener struct {
	*net.TCPListener
	lanes Options
	shown *status.Record
}

// Close closes the listener, but not its connections.
func (l *Listener) Close() error {
	l.shown.State.Store(uint32(status.Closed))
	return l.TCPListener.Close()
}

// Accept waits for the next connection and returns it as a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	tcp, err := l.TCPListener.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return newConn(tcp, false, l.lanes), nil
}
