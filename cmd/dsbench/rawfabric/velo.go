package rawfabric

import (
	"encoding/binary"
	"fmt"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
)

// A veloPing bounces a numbered message.
type veloPing struct {
	*end
	asleep bool // wait for the interrupt each time
	pause  time.Duration
	out    []byte
	in     []fabric.Message
	seq    uint64
}

func newVELOPing(e *end, p measure.Params) (measure.Half, error) { return newPing(e, p, false) }

func newVELOSleep(e *end, p measure.Params) (measure.Half, error) { return newPing(e, p, true) }

func newPing(e *end, p measure.Params, asleep bool) (measure.Half, error) {
	if p.Size < 8 || p.Size > fabric.VELOMaxPayload {
		return nil, fmt.Errorf("no numbered VELO messages of %d bytes: need 8 to %d", p.Size, fabric.VELOMaxPayload)
	}
	return &veloPing{end: e, asleep: asleep, pause: p.Pause, out: make([]byte, p.Size), in: make([]fabric.Message, 1)}, nil
}

func (v *veloPing) Run(n int) (measure.Sample, error) {
	if v.role == measure.Lead {
		return measure.Rounds(n, v.pause, func() error {
			if err := v.throw(v.seq + 1); err != nil {
				return err
			}
			return v.catch()
		})
	}
	for range n {
		if err := v.catch(); err != nil {
			return measure.Sample{}, err
		}
		if err := v.throw(v.seq); err != nil {
			return measure.Sample{}, err
		}
	}
	return measure.Sample{}, nil
}

// throw sends message seq, numbered at both ends.
func (v *veloPing) throw(seq uint64) error {
	binary.LittleEndian.PutUint64(v.out, seq)
	binary.LittleEndian.PutUint64(v.out[len(v.out)-8:], seq)
	return v.send(v.out)
}

// catch receives the next message.
func (v *veloPing) catch() error {
	for v.velo.Poll(v.in) == 0 {
		if v.asleep {
			if err := v.sleep(-1); err != nil {
				return err
			}
		} else if v.site.Stopped() {
			return measure.ErrStopped
		}
	}
	v.seq++
	return check(&v.in[0], len(v.out), v.seq)
}

// check verifies length and both numbers of a message.
func check(m *fabric.Message, size int, seq uint64) error {
	b := m.Payload()
	if len(b) != size {
		return fmt.Errorf("wrong data: message %d has %d bytes instead of %d", seq, len(b), size)
	}
	first, last := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[size-8:])
	if first != seq || last != seq {
		return fmt.Errorf("wrong data: message %d is numbered %d at its start and %d at its end", seq, first, last)
	}
	return nil
}

// A veloRate streams 8-byte messages from lead to follow, which answers the
// last one.
type veloRate struct {
	*end
	out []byte
	in  []fabric.Message
	seq uint64
}

// pollBatch is how many messages are polled at a time: the default budget of
// the poll engine (NAP-2).
const pollBatch = 64

func newVELORate(e *end, p measure.Params) (measure.Half, error) {
	return &veloRate{end: e, out: make([]byte, 8), in: make([]fabric.Message, pollBatch)}, nil
}

func (v *veloRate) Run(n int) (measure.Sample, error) {
	start, end := time.Now(), v.seq+uint64(n)
	if v.role == measure.Follow {
		if err := v.receive(end); err != nil {
			return measure.Sample{}, err
		}
		binary.LittleEndian.PutUint64(v.out, end)
		return measure.Sample{}, v.send(v.out)
	}
	for v.seq < end {
		v.seq++
		binary.LittleEndian.PutUint64(v.out, v.seq)
		if err := v.send(v.out); err != nil {
			return measure.Sample{}, err
		}
	}
	v.seq-- // the answer has the number of the last message
	err := v.receive(end)
	return measure.Each(time.Since(start), n), err
}

// receive takes the messages up to number end.
func (v *veloRate) receive(end uint64) error {
	for v.seq < end {
		got := v.velo.Poll(v.in[:min(pollBatch, end-v.seq)])
		if got == 0 && v.site.Stopped() {
			return measure.ErrStopped
		}
		for i := range got {
			v.seq++
			if err := check(&v.in[i], 8, v.seq); err != nil {
				return err
			}
		}
	}
	return nil
}
