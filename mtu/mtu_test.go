package mtu

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// MTU-1 and RDV-2: the limits are those of the specification.
func TestMTU1Limits(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"MAC header", MACHeader, 14},
		{"default link", int(DefaultLink), 65536},
		{"IPv4 on the default link", int(DefaultLink.IPv4()), 65535},
		{"largest link", int(MaxLink), 8388594},
		{"largest frame", int(MaxLink.Frame()), 8388608},
		{"TUN", int(MaxTUN), 65535},
		{"TAP", int(MaxTAP), 65521},
		{"frame of the default link", int(DefaultLink.Frame()), 65550},
		{"TUN on the default link", int(DefaultLink.TUN()), 65535},
		{"TAP on the default link", int(DefaultLink.TAP()), 65521},
		{"IPv6 on the default link", int(DefaultLink.IPv6Packet()), 65536},
		{"IPv6 on the largest link", int(MaxLink.IPv6Packet()), 65575},
		{"virtio header", VNetHeader, 10},
		{"virtio header with num_buffers", VNetHeaderMerge, 12},
		{"payload of a short frame", int(Frame(3).Link()), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, c.got, c.want)
		}
	}
}

// MTU-1: a request above a limit gives an error that names the limit and the request.
func TestMTU1CheckErrors(t *testing.T) {
	link := func(n int) error { _, err := CheckLink(n); return err }
	tun := func(n int) error { _, err := CheckTUN(n); return err }
	tap := func(n int) error { _, err := CheckTAP(n); return err }
	for _, c := range []struct {
		name  string
		check func(int) error
		n     int
		says  string // empty: accepted
	}{
		{"link", link, 68, ""},
		{"link", link, 67, "68 to 8388594"},
		{"link", link, 8388594, ""},
		{"link", link, 8388595, "68 to 8388594"},
		{"tun", tun, 65535, ""},
		{"tun", tun, 65536, "68 to 65535"},
		{"tun", tun, 0, "68 to 65535"},
		{"tap", tap, 65521, ""},
		{"tap", tap, 65522, "a TUN device up to 65535"},
		{"tap", tap, -1, "68 to 65521"},
	} {
		err := c.check(c.n)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s %d: %v", c.name, c.n, err)
		case c.says != "" && (err == nil || !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s %d: error %v does not say %q", c.name, c.n, err, c.says)
		}
	}
}

func TestTooBig(t *testing.T) {
	for _, c := range []struct {
		own, peer Link
		f         Family
		n         int
		tell      IP
		tooBig    bool
	}{
		{65536, 1500, IPv4, 1500, 1500, false},
		{65536, 1500, IPv4, 1501, 1500, true},
		{1500, 9000, IPv6, 1501, 1500, true},
		{65536, 1000, IPv6, 1100, 1280, true}, // IPv6 is never told less than 1280
		{65536, 65536, IPv4, 65535, 65535, false},
		{65536, 65536, IPv6, 65536, 65536, false},
		{65536, 60, IPv4, 61, 68, true},
	} {
		tell, tooBig := Path(c.own, c.peer).TooBig(c.f, c.n)
		if tell != c.tell || tooBig != c.tooBig {
			t.Errorf("own %d, peer %d, IPv%d, %d bytes: got %d %v, want %d %v", c.own, c.peer, c.f, c.n, tell, tooBig, c.tell, c.tooBig)
		}
	}
	if n := TooBigQuote(IPv4, 9000); n+IPv4Header+ICMPHeader != 576 {
		t.Errorf("IPv4 quotes %d", n)
	}
	if n := TooBigQuote(IPv6, 9000); n+IPv6Header+ICMPHeader != 1280 {
		t.Errorf("IPv6 quotes %d", n)
	}
	if n := TooBigQuote(IPv6, 40); n != 40 {
		t.Errorf("a short packet is quoted with %d bytes", n)
	}
}

func TestMSS(t *testing.T) {
	for _, c := range []struct {
		l    Link
		f    Family
		want int
	}{{1500, IPv4, 1460}, {1500, IPv6, 1440}, {65536, IPv4, 65495}, {65536, IPv6, 65476}, {MaxLink, IPv6, 65515}, {20, IPv4, 0}} {
		if got := c.l.MSS(c.f); got != c.want {
			t.Errorf("link %d IPv%d: MSS %d, want %d", c.l, c.f, got, c.want)
		}
	}
}

func TestGSO(t *testing.T) {
	g := GSO{Header: 52, Payload: 65535 - 52, Size: 1448}
	if g.Segments() != 46 || g.SegmentIP() != 1500 || g.LastPayload() != 65483-45*1448 {
		t.Errorf("%+v: %d segments, longest %d, last %d", g, g.Segments(), g.SegmentIP(), g.LastPayload())
	}
	for _, bad := range []GSO{{52, 0, 1448}, {52, 10, 0}, {-1, 10, 10}} {
		if bad.Segments() != 0 || bad.LastPayload() != 0 {
			t.Errorf("%+v has segments", bad)
		}
	}
	// Cutting by hand gives the same result.
	rapid.Check(t, func(t *rapid.T) {
		g := GSO{rapid.IntRange(0, 120).Draw(t, "header"), rapid.IntRange(1, 70000).Draw(t, "payload"), rapid.IntRange(1, 70000).Draw(t, "size")}
		segments, longest, last, bytes := 0, 0, 0, 0
		for left := g.Payload; left > 0; left -= last {
			last = min(left, g.Size)
			segments, longest, bytes = segments+1, max(longest, g.Header+last), bytes+MACHeader+g.Header+last
		}
		if segments != g.Segments() || longest != g.SegmentIP() || last != g.LastPayload() || bytes != g.Bytes() {
			t.Fatalf("%+v: want %d %d %d %d, got %d %d %d %d", g, segments, longest, last, bytes, g.Segments(), g.SegmentIP(), g.LastPayload(), g.Bytes())
		}
	})
}
