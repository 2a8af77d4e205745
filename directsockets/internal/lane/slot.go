package lane

import "encoding/binary"

// A Tag says what a slot carries. It is the user tag of the status word.
type Tag uint32

// The tags of ext-ds.md, section 4. Control slots carry two words.
const (
	VELO     Tag = 1 // stream bytes; more of the same write follow
	VELOLast Tag = 2 // stream bytes
	RMAInfo  Tag = 3 // {at, length} of a piece in the windows
	ZCopy    Tag = 4 // {address, length} in the writer's own memory
	Shutdown Tag = 5 // {how, total lane bytes}
	Switch   Tag = 6 // {N, 0}: the stream continues here after N bytes by TCP
	Back     Tag = 7 // {M, 0}: it continues on TCP after M bytes of the lane
	Abort    Tag = 8 // {0, 0}: a reset follows
	Buffer   Tag = 9 // {at, length} of an advert in the windows
)

// advert reports whether the slot announces bytes that remain the writer's until the advert has
// ended.
func (t Tag) advert() bool { return t == ZCopy || t == Buffer }

// The first word of Shutdown.
const (
	HowWrite = 1 // the write side
	HowClose = 2 // close
)

// words is the length of all payloads other than stream bytes.
const words = 16

// A status word is valid[63] 0[62:50] len[49:38] tag[37:32] date[31:0]. Valid is the parity of the
// lap: 1 on the first pass over a zeroed ring.
type status uint64

func makeStatus(parity uint64, n int, t Tag) status {
	return status(parity<<63 | uint64(n)<<38 | uint64(t)<<32)
}

// date converts ticks to the date format of slots, which is never 0.
func date(t uint64) status { return status(uint32(t>>5) | 1) }

func (s status) len() int { return int(s >> 38 & 0xfff) }
func (s status) tag() Tag { return Tag(s >> 32 & 0x3f) }

// A Look says what comes next on a lane.
type Look int

const (
	Nothing Look = iota // not posted yet
	Data                // stream bytes
	Command             // a control message
	Hostile             // something that no honest writer posts
)

// look judges a status word whose parity matches the lap.
func (s status) look() Look {
	const zero = 0x1fff<<50 | 0xffffffff // only readers that ask for dates get them, and we do not
	if s&zero != 0 {
		return Hostile
	}
	switch n := s.len(); s.tag() {
	case VELO, VELOLast:
		if 1 <= n && n <= Payload {
			return Data
		}
	case RMAInfo, ZCopy, Buffer:
		if n == words {
			return Data
		}
	case Shutdown, Switch, Back, Abort:
		if n == words {
			return Command
		}
	}
	return Hostile
}

// parity returns the parity of the lap that slot number k is in, in a ring of count slots.
func parity(k, count uint64) uint64 { return k/count&1 ^ 1 }

// payload returns the payload of slot number k of a ring.
func payload(ring []byte, k uint64) []byte {
	at := k*slotSize&(uint64(len(ring))-1) + 8
	return ring[at : at+Payload : at+Payload]
}

func putWords(p []byte, a, b uint64) {
	binary.NativeEndian.PutUint64(p, a)
	binary.NativeEndian.PutUint64(p[8:], b)
}

func getWords(p []byte) (a, b uint64) {
	return binary.NativeEndian.Uint64(p), binary.NativeEndian.Uint64(p[8:])
}
