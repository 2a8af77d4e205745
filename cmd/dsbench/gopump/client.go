package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/directsockets"
)

// patience is how long the way to a lane may take.
const patience = 20 * time.Second

func (p *pump) length() time.Duration { return time.Duration(p.amount * float64(time.Second)) }

// warm does something, at least so long, until its bytes go by a lane if they have to.
func (p *pump) warm(c net.Conn, least time.Duration, do func() error) error {
	start := time.Now()
	for {
		if err := do(); err != nil {
			return err
		}
		took := time.Since(start)
		if took < least {
			continue
		}
		lanes, ok := c.(*directsockets.Conn)
		if !ok || p.with == "either" {
			return nil
		}
		s := lanes.Status()
		if s.WritesLane && (s.ReadsLane || p.mode == "stream") {
			return nil
		}
		if took > patience {
			return fmt.Errorf("no lane after %v: %v, %v", patience, s.State, s.Reason)
		}
	}
}

// sent is what a stream has moved.
type sent struct {
	rate   float64 // bytes a second
	all    int64
	before time.Duration // CPU time of this process when it began to count
	cpu    uint64        // of the server
}

func (p *pump) stream() (r result, err error) {
	all := make([]sent, p.streams)
	err = each(p.streams, func(i int) (err error) {
		all[i], err = p.send()
		return err
	})
	r.CPU = used() - all[0].before
	for _, s := range all {
		r.Rate += s.rate
		r.Bytes += s.all
		r.CPU += time.Duration(s.cpu)
	}
	return r, err
}

