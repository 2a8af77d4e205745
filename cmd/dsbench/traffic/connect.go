package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A connect has lead make a connection for each message of Size bytes, which follow
// echoes and then closes. It closes first, so that the ports of lead are free at once.
type connect struct {
	*end
	buf, sent []byte
}

func newConnect(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if p.Size < numberSize {
		return nil, fmt.Errorf("traffic: messages of %d bytes have no room for a number of %d", p.Size, numberSize)
	}
	e, err := newEnd(role, site, p)
	if err == nil {
		err = e.bind(unix.SOCK_STREAM)
	}
	return &connect{e, make([]byte, p.Size), repeat(p.Size)}, err
}

// Run makes connections for n milliseconds. A first one, over which nothing goes,
// lasts as long as the run, so that follow knows its end.
func (c *connect) Run(n int) (sample measure.Sample, err error) {
	if c.role == measure.Follow {
		return sample, c.serve()
	}
	lasting, err := c.connect(unix.SOCK_STREAM)
	if err != nil {
		return sample, err
	}
	defer unix.Close(lasting)
	return each(c.site, c.params, n, c.round)
}

// each makes rounds for n milliseconds, or as many as there may be, and times those that count.
func each(site *measure.Site, p measure.Params, n int, round func(number uint64) error) (sample measure.Sample, err error) {
	sample.Times = new(measure.Histogram)
	begin, end := span(p, n)
	var since time.Time
	for number := uint64(0); ; number++ {
		start := time.Now()
		if start.After(end) || p.Limit > 0 && sample.Times.Count() >= uint64(p.Limit) {
			sample.Rate = perSecond(int64(sample.Times.Count()), start.Sub(since))
			return sample, nil
		}
		if since.IsZero() && !start.Before(begin) {
			since = start
		}
		if err := round(number); err != nil {
			return sample, err
		}
		site.Count(1)
		if !since.IsZero() {
			sample.Times.Add(int64(time.Since(start)))
		}
	}
}

// round is one connection.
func (c *connect) round(number uint64) error {
	fd, err := c.connect(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	binary.LittleEndian.PutUint64(c.sent, number)
	if err := c.write(fd, c.sent); err != nil {
		return err
	}
	ok, err := c.readAll(fd, c.buf)
	if err == nil && (!ok || !bytes.Equal(c.buf, c.sent)) {
		err = fmt.Errorf("traffic: wrong data: connection %d answered with something else, or too little", number)
	}
	if err != nil {
		return err
	}
	if more, err := c.readAll(fd, c.buf[:1]); err != nil || more {
		return fmt.Errorf("traffic: connection %d did not end where it should: more %v, %w", number, more, err)
	}
	return nil
}

// serve answers until the first connection ends.
func (c *connect) serve() error {
	lasting, err := c.accept()
	if err != nil {
		return err
	}
	defer unix.Close(lasting)
	for {
		polls := []unix.PollFd{{Fd: int32(c.bound), Events: unix.POLLIN}, {Fd: int32(lasting), Events: unix.POLLIN}}
		if _, err := unix.Poll(polls, int(lookAgain.Milliseconds())); err != nil && err != unix.EINTR {
			return fmt.Errorf("traffic: %w", err)
		}
		switch {
		case c.site.Stopped():
			return measure.ErrStopped
		case polls[0].Revents != 0:
			fd, err := c.accept()
			if err != nil {
				return err
			}
			ok, err := c.readAll(fd, c.buf)
			if err == nil && ok {
				err = c.write(fd, c.buf)
			}
			unix.Close(fd)
			if err != nil {
				return err
			}
		case polls[1].Revents != 0:
			return nil
		}
	}
}
