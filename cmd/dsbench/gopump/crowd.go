package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"exnet/cmd/dsbench/measure"
)

const (
	underWay = 100 // messages of many connections at a time
	known    = 20  // round trips after which a connection is no longer new
)

// step says how far a client of many connections is, and waits until who started it has seen it:
// package comparison follows it, as it does pump.
func step(what string) error {
	fmt.Println(what)
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return fmt.Errorf("nobody has seen that it is %s: %w", what, err)
	}
	return nil
}

// crowd makes the connections, each used and, if they have to, on a lane. They are callers
// when they are used: the buffers of those that wait would be counted as theirs.
func (p *pump) crowd() (all []net.Conn, err error) {
	if err := step("begun"); err != nil {
		return nil, err
	}
	for range p.streams {
		c, err := p.open(crowded)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		k := p.caller(c)
		for range known {
			if err := k.call(); err != nil {
				return nil, err
			}
		}
		if err := p.warm(c, 0, k.call); err != nil {
			return nil, err
		}
	}
	return all, step("opened")
}

// many has its connections exchange messages in turn, so that none is idle for long. A
// first tenth of the time does not count.
func (p *pump) many() (r result, err error) {
	all, err := p.crowd()
	if err != nil {
		return r, err
	}
	r.Histogram = new(measure.Histogram)
	start := time.Now()
	begin, end := start.Add(p.length()/10), start.Add(p.length()*11/10)
	turns := make(chan net.Conn, len(all)) // who waited longest is next
	for _, c := range all {
		turns <- c
	}
	var counts sync.Mutex
	err = each(min(underWay, len(all)), func(i int) error {
		k := p.caller(nil)
		k.number = uint64(i) << 32
		var sent int64
		var mine measure.Histogram
		for t := time.Now(); t.Before(end); {
			from := t
			k.c = <-turns
			if err := k.call(); err != nil {
				return err
			}
			turns <- k.c
			t = time.Now()
			sent++
			if !from.Before(begin) {
				mine.Add(int64(t.Sub(from)))
			}
		}
		counts.Lock()
		defer counts.Unlock()
		r.Bytes += sent * int64(p.size)
		r.Histogram.Merge(&mine)
		return nil
	})
	r.Rate = float64(r.Histogram.Count()) / time.Since(begin).Seconds()
	return r, err
}
