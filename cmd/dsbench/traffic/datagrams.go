package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A datagrams has lead send UDP datagrams of Size bytes as fast as it can, and
// follow count what arrives. With Batch lead hands that many to the kernel at
// a time (UDP_SEGMENT), and follow takes as many (UDP_GRO).
type datagrams struct {
	*end
	buf []byte
}

// longestGRO is what a receiver with UDP_GRO may get at a time.
const longestGRO = 64 << 10

// longestDatagram is the most that UDP over IPv4 carries.
const longestDatagram = 65507

func newDatagrams(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	e, err := newEnd(role, site, p)
	if err != nil {
		return nil, err
	}
	if p.Size < numberSize || p.Size*max(1, p.Batch) > longestDatagram {
		return nil, fmt.Errorf("traffic: no datagrams of %d bytes: they have from %d to %d", p.Size, numberSize, longestDatagram)
	}
	if err = e.bind(unix.SOCK_DGRAM); err == nil && e.bound >= 0 && p.Batch > 1 {
		err = unix.SetsockoptInt(e.bound, unix.SOL_UDP, unix.UDP_GRO, 1)
	}
	return &datagrams{e, make([]byte, max(longestGRO, p.Size*p.Batch))}, err
}

// Run sends or receives for n milliseconds.
func (d *datagrams) Run(n int) (measure.Sample, error) {
	length := time.Duration(n) * time.Millisecond
	if d.role == measure.Lead {
		return d.send(warmUp(length), length)
	}
	return d.receive(warmUp(length), length)
}

func (d *datagrams) send(warm, length time.Duration) (sample measure.Sample, err error) {
	fd, err := d.connect(unix.SOCK_DGRAM)
	if err != nil {
		return sample, err
	}
	defer unix.Close(fd)
	batch := max(1, d.params.Batch)
	if batch > 1 {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, d.params.Size); err != nil {
			return sample, fmt.Errorf("traffic: UDP_SEGMENT: %w", err)
		}
	}
	payload := d.buf[:d.params.Size*batch]
	// Longer than the receiver counts: its clock starts with the first one.
	// Numbers go on from run to run, for what an earlier one has under way.
	number := uint64(time.Now().UnixNano())
	for end := time.Now().Add(warm + length + warm); time.Now().Before(end); {
		for i := range batch {
			binary.LittleEndian.PutUint64(payload[i*d.params.Size:], number)
			number++
		}
		_, err := write(fd, payload)
		switch {
		case err == nil:
			d.site.Count(int64(len(payload)))
		case d.site.Stopped():
			return sample, measure.ErrStopped
		case err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return sample, fmt.Errorf("traffic: send a datagram: %w", err)
		}
	}
	return sample, nil
}

func (d *datagrams) receive(warm, length time.Duration) (sample measure.Sample, err error) {
	if err := d.drain(); err != nil {
		return sample, err
	}
	var begin time.Time // of what counts, once the first has come
	var counted int64
	var since time.Time
	first, next := uint64(0), uint64(0)
	for patience := time.Now().Add(giveUp); ; {
		n, err := read(d.bound, d.buf)
		now := time.Now()
		if err != nil {
			if errors.Is(err, unix.EAGAIN) && !since.IsZero() { // the sender has stopped
				sample.Rate = float64(counted) / now.Sub(since).Seconds()
				return sample, nil
			}
			if err := d.again(err, patience); err != nil {
				return sample, fmt.Errorf("traffic: receive datagrams: %w", err)
			}
			continue
		}
		for got := d.buf[:n]; len(got) >= d.params.Size; got = got[d.params.Size:] {
			number := binary.LittleEndian.Uint64(got)
			if number < next && !d.params.Astray {
				return sample, fmt.Errorf("traffic: datagram %d came after %d", number, next-1)
			}
			if sample.Count == 0 {
				first = number
			}
			next = max(next, number+1)
			sample.Count++
			sample.Lost = next - first - min(sample.Count, next-first)
		}
		sample.Bytes += int64(n)
		switch {
		case begin.IsZero():
			begin = now.Add(warm)
		case since.IsZero() && !now.Before(begin):
			since = now
		case !since.IsZero() && now.Sub(since) >= length:
			sample.Rate = float64(counted) / now.Sub(since).Seconds()
			return sample, nil
		case !since.IsZero():
			counted += int64(n)
		}
	}
}

// drain throws away what an earlier run has left in the socket.
func (d *datagrams) drain() error {
	for {
		_, _, err := unix.Recvfrom(d.bound, d.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("traffic: drain a socket: %w", err)
		}
	}
}