// each does something on n connections at a time.
func each(n int, do func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// send sends one stream.
func (p *pump) send() (s sent, err error) {
	mode := uint32(oneStream)
	if p.streams > 1 {
		mode = someStream
	}
	from, lap := pattern, int64(period)
	if p.memory > 0 {
		from, lap = patterned(p.memory), int64(p.memory)
	}
	c, err := p.open(mode)
	if err != nil {
		return s, err
	}
	defer c.Close()
	s.before = used()
	write := func() error {
		n, err := c.Write(from[s.all%lap:][:p.size])
		s.all += int64(n)
		return err
	}
	if err := p.warm(c, p.length()/10, write); err != nil {
		return s, err
	}
	if p.buffer {
		b := c.(*directsockets.Conn).Buffer(p.memory)
		defer b.Release()
		if !b.Registered() {
			return s, fmt.Errorf("no room for a buffer of %d bytes", p.memory)
		}
		copy(b.Bytes(), from)
		from = b.Bytes()
	}
	if p.memory > 0 {
		for s.all < warm {
			if err := write(); err != nil {
				return s, err
			}
		}
		s.before = used()
	}
	since, uncounted := time.Now(), s.all
	for end := since.Add(p.length()); time.Now().Before(end); {
		if err := write(); err != nil {
			return s, err
		}
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return s, err
	}
	var a answer
	if err := get(c, &a); err != nil {
		return s, fmt.Errorf("the server did not answer: %w", err)
	}
	s.rate, s.cpu = float64(s.all-uncounted)/time.Since(since).Seconds(), a.CPU
	if a.Wrong != 0 || int64(a.Bytes) != s.all {
		return s, fmt.Errorf("%w: %d of %d bytes arrived, in %d reads wrong ones", errWrong, a.Bytes, s.all, a.Wrong)
	}
	if p.memory > 0 {
		s.all -= uncounted
	}
	return s, nil
}

// A caller exchanges numbered messages on a connection.
type caller struct {
	c             net.Conn
	message, back []byte
	number        uint64
	all           bool // compare every byte

	split            bool // note the times of the calls
	writing, waiting time.Duration
}

func (p *pump) caller(c net.Conn) *caller {
	k := &caller{c: c, message: make([]byte, p.size), back: make([]byte, p.size), all: p.check}
	copy(k.message, pattern)
	return k
}

// call does one round trip.
func (k *caller) call() error {
	var number [8]byte
	binary.NativeEndian.PutUint64(number[:], k.number)
	n := copy(k.message, number[:])
	k.number++
	var begin, written time.Time
	if k.split {
		begin = time.Now()
	}
	if _, err := k.c.Write(k.message); err != nil {
		return err
	}
	if k.split {
		written = time.Now()
	}
	if _, err := io.ReadFull(k.c, k.back); err != nil {
		return fmt.Errorf("the server did not answer: %w", err)
	}
	if k.split {
		k.writing += written.Sub(begin)
		k.waiting += time.Since(written)
	}
	if k.all {
		n = len(k.message)
	}
	if !bytes.Equal(k.message[:n], k.back[:n]) {
		return fmt.Errorf("%w: an answer is not what was sent", errWrong)
	}
	return nil
}

func (p *pump) pingpong() (r result, err error) {
	c, err := p.open(echoes)
	if err != nil {
		return r, err
	}
	defer c.Close()
	k := p.caller(c)
	if err := p.warm(c, p.length()/10, k.call); err != nil {
		return r, err
	}
	k.split = p.split
	since := k.number
	r, err = p.times(k.call)
	r.Bytes = int64(k.number-since) * int64(p.size)
	r.Writing, r.Waiting = k.writing, k.waiting
	return r, err
}

func (p *pump) connect() (result, error) {
	return p.times(func() error {
		c, err := p.open(oneEcho)
		if err != nil {
			return err
		}
		defer c.Close()
		k := p.caller(c)
		for range p.rounds {
			if err := k.call(); err != nil {
				return err
			}
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			return fmt.Errorf("%w: more than was sent came back, or no end: %v", errWrong, err)
		}
		return nil
	})
}

// times does something for the length of the run and times each. With a rate, one
// that is late because the one before it was counts from when it was due; and what was
// due in the run is done behind its end, or a stall there would hide what it kept from being
// done. But a path too slow for that gets no more than the same time again.
func (p *pump) times(do func() error) (r result, err error) {
	r.Histogram = new(measure.Histogram)
	start := time.Now()
	end := start.Add(p.length())
	more := func(t, due time.Time) bool {
		if p.rate > 0 {
			return due.Before(end) && t.Before(end.Add(p.length()))
		}
		return t.Before(end)
	}
	due, t := start, start
	for more(t, due) || r.Histogram.Count() == 0 {
		from := t
		if p.rate > 0 {
			from = due
			if t.Before(due) { // how long the sleep took too long is not the path's doing
				sleep(due.Sub(t))
				from = time.Now()
			}
			due = due.Add(time.Duration(float64(time.Second) / p.rate))
		}
		if err := do(); err != nil {
			return r, err
		}
		t = time.Now()
		r.Histogram.Add(int64(t.Sub(from)))
		if p.pause > 0 {
			sleep(p.pause)
			t = time.Now()
		}
	}
	r.Rate = float64(r.Histogram.Count()) / t.Sub(start).Seconds()
	return r, nil
}

// sleep is exact, where Go's timers wait for whole milliseconds.
func sleep(d time.Duration) {
	for left := unix.NsecToTimespec(int64(d)); unix.Nanosleep(&left, &left) == unix.EINTR; {
	}
}

// requests has connections exchange messages, and counts when they all can.
func (p *pump) requests() (r result, err error) {
	all := make([]*caller, p.streams)
	for i := range all {
		c, err := p.open(echoes)
		if err != nil {
			return r, err
		}
		defer c.Close()
		all[i] = p.caller(c)
		if err := p.warm(c, 0, all[i].call); err != nil {
			return r, err
		}
	}
	if p.busy > 0 {
		all = all[p.streams-p.busy:]
	}
	var over atomic.Bool
	var done atomic.Int64
	theirs, err := p.serverUsed()
	if err != nil {
		return r, err
	}
	ours, start := used(), time.Now()
	ending := time.AfterFunc(p.length(), func() { over.Store(true) })
	defer ending.Stop()
	err = each(len(all), func(i int) error {
		before := all[i].number
		for !over.Load() {
			if err := all[i].call(); err != nil {
				return err
			}
		}
		done.Add(int64(all[i].number - before))
		return nil
	})
	if err != nil {
		return r, err
	}
	took := time.Since(start)
	ours = used() - ours
	now, err := p.serverUsed()
	r.Rate = float64(done.Load()) / took.Seconds()
	r.Bytes = done.Load() * int64(p.size)
	r.CPU = ours + time.Duration(now-theirs)
	return r, err
}

// exchanges does as many round trips as it is told.
func (p *pump) exchanges() (r result, err error) {
	c, err := p.open(echoes)
	if err != nil {
		return r, err
	}
	defer c.Close()
	k := p.caller(c)
	for start := time.Now(); k.number < uint64(p.amount); r.Rate = float64(k.number) / time.Since(start).Seconds() {
		if err := k.call(); err != nil {
			return r, err
		}
	}
	return r, nil
}
