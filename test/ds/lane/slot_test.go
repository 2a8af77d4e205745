package lane_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/test/ds/lane"
)

// The kinds of slots that a reader tells apart.
type kind int

const (
	nothing kind = iota
	data
	control
	hostile
)

func (k kind) String() string { return [...]string{"nothing", "data", "control", "hostile"}[k] }

// A slot is what a reader finds at a place of the ring.
type slot struct {
	kind
	tag    uint64
	bytes  []byte    // of VELO
	window bool      // the bytes are a piece: words are its place and length
	words  [2]uint64 // of all but VELO
	advert bool      // of bytes in the writer's own memory or in a registered buffer
}

// A ring is one direction of a lane as its reader sees it.
type ring struct {
	document
	slots, windows []byte
}

// at decodes slot number k as sections 4 and 6 say.
func (r ring) at(k uint64) slot {
	count := uint64(len(r.slots)) / 128
	b := r.slots[k%count*128:][:128]
	status := binary.LittleEndian.Uint64(b)
	if status>>63 != (k/count+1)%2 {
		return slot{kind: nothing}
	}
	s := slot{kind: hostile, tag: status >> 32 & 0x3f}
	length := status >> 38 & 0xfff
	legal, known := r.lengths[s.tag]
	if status>>50&0x1fff != 0 || !known || length < legal[0] || length > legal[1] {
		return s
	}
	if s.tag == r.tags["VELO"] || s.tag == r.tags["VELO_LAST"] {
		s.kind, s.bytes = data, b[8:8+length]
		return s
	}
	s.words = [2]uint64{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	if s.tag == r.tags["ZCOPY"] {
		if address, n := s.words[0], s.words[1]; n >= 1 && n < 1<<62 && address+n >= address {
			s.kind, s.advert = data, true
		}
		return s
	}
	if s.tag == r.tags["BUFFER"] {
		if at, n, size := s.words[0], s.words[1], uint64(len(r.windows)); n >= 1 && n <= size && at <= size-n {
			s.kind, s.advert = data, true
		}
		return s
	}
	if s.tag != r.tags["RMA_INFO"] {
		s.kind = control
		return s
	}
	at, n, size := s.words[0], s.words[1], uint64(len(r.windows))
	if n >= 1 && n <= 65536 && n <= size && at <= size-n {
		s.kind, s.window = data, true
	}
	return s
}

// Slots are taken for the same by the C code and by who reads ext-ds.md only.
func TestSlots(t *testing.T) {
	d := readDocument(t)
	lines := lane.Lines(t, filepath.Join(vectors, "slots.txt"))
	seen := make(map[kind]int)
	for i := 0; i+1 < len(lines); i += 2 {
		line, answer := lines[i], strings.Join(lines[i+1], " ")
		k, b := lane.Number(t, line[1]), lane.Unfold(t, line[2:])
		r := ring{document: d, slots: make([]byte, 16*128), windows: make([]byte, 2*16<<10)}
		copy(r.slots[k%16*128:], b)
		s := r.at(k)
		got := "is " + s.kind.String()
		switch {
		case s.kind == data && s.advert:
			got += fmt.Sprintf(" %d advert", s.words[1])
		case s.kind == data && s.window:
			got += fmt.Sprintf(" %d window", s.words[1])
		case s.kind == data:
			got += fmt.Sprintf(" %d slot", len(s.bytes))
		case s.kind == control:
			got += fmt.Sprintf(" %d %d %d", s.tag, s.words[0], s.words[1])
		}
		want, name, _ := strings.Cut(answer, " # ")
		if got != want {
			t.Errorf("%s: %q, the C code says %q", name, got, want)
		}
		seen[s.kind]++
		// The fabric's own codec reads the same.
		length := len(s.bytes)
		if s.bytes == nil {
			length = 16
		}
		if f := fabric.Status(binary.LittleEndian.Uint64(b)); (s.kind == data || s.kind == control) &&
			(!f.Check() || f.Len() != length || uint64(f.UserTag()) != s.tag || f.Parity() != (k/16+1)%2) {
			t.Errorf("%s: fabric.Status reads %d bytes of tag %d, lap parity %d", name, f.Len(), f.UserTag(), f.Parity())
		}
	}
	for k := nothing; k <= hostile; k++ {
		if seen[k] == 0 {
			t.Errorf("no slot is %v", k)
		}
	}
}
