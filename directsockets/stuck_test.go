package directsockets

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// One goroutine serves both ends, and writes more than a lane takes before it reads: TCP would hold
// it. After a while the lane is used again.
func TestWritesBeforeReads(t *testing.T) {
	a, b := upgraded(t)
	was := env.stuck
	env.stuck = 20 * time.Millisecond
	defer func() { env.stuck = was }()
	for name, text := range map[string][]byte{
		"small": bytes.Repeat([]byte("line of twenty byte\n"), 300),
		"large": bytes.Repeat([]byte("line of twenty byte\n"), 70_000),
	} {
		t.Run(name, func(t *testing.T) {
			size := 20
			if name == "large" {
				size = len(text)
			}
			for _, c := range []*Conn{a, b} {
				c.SetWriteDeadline(time.Now().Add(5 * time.Second))
				for k := 0; k < len(text); k += size {
					if n, err := c.Write(text[k : k+size]); n != size || err != nil {
						t.Fatalf("%d, %v", n, err)
					}
				}
			}
			if reason := a.Status().Reason.String(); reason != "unread" {
				t.Errorf("reason %q", reason)
			}
			for _, c := range []*Conn{a, b} {
				got := make([]byte, len(text))
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
					t.Fatalf("other bytes arrive, %v", err)
				}
			}
		})
	}
	a.out.full.until, b.out.full.until = time.Now(), time.Now() // nobody is in a call
	before := a.Status().VELO.Written
	for range 10 {
		write(t, a, strings.Repeat("again", 10))
		read(t, b, strings.Repeat("again", 10))
	}
	if s := a.Status(); s.VELO.Written == before || s.Reason != reasonNone {
		t.Errorf("%v, %+v", s.Reason, s)
	}
}
