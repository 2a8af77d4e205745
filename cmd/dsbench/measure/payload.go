package measure

import (
	"encoding/binary"
	"fmt"
)

// A Payload is the content of the numbered buffers that go from one process
// to the other. Every word of a buffer depends on its place and on the source
// it comes from, and the first and the last carry the number, so that a
// reader that sums all words notices lost, stale and wrong bytes. References
// and subjects share this code: they read the same in the same way.
type Payload struct {
	size    int
	sources int
	sum     uint64 // of the words between first and last, for source 0
}

// NewPayload describes buffers of size bytes, a multiple of 8 and at least 16,
// that come from a number of sources in turn. With one source more than there
// are buffers at the reader, a buffer never gets the same content twice in a row.
func NewPayload(size, sources int) (Payload, error) {
	if size < 16 || size%8 != 0 || sources < 1 {
		return Payload{}, fmt.Errorf("measure: no payload of %d bytes from %d sources: need a multiple of 8, 16 or more, from 1 or more", size, sources)
	}
	p := Payload{size: size, sources: sources}
	for i := 1; i < size/8-1; i++ {
		p.sum += word(i, 0)
	}
	return p, nil
}

// Sources is the number of sources.
func (p Payload) Sources() int { return p.sources }

// Source returns the source that buffer seq comes from.
func (p Payload) Source(seq uint64) int { return int(seq % uint64(p.sources)) }

// Fill writes what does not change into the buffer of a source.
func (p Payload) Fill(b []byte, source int) {
	for i := 1; i < p.size/8-1; i++ {
		binary.LittleEndian.PutUint64(b[i*8:], word(i, source))
	}
}

// Stamp numbers a filled buffer.
func (p Payload) Stamp(b []byte, seq uint64) {
	binary.LittleEndian.PutUint64(b, seq)
	binary.LittleEndian.PutUint64(b[p.size-8:], seq)
}

// Check reads all of buffer seq.
func (p Payload) Check(b []byte, seq uint64) error {
	if len(b) != p.size {
		return fmt.Errorf("wrong data: buffer %d has %d bytes instead of %d", seq, len(b), p.size)
	}
	want := p.sum + uint64(p.size/8-2)*word(0, p.Source(seq)) + 2*seq
	got := Sum(b)
	first, last := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[p.size-8:])
	if got != want || first != seq || last != seq {
		return fmt.Errorf("wrong data: buffer %d is numbered %d at its start and %d at its end, its words add up to %#x instead of %#x",
			seq, first, last, got, want)
	}
	return nil
}

// word is the content of word i. Odd multipliers, so that it changes with both
// in every bit position; the golden ratio spreads the bits.
func word(i, source int) uint64 {
	return uint64(i)*0x9e3779b97f4a7c15 + uint64(source)*0xc2b2ae3d27d4eb4f
}

// Sum adds up the words of b, whose length is a multiple of 8. Four sums at a
// time: one addition per load keeps up with L2.
func Sum(b []byte) uint64 {
	le := binary.LittleEndian
	var s0, s1, s2, s3 uint64
	for len(b) >= 32 {
		s0 += le.Uint64(b)
		s1 += le.Uint64(b[8:])
		s2 += le.Uint64(b[16:])
		s3 += le.Uint64(b[24:])
		b = b[32:]
	}
	for ; len(b) >= 8; b = b[8:] {
		s0 += le.Uint64(b)
	}
	return s0 + s1 + s2 + s3
}
