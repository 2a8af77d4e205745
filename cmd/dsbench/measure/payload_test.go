package measure

import (
	"slices"
	"testing"
)

func TestPayloadNoticesEveryByte(t *testing.T) {
	for _, size := range []int{16, 24, 64, 104} {
		p, err := NewPayload(size, 3)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		p.Fill(b, p.Source(7))
		p.Stamp(b, 7)
		if err := p.Check(b, 7); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		for i := range b {
			b[i] ^= 0x10
			if p.Check(b, 7) == nil {
				t.Errorf("size %d: byte %d was wrong and nobody noticed", size, i)
			}
			b[i] ^= 0x10
		}
		if p.Check(b[:size-8], 7) == nil || p.Check(b, 8) == nil || p.Check(b, 7+3) == nil {
			t.Errorf("size %d: a short buffer or a foreign number passes", size)
		}
	}
}

// A buffer that got only the first and the last word of its successor is stale
// in between.
func TestPayloadNoticesStaleContent(t *testing.T) {
	const buffers = 4
	p, err := NewPayload(4096, buffers+1)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	p.Fill(b, p.Source(1))
	p.Stamp(b, 1+buffers)
	if p.Check(b, 1+buffers) == nil {
		t.Error("the content of the buffer's previous turn passes")
	}
}

func TestNewPayloadRefuses(t *testing.T) {
	for _, c := range [][2]int{{0, 1}, {8, 1}, {20, 1}, {64, 0}, {-8, 1}} {
		if _, err := NewPayload(c[0], c[1]); err == nil {
			t.Errorf("%d bytes from %d sources were accepted", c[0], c[1])
		}
	}
}

func TestSum(t *testing.T) {
	var b []byte
	for i := range 11 {
		if got, want := Sum(b), uint64(i*(i-1)/2); got != want {
			t.Errorf("sum of %d words: %d instead of %d", i, got, want)
		}
		b = slices.Concat(b, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0})
	}
}
