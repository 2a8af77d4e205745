package traffic

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A stream notices a byte that is wrong, lost or doubled where it looks.
func TestReceiveChecks(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func([]byte) []byte
		ok    bool
	}{
		"good":         {func(b []byte) []byte { return b }, true},
		"wrong first":  {func(b []byte) []byte { b[0]++; return b }, false},
		"wrong last":   {func(b []byte) []byte { b[len(b)-1]++; return b }, false},
		"lost":         {func(b []byte) []byte { return append(b[:100:100], b[101:]...) }, false},
		"doubled":      {func(b []byte) []byte { return append(b[:100:100], b[99:]...) }, false},
		"from earlier": {func([]byte) []byte { return append([]byte(nil), pattern[:5000]...) }, false},
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &stream{end: &end{}, buf: make([]byte, block), bytes: pattern}
		f := &flow{fd: pair[1], at: 7*period + 1000}
		sent := c.spoil(append([]byte(nil), pattern[1000:6000]...))
		if _, err := unix.Write(pair[0], sent); err != nil {
			t.Fatal(err)
		}
		err = s.receive(f)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "wrong data") {
			t.Errorf("%s: %v", name, err)
		}
		unix.Close(pair[0])
		unix.Close(pair[1])
	}
}

// The pattern repeats only after a whole period, whose length no packet divides.
func TestPattern(t *testing.T) {
	for at := range block {
		if pattern[at] != pattern[at+period] {
			t.Fatalf("byte %d differs a period later", at)
		}
	}
	seen := map[string]int{}
	for at := 0; at < period; at += 97 {
		k := string(pattern[at : at+16])
		if was, found := seen[k]; found {
			t.Fatalf("the 16 bytes at %d are those at %d", at, was)
		}
		seen[k] = at
	}
}

// A stream over which nothing comes while it counts is an error, not a rate: time
// without bytes, and bytes without time.
func TestNothingArrives(t *testing.T) {
	if r := perSecond(0, 0); r != 0 {
		t.Errorf("nothing in no time is %v", r)
	}
	if r := perSecond(100, time.Second/2); r != 200 {
		t.Errorf("100 in half a second are %v", r)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	unix.Close(pair[0]) // it ends at once
	s := &stream{end: &end{site: &measure.Site{}}, buf: make([]byte, block), flows: []flow{{fd: pair[1]}}}
	if sample, err := s.move(0, 0); err == nil || !strings.Contains(err.Error(), "nothing arrived") {
		t.Errorf("%+v, %v", sample, err)
	}
}

// Streams are as iperf3's, with Nagle's algorithm, messages as sockperf's, without.
func TestNagle(t *testing.T) {
	local := measure.NetEnd{Addr: netip.MustParseAddr("127.0.0.1")}
	params := measure.Params{Ends: [2]measure.NetEnd{local, local}, Size: 64}
	for name, want := range map[string]int{"traffic/stream": 0, "traffic/pingpong": 1, "traffic/connect": 1} {
		half, err := Contenders()[name](measure.Follow, &measure.Site{}, params)
		if err != nil {
			t.Fatal(err)
		}
		var e *end
		switch h := half.(type) {
		case *stream:
			e = h.end
		case *pingPong:
			e = h.end
		case *connect:
			e = h.end
		}
		if got, err := unix.GetsockoptInt(e.bound, unix.IPPROTO_TCP, unix.TCP_NODELAY); got != want || err != nil {
			t.Errorf("%s: TCP_NODELAY is %d, %v; want %d", name, got, err, want)
		}
		half.Close()
	}
}
