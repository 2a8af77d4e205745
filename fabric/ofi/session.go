package ofi

import (
	"crypto/sha256"
	"encoding/binary"

	"exnet/fabric"
)

// sessionWindow is how many frames may be unacknowledged: 256 KiB, which covers
// 20 µs at 100 Gbit/s.
const sessionWindow = 64

// ackEvery is how many frames a receiver takes before it says so unasked. Four
// such words fit into a window, so a sender is not held up by the way back.
const ackEvery = 16

// A session is the numbering of the frames between two nodes, in both
// directions: what has been sealed, posted and acknowledged, and what is due.
// It does no I/O and has no clock.
//
//	acked < posted ≤ sealed ≤ acked + sessionWindow
//
// Frames are numbered from 1. A provider may lose frames that it accepted,
// when it makes a lost connection again without saying so. Then the receiver
// finds a number missing, by a later frame or by a probe, which names the last
// frame posted before it. It says so, and the sender posts all again from the
// first that is not acknowledged. A frame twice is dropped. Hence what is taken
// is 1, 2, 3, … for as long as the session lasts.
type session struct {
	id     uint64
	sealed uint64 // the last number given to a frame
	posted uint64 // the last frame that the provider has taken
	acked  uint64 // the last frame that the peer has taken
	most   uint64 // the highest frame ever posted: an acknowledgement beyond is a lie

	taken uint64 // the last frame that was taken from the peer
	told  uint64 // the last that the peer was told of
	gap   bool   // something is missing, and the peer is to be told
}

// sessionID is made of what both sides have contributed to the handshake, so
// nobody else knows it and none comes twice.
func sessionID(a, b party) uint64 {
	if a.id > b.id {
		a, b = b, a
	}
	var text [40]byte
	for i, p := range []party{a, b} {
		binary.LittleEndian.PutUint16(text[20*i:], uint16(p.id))
		binary.LittleEndian.PutUint64(text[20*i+2:], p.instance)
		binary.LittleEndian.PutUint64(text[20*i+10:], p.nonce)
	}
	sum := sha256.Sum256(text[:])
	return binary.LittleEndian.Uint64(sum[:]) | 1 // 0 is no session
}

// A party is one side of a handshake.
type party struct {
	id       fabric.NodeID
	instance uint64 // of the node: another after each start
	nonce    uint64 // of the session: another after each end
}

// room reports whether another frame may be sealed, leaving some for others.
func (s *session) room(reserve uint64) bool { return s.sealed-s.acked+reserve < sessionWindow }

// seal numbers a frame.
func (s *session) seal() uint64 {
	s.sealed++
	return s.sealed
}

// due returns the next frame to post, if there is one.
func (s *session) due() (seq uint64, ok bool) { return s.posted + 1, s.posted < s.sealed }

// post says that the provider has taken the frame that was due.
func (s *session) post() {
	s.posted++
	s.most = max(s.most, s.posted)
}

// acknowledge takes what the peer says it has. It returns the frames that are
// done with, from and to, from > to if none; ok is false for a lie.
func (s *session) acknowledge(ack uint64) (from, to uint64, ok bool) {
	if ack > s.most {
		return 1, 0, false
	}
	from, to = s.acked+1, max(ack, s.acked)
	s.acked = to
	s.posted = max(s.posted, to) // of those posted again some had arrived
	return from, to, true
}

// again makes all that is not acknowledged due, and returns how many frames
// that are.
func (s *session) again() int {
	n := s.posted - s.acked
	s.posted = s.acked
	return int(n)
}

// An arrival says what to do with a frame.
type arrival int

const (
	take      arrival = iota // it is the one that was due
	duplicate                // it has been taken before
	missing                  // one before it has not come
)

// arrive judges a frame by its number.
func (s *session) arrive(seq uint64) arrival {
	switch {
	case seq == s.taken+1:
		s.taken = seq
		s.gap = false
		return take
	case seq <= s.taken:
		s.told = min(s.told, s.taken-1) // the peer does not know: tell it
		return duplicate
	}
	s.gap = true
	return missing
}

// probe takes the number of the last frame that the peer has posted before.
func (s *session) probe(seq uint64) {
	if seq > s.taken {
		s.gap = true
	}
}

// owes reports whether the peer is to be told what was taken: now, or when
// there is time.
func (s *session) owes() (now, later bool) {
	return s.gap || s.taken-s.told >= ackEvery, s.taken != s.told
}
