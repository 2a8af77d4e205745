package exteth

import (
	"encoding/binary"
	"math/bits"
)

// OnesSum adds the 16-bit big-endian words of b to sum, in one's complement arithmetic. It adds 64
// bits at a time and folds at the end, which is allowed because 2^16 is 1 modulo 2^16-1 (RFC 1071,
// 2 B and C). An odd last byte counts as the high byte of a word.
func OnesSum(sum uint64, b []byte) uint16 {
	var carry uint64
	for len(b) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), 0)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[8:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:]), carry)
		sum += carry // cannot overflow: with a carry the sum is at most 2^64-2
		b = b[32:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), 0)
		sum += carry
		b = b[8:]
	}
	var last uint64
	for i, c := range b {
		last |= uint64(c) << (56 - 8*i)
	}
	sum, carry = bits.Add64(sum, last, 0)
	return fold(sum + carry)
}

// fold reduces a sum to 16 bits.
func fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	s := uint32(sum>>16) + uint32(sum&0xffff)
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}

// CompleteChecksum finishes a partial checksum if the header has NeedsChecksum. The field already
// holds the sum of the pseudo-header, so summing over it completes the checksum. It returns the
// header with what is still to be done.
func CompleteChecksum(frame []byte, v VNet) (VNet, error) {
	if v.Flags&NeedsChecksum == 0 {
		return v, nil
	}
	if !v.Check(len(frame)) {
		return v, ErrVNet
	}
	putChecksum(frame[int(v.CsumStart)+int(v.CsumOffset):], OnesSum(0, frame[v.CsumStart:]))
	v.Flags &^= NeedsChecksum
	v.CsumStart, v.CsumOffset = 0, 0
	return v, nil
}

// putChecksum stores the complement of a sum. It stores 0 as 0xffff, the same number in one's
// complement: in UDP, 0 would mean that there is no checksum.
func putChecksum(field []byte, sum uint16) {
	c := ^sum
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(field, c)
}
