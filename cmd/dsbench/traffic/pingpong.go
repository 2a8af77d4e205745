package traffic

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A pingPong has follow echo messages of Size bytes, one at a time.
type pingPong struct {
	*end
	buf   []byte
	times []float64
}

func newPingPong(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	const number = 8
	if p.Size < number {
		return nil, fmt.Errorf("traffic: messages of %d bytes have no room for a number of %d", p.Size, number)
	}
	e, err := newEnd(role, site, p)
	if err == nil {
		err = e.bind(unix.SOCK_STREAM)
	}
	return &pingPong{end: e, buf: make([]byte, p.Size)}, err
}

// Run exchanges messages for n milliseconds, or with a pause n of them.
func (p *pingPong) Run(n int) (sample measure.Sample, err error) {
	fd := -1
	if p.role == measure.Lead {
		fd, err = p.connect(unix.SOCK_STREAM)
	} else {
		fd, err = p.accept()
	}
	if err != nil {
		return sample, err
	}
	defer unix.Close(fd)
	if p.role == measure.Follow {
		return sample, p.echo(fd)
	}
	p.times = p.times[:0]
	if pause := p.params.Pause; pause > 0 {
		for i := range n + 1 { // the first opens the connection at the other side
			if err := p.sleep(pause); err != nil {
				return sample, err
			}
			if err := p.round(fd, i > 0); err != nil {
				return sample, err
			}
		}
	} else {
		length := time.Duration(n) * time.Millisecond
		begin := time.Now().Add(warmUp(length))
		for end := begin.Add(length); ; {
			now := time.Now()
			if now.After(end) {
				break
			}
			if err := p.round(fd, now.After(begin)); err != nil {
				return sample, err
			}
		}
	}
	sample.Quantiles = measure.Quantiles(p.times)
	return sample, nil
}

// sleep pauses, but not beyond the end of the Duo.
func (p *pingPong) sleep(d time.Duration) error {
	time.Sleep(d)
	if p.site.Stopped() {
		return measure.ErrStopped
	}
	return nil
}

// round sends a message and waits for its echo.
func (p *pingPong) round(fd int, counts bool) error {
	start := time.Now()
	binary.LittleEndian.PutUint64(p.buf, uint64(start.UnixNano()))
	if _, err := unix.Write(fd, p.buf); err != nil { // 64 bytes fit, or the path is broken
		return fmt.Errorf("traffic: send: %w", err)
	}
	if ok, err := p.read(fd); err != nil || !ok {
		return fmt.Errorf("traffic: receive an echo: ended %v, %w", !ok, err)
	}
	if counts {
		p.times = append(p.times, float64(time.Since(start)))
	}
	if got := binary.LittleEndian.Uint64(p.buf); got != uint64(start.UnixNano()) {
		return fmt.Errorf("traffic: message %d came back as %d", start.UnixNano(), got)
	}
	return nil
}

func (p *pingPong) echo(fd int) error {
	for {
		ok, err := p.read(fd)
		if err != nil || !ok {
			return err
		}
		if _, err := unix.Write(fd, p.buf); err != nil {
			return fmt.Errorf("traffic: echo: %w", err)
		}
	}
}

// read reads a whole message; ok is false at the end.
func (p *pingPong) read(fd int) (ok bool, err error) {
	deadline := time.Time{}
	for got := 0; got < len(p.buf); {
		n, err := unix.Read(fd, p.buf[got:])
		if err != nil {
			if deadline.IsZero() {
				deadline = time.Now().Add(giveUp)
			}
			if err := p.again(err, deadline); err != nil {
				return false, err
			}
			continue
		}
		if n == 0 {
			return false, nil
		}
		got += n
	}
	return true, nil
}
