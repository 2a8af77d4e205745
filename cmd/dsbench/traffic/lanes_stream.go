package traffic

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/directsockets"
)

// A laneStream is a stream by package directsockets: a goroutine for each connection.
type laneStream struct {
	*lanes
	size  int    // of a write
	bytes []byte // the pattern, and a write more to begin anywhere in it
}

func newLaneStream(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if p.Size == 0 {
		p.Size = block
	}
	l, err := newLanes(role, site, p)
	return &laneStream{l, p.Size, repeat(period + max(block, p.Size))}, err
}

// Run moves bytes for n milliseconds. What arrives between the end of the warm-up and that
// long later counts.
func (s *laneStream) Run(n int) (measure.Sample, error) {
	return s.run(func() (measure.Sample, error) { return s.move(n) })
}

func (s *laneStream) move(n int) (sample measure.Sample, err error) {
	connections := s.params.Streams
	if s.params.Both {
		connections *= 2
	}
	var all []*directsockets.Conn
	for range connections {
		c, err := s.connection(true)
		if err != nil {
			return sample, err
		}
		all = append(all, c)
	}
	var received atomic.Int64
	var over atomic.Bool
	ended := make(chan error, connections)
	start := time.Now()
	begin, end := span(s.params, n)
	receives := false
	for i, c := range all {
		forth := (i < s.params.Streams) != s.params.Reverse
		if forth == (s.role == measure.Lead) {
			go func() { ended <- s.send(c, &over) }()
		} else {
			receives = true
			go func() { ended <- s.receive(c, &received) }()
		}
	}
	since, before := time.Time{}, int64(0) // when counting began, what had been received
	if begin.Before(time.Now()) {
		since = start
	}
	begins, ends := time.After(time.Until(begin)), time.After(time.Until(end))
	for left := connections; left > 0; {
		select {
		case <-begins:
			if since.IsZero() {
				since, before = time.Now(), received.Load()
			}
		case <-ends:
			over.Store(true)
			sample.Rate = perSecond(received.Load()-before, time.Since(since))
		case failed := <-ended:
			left--
			if failed != nil && err == nil { // the others end with it
				err = failed
				over.Store(true)
				s.hangUp()
			}
		}
	}
	sample.Bytes = received.Load()
	if !over.Load() && !since.IsZero() { // the sender's clock was a little ahead, or it had a limit
		sample.Rate = perSecond(sample.Bytes-before, time.Since(since))
	}
	if err == nil && receives && sample.Rate == 0 {
		err = fmt.Errorf("traffic: nothing arrived from %v in the %v that count", s.there, end.Sub(begin))
	}
	for _, c := range all {
		s.end(c)
	}
	return sample, err
}

// send writes until it is over, and ends the stream.
func (s *laneStream) send(c *directsockets.Conn, over *atomic.Bool) error {
	for at := int64(0); !over.Load() && (s.params.Limit == 0 || at < s.params.Limit); at += int64(s.size) {
		if err := s.give(c, s.bytes[at%period:][:s.size]); err != nil {
			return err
		}
		s.site.Count(int64(s.size))
	}
	return c.CloseWrite()
}

// receive reads to the end of the stream, and looks at what it gets.
func (s *laneStream) receive(c *directsockets.Conn, received *atomic.Int64) error {
	buf := make([]byte, max(block, s.size))
	for at := int64(0); ; {
		n, err := c.Read(buf)
		if err := astray(buf[:n], s.bytes, at, s.params.Verify); err != nil {
			return err
		}
		at += int64(n)
		received.Add(int64(n))
		s.moved.Add(int64(n))
		s.site.Count(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("traffic: receive: %w", err)
		}
	}
}
