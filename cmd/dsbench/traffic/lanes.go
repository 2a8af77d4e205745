package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/directsockets"
)

// A lanes is what the halves have in common whose connections are those of package
// directsockets. They run in goroutines that are bound to no thread, as programs that
// use that package do: a bound one costs a switch of threads for each wake-up.
//
// Whether bytes leave TCP is not theirs to decide, so each connection is asked at its
// end, and a run says what has become of all: [measure.Lanes].
type lanes struct {
	role     measure.Role
	site     *measure.Site
	params   measure.Params
	there    netip.AddrPort // of follow, for lead
	listener *directsockets.Listener
	moved    atomic.Int64 // grows while anything moves

	mu    sync.Mutex
	open  map[*directsockets.Conn]bool // those of the run; true: it counts
	tally *measure.Lanes
}

func newLanes(role measure.Role, site *measure.Site, p measure.Params) (*lanes, error) {
	l := &lanes{role: role, site: site, params: p, open: map[*directsockets.Conn]bool{}}
	if p.Ends[0].NetNS != "" || p.Ends[1].NetNS != "" {
		return nil, errors.New("traffic: lanes are of the namespace of the process")
	}
	if role == measure.Follow {
		at := netip.AddrPortFrom(p.Ends[1].Addr, uint16(p.Port))
		config := directsockets.ListenConfig{Lanes: directsockets.Options{Fabric: p.Dir}}
		listener, err := config.Listen(context.Background(), "tcp", at.String())
		if err != nil {
			return nil, fmt.Errorf("traffic: %w", err)
		}
		l.listener = listener.(*directsockets.Listener)
	}
	site.OnStop(func() {
		if l.listener != nil {
			l.listener.Close()
		}
		l.hangUp()
	})
	return l, nil
}

// Words tells the port.
func (l *lanes) Words() []uint64 {
	if l.listener == nil {
		return []uint64{0}
	}
	return []uint64{uint64(l.listener.Addr().(*net.TCPAddr).Port)}
}

// Meet learns it.
func (l *lanes) Meet(words []uint64) error {
	if len(words) != 1 || words[0] > 65535 {
		return fmt.Errorf("traffic: the other half says %v instead of its port", words)
	}
	l.there = netip.AddrPortFrom(l.params.Ends[1].Addr, uint16(words[0]))
	return nil
}

// Close closes what follow listens on.
func (l *lanes) Close() error {
	if l.listener != nil {
		l.listener.Close() // it may be closed
	}
	return nil
}

// connection makes the next connection of lead and follow; counts: it is to be told of.
func (l *lanes) connection(counts bool) (*directsockets.Conn, error) {
	var c net.Conn
	var err error
	if l.role == measure.Lead {
		d := directsockets.Dialer{Dialer: net.Dialer{Timeout: giveUp}, Lanes: directsockets.Options{Fabric: l.params.Dir}}
		c, err = d.Dial("tcp", l.there.String())
	} else {
		c, err = l.listener.Accept()
	}
	if err != nil {
		return nil, fmt.Errorf("traffic: %w", err)
	}
	conn := c.(*directsockets.Conn)
	l.mu.Lock()
	l.open[conn] = counts
	l.mu.Unlock()
	if l.site.Stopped() { // it was not there to be hung up
		conn.Close()
	}
	return conn, nil
}

// end closes a connection, and notes first what became of it.
func (l *lanes) end(c *directsockets.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[c] {
		l.tally.Add(c.Status().Socket)
	}
	delete(l.open, c)
	c.Close()
}

// hangUp ends what sleeps in a call of any connection.
func (l *lanes) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.Close()
	}
}

// run does something as long as bytes move, and tells of the connections.
func (l *lanes) run(do func() (measure.Sample, error)) (sample measure.Sample, err error) {
	l.tally = new(measure.Lanes)
	start, used := time.Now(), measure.CPUTime()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sample, err = do()
	}()
	stuck := l.watch(ended)
	for c := range l.open { // after an error
		l.end(c)
	}
	switch {
	case l.site.Stopped():
		err = measure.ErrStopped
	case stuck:
		err = fmt.Errorf("traffic: nothing moved to or from %v for %v", l.there, giveUp)
	}
	sample.CPU = float64(measure.CPUTime()-used) / float64(time.Since(start))
	sample.Lanes = l.tally
	return sample, err
}

// watch waits for the end, which it brings about when nothing has moved for too long.
func (l *lanes) watch(ended chan struct{}) (stuck bool) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	before, heard := int64(0), time.Now()
	for {
		select {
		case <-ended:
			return stuck
		case now := <-ticks.C:
			if moved := l.moved.Load(); moved != before {
				before, heard = moved, now
			}
			if now.Sub(heard) > giveUp {
				stuck = true
				if l.listener != nil {
					l.listener.SetDeadline(now) // for who waits in Accept
				}
				l.hangUp()
			}
		}
	}
}

// take reads a whole message; ok is false when the other side has ended before.
func (l *lanes) take(c net.Conn, b []byte) (ok bool, err error) {
	switch _, err := io.ReadFull(c, b); {
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("traffic: receive: %w", err)
	}
	l.moved.Add(1)
	return true, nil
}

// give writes a whole message.
func (l *lanes) give(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("traffic: send: %w", err)
	}
	l.moved.Add(1)
	return nil
}

// exchange has a message of that number come back.
func (l *lanes) exchange(c net.Conn, number uint64, sent, buf []byte) error {
	stamp(sent, number)
	if err := l.give(c, sent); err != nil {
		return err
	}
	ok, err := l.take(c, buf)
	if err == nil && !ok {
		err = fmt.Errorf("traffic: message %d had no answer", number)
	}
	if err != nil {
		return err
	}
	return same(number, sent, buf)
}
