// Package bare has the references of dsbench: the least that two processes can
// do to each other through shared memory or the kernel, without a fabric. Each
// is what a good programmer would write in Go for this one purpose, with no
// descriptor, address, right or second peer in sight, so that a ratio to it is
// the price of the fabric.
//
//	bare/ping      one word each way, on cache lines of their own, both spin
//	bare/ring      a ring of 128-byte slots, valid by lap parity, one atomic
//	               store per message, room told back four times a lap
//	bare/put       copy into a shared buffer, release flag; the reader sums it
//	bare/get       the owner copies into a shared buffer, release flag; the
//	               reader copies it out, frees it and sums its copy
//	bare/read      the same, but the reader sums it where it lies
//	bare/wake      one byte's worth of eventfd each way, both block in read(2)
//
// Every half checks what it gets: sequence numbers, and for buffers the sum of
// all words.
package bare

import "exnet/cmd/dsbench/measure"

// Contenders are the references by name.
func Contenders() map[string]measure.Contender {
	return map[string]measure.Contender{
		"bare/ping": newPing,
		"bare/ring": newRing,
		"bare/put":  newPut,
		"bare/get":  newGet,
		"bare/read": newRead,
		"bare/wake": newWake,
	}
}

// pair is the part that halves here have in common: nothing to tell each other.
type pair struct {
	role measure.Role
	site *measure.Site
}

func (pair) Words() []uint64     { return nil }
func (pair) Meet([]uint64) error { return nil }
func (pair) Close() error        { return nil }
