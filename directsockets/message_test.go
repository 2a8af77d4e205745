package directsockets

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"exnet/directsockets/home"
	vector "exnet/test/ds/lane"
)

// Messages and offers are identical to those of the C library.
func TestMessageVectors(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the vectors are of little-endian machines")
	}
	kinds, offers := map[uint32]message{}, 0
	for _, l := range vector.Lines(t, "testdata/lane/forward.txt") {
		switch l[0] {
		case "offer":
			offers++
			ends := tuple{netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("127.0.0.1:40000")}
			if got := (home.View{Net: 1, Local: ends.local, Remote: ends.remote}).Offer(); got != l[2] {
				t.Errorf("offer %s, the C library has %s", got, l[2])
			}
		case "message":
			var b [messageSize]byte
			copy(b[:], vector.Unfold(t, l[2:]))
			var m message
			if !m.decode(&b) || !bytes.Equal(m.encode(), b[:]) {
				t.Errorf("%+v: %x\nfrom %x", m, m.encode(), b)
			}
			kinds[m.kind] = m
		}
	}
	hello, attach, ok := kinds[msgHello], kinds[msgAttach], kinds[msgAttachOK]
	if offers == 0 || hello.name != "p-1-0123456789abcdef" || hello.size != hello.geometry.Size() ||
		attach.inode != 1000 || attach.peerInode != 2000 || attach.tuple.remote.Port() != 80 || attach.generation != 1 ||
		ok.inode != 2000 {
		t.Errorf("%d offers, %+v", offers, kinds)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add((&message{kind: msgHello, name: "p-1-x"}).encode())
	f.Add(bytes.Repeat([]byte{255}, messageSize))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b [messageSize]byte
		copy(b[:], text)
		var m, again message
		if !m.decode(&b) {
			return
		}
		if len(m.name) >= nameSize {
			t.Fatal("a name without end")
		}
		if !again.decode((*[messageSize]byte)(m.encode())) || again != m {
			t.Fatalf("%+v becomes %+v", m, again)
		}
	})
}

// Both ends decide alike which of two requests stays.
func TestFirst(t *testing.T) {
	for _, x := range []tuple{
		{netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("127.0.0.1:40000")},
		{netip.MustParseAddrPort("127.0.0.2:80"), netip.MustParseAddrPort("127.0.0.1:40000")},
		{netip.MustParseAddrPort("[::1]:256"), netip.MustParseAddrPort("[::1]:1")},
	} {
		a, b := Conn{tuple: x, other: x.turned()}, Conn{tuple: x.turned(), other: x}
		if a.first() == b.first() {
			t.Errorf("%v: undecided", x)
		}
	}
}

func TestUpgrades(t *testing.T) {
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for ends, want := range map[string]bool{
		"127.0.0.1 127.0.0.2": true, "::1 ::1": true, "10.1.0.1 10.2.0.1": true, "192.0.2.1 192.0.2.1": true,
		"127.0.0.1 10.0.0.1": false, "192.0.2.1 192.0.2.2": false, "10.1.0.1 192.0.2.1": false,
	} {
		a, b, _ := strings.Cut(ends, " ")
		x := tuple{netip.AddrPortFrom(netip.MustParseAddr(a), 1), netip.AddrPortFrom(netip.MustParseAddr(b), 2)}
		if x.inland(subnets) != want {
			t.Errorf("%s: %v", ends, !want)
		}
	}
}
