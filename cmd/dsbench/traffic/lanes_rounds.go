package traffic

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/directsockets"
)

// A lanePingPong is a pingPong by package directsockets.
type lanePingPong struct {
	*lanes
	buf, sent []byte
	number    uint64
}

func newLanePingPong(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if p.Size < 1 {
		return nil, fmt.Errorf("traffic: no messages of %d bytes", p.Size)
	}
	l, err := newLanes(role, site, p)
	return &lanePingPong{lanes: l, buf: make([]byte, p.Size), sent: repeat(p.Size)}, err
}

// Run exchanges messages for n milliseconds.
func (p *lanePingPong) Run(n int) (measure.Sample, error) {
	return p.run(func() (sample measure.Sample, err error) {
		c, err := p.connection(true)
		if err != nil {
			return sample, err
		}
		defer p.end(c)
		if p.role == measure.Follow {
			return sample, p.echo(c, p.buf)
		}
		sample.Times = new(measure.Histogram)
		begin, end := span(p.params, n)
		for {
			start := time.Now()
			if start.After(end) || p.params.Limit > 0 && sample.Times.Count() >= uint64(p.params.Limit) {
				return sample, nil
			}
			p.number++
			if err := p.exchange(c, p.number, p.sent, p.buf); err != nil {
				return sample, err
			}
			if !start.Before(begin) {
				sample.Times.Add(int64(time.Since(start)))
			}
			if p.number%counted == 0 {
				p.site.Count(counted)
			}
		}
	})
}

// echo answers until the other side ends.
func (l *lanes) echo(c *directsockets.Conn, buf []byte) error {
	for {
		ok, err := l.take(c, buf)
		if err != nil || !ok {
			return err
		}
		if err := l.give(c, buf); err != nil {
			return err
		}
	}
}

// A laneConnect is a connect by package directsockets.
type laneConnect struct {
	*lanes
	buf, sent []byte
}

func newLaneConnect(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if p.Size < numberSize {
		return nil, fmt.Errorf("traffic: messages of %d bytes have no room for a number of %d", p.Size, numberSize)
	}
	l, err := newLanes(role, site, p)
	return &laneConnect{l, make([]byte, p.Size), repeat(p.Size)}, err
}

// Run makes connections for n milliseconds. A first one, over which nothing goes,
// lasts as long as the run, so that follow knows its end.
func (c *laneConnect) Run(n int) (measure.Sample, error) {
	return c.run(func() (sample measure.Sample, err error) {
		if c.role == measure.Follow {
			c.listener.SetDeadline(time.Time{}) // which has ended the run before
		}
		lasting, err := c.connection(false)
		if err != nil {
			return sample, err
		}
		defer c.end(lasting)
		if c.role == measure.Follow {
			return sample, c.serve(lasting)
		}
		return each(c.site, c.params, n, c.round)
	})
}

// round is one connection.
func (c *laneConnect) round(number uint64) error {
	conn, err := c.connection(true)
	if err != nil {
		return err
	}
	defer c.end(conn)
	if err := c.exchange(conn, number, c.sent, c.buf); err != nil {
		return err
	}
	if n, err := conn.Read(c.buf[:1]); n != 0 || err != io.EOF {
		return fmt.Errorf("traffic: connection %d did not end where it should: %d bytes more, %w", number, n, err)
	}
	return nil
}

// serve answers until the first connection ends.
func (c *laneConnect) serve(lasting *directsockets.Conn) error {
	go func() {
		lasting.Read(make([]byte, 1)) // however it ends
		c.listener.SetDeadline(time.Unix(1, 0))
	}()
	for {
		conn, err := c.connection(true)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		ok, err := c.take(conn, c.buf)
		if err == nil && ok {
			err = c.give(conn, c.buf)
		}
		c.end(conn)
		if err != nil {
			return err
		}
	}
}
