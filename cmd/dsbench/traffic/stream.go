package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

const (
	// block is what iperf3 writes and reads at a time.
	block = 128 << 10

	// burst is how many blocks iperf3 moves on a connection that is ready
	// before it looks at the others again.
	burst = 10
)

// period is the length of what streams carry, over and over. It is a prime, so
// that a packet that is lost or doubled shifts it.
const period = 131071

// pattern is that, and a block more to write from anywhere in it.
var pattern = repeat(period + block)

// repeat is n bytes of the pattern.
func repeat(n int) []byte {
	b := make([]byte, min(n, period), n)
	rand.NewChaCha8([32]byte{}).Read(b) // never fails
	for len(b) < n {
		b = append(b, b[:min(len(b), n-len(b))]...)
	}
	return b
}

// A stream moves bytes over Streams connections from lead to follow, and with
// Both over as many from follow to lead.
type stream struct {
	*end
	size  int    // of a write
	buf   []byte // for a read
	bytes []byte // the pattern, and a write more to begin anywhere in it
	flows []flow
	polls []unix.PollFd
}

// A flow is one connection, used in one direction.
type flow struct {
	fd    int
	sends bool
	at    int64 // bytes moved so far
	done  bool
}

func newStream(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	e, err := newEnd(role, site, p)
	if err == nil {
		e.nagle = true // as iperf3: the tail of a write waits for the next
		err = e.bind(unix.SOCK_STREAM)
	}
	if p.Size == 0 {
		p.Size = block
	}
	return &stream{end: e, size: p.Size, buf: make([]byte, max(block, p.Size)), bytes: repeat(period + max(block, p.Size))}, err
}

// Run moves bytes for n milliseconds.
func (s *stream) Run(n int) (sample measure.Sample, err error) {
	defer func() {
		for _, f := range s.flows {
			unix.Close(f.fd)
		}
		s.flows = s.flows[:0]
	}()
	connections := s.params.Streams
	if s.params.Both {
		connections *= 2
	}
	for i := range connections {
		fd, err := -1, error(nil)
		if s.role == measure.Lead {
			fd, err = s.connect(unix.SOCK_STREAM)
		} else {
			fd, err = s.accept()
		}
		if err != nil {
			return sample, err
		}
		forth := (i < s.params.Streams) != s.params.Reverse
		s.flows = append(s.flows, flow{fd: fd, sends: forth == (s.role == measure.Lead)})
		if err := unix.SetNonblock(fd, true); err != nil {
			return sample, fmt.Errorf("traffic: %w", err)
		}
	}
	length := time.Duration(n) * time.Millisecond
	return s.move(s.warmUp(length), length)
}

// move moves bytes until the senders' time is over and everything has arrived.
// What arrives between the end of the warm-up and length later counts.
func (s *stream) move(warm, length time.Duration) (sample measure.Sample, err error) {
	start := time.Now()
	begin, end := start.Add(warm), start.Add(warm+length)
	heard := start             // when something last moved
	var counting, over bool    // inside the window, after it
	var since time.Time        // when counting began
	var before, received int64 // received until then; in all
	for left := len(s.flows); left > 0; {
		now, err := s.wait()
		if err != nil {
			return sample, err
		}
		if !counting && !now.Before(begin) {
			counting, since, before = true, now, received
		}
		if counting && !over && !now.Before(end) {
			over = true
			sample.Rate = perSecond(received-before, now.Sub(since))
		}
		moved := int64(0)
		for i := range s.flows {
			f := &s.flows[i]
			if f.done || s.polls[i].Revents == 0 {
				continue
			}
			was := f.at
			if f.sends {
				err = s.send(f, over)
			} else {
				err = s.receive(f)
				received += f.at - was
			}
			if err != nil {
				return sample, err
			}
			moved += f.at - was
			if f.done {
				left--
			}
		}
		if moved > 0 {
			heard = now
			s.site.Count(moved)
		} else if now.Sub(heard) > giveUp {
			return sample, fmt.Errorf("traffic: nothing moved between %v and %v for %v", s.here, s.there, giveUp)
		}
	}
	if counting && !over && received > before { // the sender's clock was a little ahead
		sample.Rate = perSecond(received-before, time.Since(since))
	}
	sample.Bytes = received
	receives := slices.ContainsFunc(s.flows, func(f flow) bool { return !f.sends })
	if receives && sample.Rate == 0 {
		return sample, fmt.Errorf("traffic: nothing arrived from %v in the %v that count", s.there, length)
	}
	return sample, nil
}

// perSecond is a rate; 0 where no time has passed, as when a half that was held up
// sees the beginning and the end of what counts at once.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// wait sleeps until a connection is ready, and tells the time.
func (s *stream) wait() (time.Time, error) {
	s.polls = s.polls[:0]
	for _, f := range s.flows {
		p := unix.PollFd{Fd: int32(f.fd), Events: unix.POLLIN}
		if f.sends {
			p.Events = unix.POLLOUT
		}
		if f.done {
			p.Fd = -1 // poll passes it over
		}
		s.polls = append(s.polls, p)
	}
	err := poll(s.polls, lookAgain)
	switch {
	case s.site.Stopped():
		err = measure.ErrStopped
	case errors.Is(err, unix.EINTR):
		err = nil
	}
	return time.Now(), err
}

// send writes up to a burst, or ends the flow.
func (s *stream) send(f *flow, last bool) error {
	if last || s.params.Limit > 0 && f.at >= s.params.Limit {
		f.done = true
		return unix.Shutdown(f.fd, unix.SHUT_WR)
	}
	for range burst {
		at := f.at % period
		n, err := write(f.fd, s.bytes[at:at+int64(s.size)])
		if err != nil {
			return pause("send", err)
		}
		f.at += int64(n)
	}
	return nil
}

// receive reads up to a burst and looks at both ends of what it got.
func (s *stream) receive(f *flow) error {
	for range burst {
		n, err := read(f.fd, s.buf)
		if err != nil {
			return pause("receive", err)
		}
		if n == 0 {
			f.done = true
			return nil
		}
		if err := astray(s.buf[:n], s.bytes, f.at, s.params.Verify); err != nil {
			return err
		}
		f.at += int64(n)
	}
	return nil
}

// astray says that these are not the bytes from there on of a stream of the pattern.
// Unless all are to be compared, their two ends are.
func astray(b, pattern []byte, from int64, all bool) error {
	const look = 16
	n := len(b)
	at, k := from%period, min(n, look)
	if all && !bytes.Equal(b, pattern[at:int(at)+n]) {
		return fmt.Errorf("traffic: wrong data among the %d bytes from byte %d of a stream", n, from)
	}
	tail := (from + int64(n-k)) % period
	if !bytes.Equal(b[:k], pattern[at:int(at)+k]) || !bytes.Equal(b[n-k:], pattern[tail:int(tail)+k]) {
		return fmt.Errorf("traffic: wrong data in the %d bytes from byte %d of a stream", n, from)
	}
	return nil
}

// pause passes over errors that say to wait.
func pause(what string, err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return fmt.Errorf("traffic: %s: %w", what, err)
}
