package traffic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A pingPong has follow echo messages of Size bytes, one at a time.
type pingPong struct {
	*end
	buf, sent []byte
	number    uint64
	times     *measure.Histogram
}

func newPingPong(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if p.Size < 1 {
		return nil, fmt.Errorf("traffic: no messages of %d bytes", p.Size)
	}
	e, err := newEnd(role, site, p)
	if err == nil {
		err = e.bind(unix.SOCK_STREAM)
	}
	return &pingPong{end: e, buf: make([]byte, p.Size), sent: repeat(p.Size)}, err
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
	p.times = new(measure.Histogram)
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
		begin := time.Now().Add(p.warmUp(length))
		for end := begin.Add(length); ; {
			now := time.Now()
			if now.After(end) || p.params.Limit > 0 && p.times.Count() >= uint64(p.params.Limit) {
				break
			}
			if err := p.round(fd, now.After(begin)); err != nil {
				return sample, err
			}
		}
	}
	sample.Times = p.times
	return sample, nil
}

// counted is how many rounds are told of at once: it costs time that is measured.
const counted = 16

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
	p.number++
	stamp(p.sent, p.number)
	start := time.Now()
	if err := p.write(fd, p.sent); err != nil {
		return err
	}
	if ok, err := p.read(fd); err != nil || !ok {
		return fmt.Errorf("traffic: receive an echo: ended %v, %w", !ok, err)
	}
	if counts {
		p.times.Add(int64(time.Since(start)))
	}
	if p.number%counted == 0 {
		p.site.Count(counted)
	}
	return same(p.number, p.sent, p.buf)
}

// stamp numbers a message, as far as there is room.
func stamp(message []byte, number uint64) {
	if len(message) >= numberSize {
		binary.LittleEndian.PutUint64(message, number)
	} else {
		message[0] = byte(number)
	}
}

// same says whether a message came back as it was.
func same(number uint64, sent, back []byte) error {
	if !bytes.Equal(back, sent) {
		return fmt.Errorf("traffic: wrong data: message %d came back as another", number)
	}
	return nil
}

// numberSize is that of the number at the beginning of a message that has room for it.
const numberSize = 8

// write writes a whole message.
func (e *end) write(fd int, b []byte) error {
	for deadline := time.Now().Add(giveUp); len(b) > 0; {
		n, err := write(fd, b)
		if err != nil {
			if err := e.again(err, deadline); err != nil {
				return fmt.Errorf("traffic: send: %w", err)
			}
			continue
		}
		b = b[n:]
	}
	return nil
}

func (p *pingPong) echo(fd int) error {
	for {
		ok, err := p.read(fd)
		if err != nil || !ok {
			return err
		}
		if err := p.write(fd, p.buf); err != nil {
			return err
		}
	}
}

// read reads a whole message; ok is false at the end.
func (p *pingPong) read(fd int) (ok bool, err error) { return p.readAll(fd, p.buf) }

// readAll fills b; ok is false when the other side has ended before.
func (e *end) readAll(fd int, b []byte) (ok bool, err error) {
	deadline := time.Time{}
	for got := 0; got < len(b); {
		n, err := read(fd, b[got:])
		if err != nil {
			if deadline.IsZero() {
				deadline = time.Now().Add(giveUp)
			}
			if err := e.again(err, deadline); err != nil {
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
