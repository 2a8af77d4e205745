package bare

import (
	"fmt"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
)

const (
	copyHead  = 0                     // word: buffers written
	copyTail  = measure.CacheLinePair // word: buffers free again
	copyStart = 64 << 10              // the buffers, then the sources, then the sink
)

// A copying moves buffers through shared memory: the writer copies one of its
// sources into the next buffer and counts head up, the reader frees it by
// counting tail up. All memory is of one kind, a shared mapping, as it is with
// registered windows.
type copying struct {
	pair
	payload    measure.Payload
	head, tail *atomic.Uint64
	buffers    [][]byte
	sources    [][]byte
	sink       []byte
	writer     measure.Role
	inPlace    bool   // the reader sums the buffer itself, not a copy
	next       uint64 // number of the next buffer
}

func newPut(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	return newCopying(role, site, p, measure.Lead, true)
}

func newGet(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	return newCopying(role, site, p, measure.Follow, false)
}

func newRead(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	return newCopying(role, site, p, measure.Follow, true)
}

func newCopying(role measure.Role, site *measure.Site, p measure.Params, writer measure.Role, inPlace bool) (measure.Half, error) {
	payload, err := measure.NewPayload(p.Size, p.Buffers+1)
	if err != nil {
		return nil, err
	}
	if need := copyStart + (2*p.Buffers+2)*p.Size; need > len(site.Shared) {
		return nil, fmt.Errorf("bare copy: %d buffers of %d bytes need %d bytes of shared memory, there are %d", p.Buffers, p.Size, need, len(site.Shared))
	}
	c := &copying{
		pair:    pair{role, site},
		payload: payload,
		head:    measure.Word(site.Shared, copyHead),
		tail:    measure.Word(site.Shared, copyTail),
		writer:  writer,
		inPlace: inPlace,
	}
	rest := site.Shared[copyStart:]
	take := func() (b []byte) {
		b, rest = rest[:p.Size:p.Size], rest[p.Size:]
		return b
	}
	for range p.Buffers {
		c.buffers = append(c.buffers, take())
	}
	for i := range p.Buffers + 1 {
		c.sources = append(c.sources, take())
		if role == writer {
			payload.Fill(c.sources[i], i)
		}
	}
	c.sink = take()
	return c, nil
}

func (c *copying) Run(n int) (measure.Sample, error) {
	start, end := time.Now(), c.next+uint64(n)
	step := c.read
	if c.role == c.writer {
		step = c.write
	}
	for ; c.next < end; c.next++ {
		if err := step(c.next); err != nil {
			return measure.Sample{}, err
		}
	}
	err := c.await(c.tail, end) // all of it was read
	return measure.Each(time.Since(start), n), err
}

// write copies buffer i in.
func (c *copying) write(i uint64) error {
	if room := uint64(len(c.buffers)); i >= room {
		if err := c.await(c.tail, i-room+1); err != nil {
			return err
		}
	}
	src := c.sources[c.payload.Source(i)]
	c.payload.Stamp(src, i)
	copy(c.buffers[i%uint64(len(c.buffers))], src)
	c.head.Store(i + 1)
	return nil
}

// read reads every byte of buffer i.
func (c *copying) read(i uint64) error {
	if err := c.await(c.head, i+1); err != nil {
		return err
	}
	b := c.buffers[i%uint64(len(c.buffers))]
	if c.inPlace {
		err := c.payload.Check(b, i)
		c.tail.Store(i + 1)
		return err
	}
	copy(c.sink, b)
	c.tail.Store(i + 1)
	return c.payload.Check(c.sink, i)
}

// await spins until the count is reached.
func (c *copying) await(count *atomic.Uint64, least uint64) error {
	for count.Load() < least {
		if c.site.Stopped() {
			return measure.ErrStopped
		}
	}
	return nil
}
