package device

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/exteth"
	"exnet/mtu"
	"exnet/test/netns"
)

// netip4 holds addresses in the form that older packages want.
var netip4 = struct{ lease net.IPNet }{net.IPNet{IP: net.IPv4(10, 9, 0, 9), Mask: net.CIDRMask(24, 32)}}

// A station is a TUN with an IPv4 socket behind it, connected to an address on the other side of
// the device.
type station struct {
	*TunTap
	socket *net.UDPConn
}

func newStation(t *testing.T, c Config) station {
	t.Helper()
	ns := netns.New(t)
	c.Namespace, c.Addresses = ns.String(), prefixes("10.2.0.8/24")
	s := station{TunTap: open(t, c)}
	if err := s.SetCarrier(true); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitRunning(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() {
		var err error
		s.socket, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 2, 0, 8), Port: 7}, &net.UDPAddr{IP: net.IPv4(10, 2, 0, 9), Port: 9})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { s.socket.Close() })
	return s
}

// read reads a packet to the beginning of a buffer.
func (s station) read(packet []byte) (int, exteth.VNet, error) {
	b := make([]byte, Headroom+len(packet))
	n, v, err := s.Read(b)
	copy(packet, b[Headroom:])
	return n, v, err
}

// next waits for the next packet of the socket. It skips others, such as router solicitations.
func (s station) next(t *testing.T, packet []byte) (int, exteth.VNet) {
	t.Helper()
	for {
		switch n, v, err := s.read(packet); {
		case err == ErrEmpty:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.FD()), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		case err != nil:
			t.Fatal(err)
		case packet[0]>>4 == 4 && packet[9] == unix.IPPROTO_UDP:
			return n, v
		}
	}
}

// A datagram comes out with a partial checksum. It goes back in unchanged except for the addresses,
// which are swapped, so the sum stays the same.
func TestEcho(t *testing.T) {
	for _, c := range []struct {
		name    string
		c       Config
		payload int
	}{
		{"short", Config{Offloads: exteth.CapAll}, 100},
		{"long", Config{Offloads: exteth.CapAll}, 65507},
		{"complete", Config{}, 65507},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStation(t, c.c)
			sent := bytes.Repeat([]byte("exnet"), c.payload/5+1)[:c.payload]
			if _, err := s.socket.Write(sent); err != nil {
				t.Fatal(err)
			}
			packet := make([]byte, 1<<17)
			n, v := s.next(t, packet)
			if n != c.payload+mtu.IPv4Header+mtu.UDPHeader {
				t.Fatalf("%d bytes", n)
			}
			if partial := v.Flags&exteth.NeedsChecksum != 0; partial != (c.c.Offloads != 0) || partial && (v.CsumStart != mtu.IPv4Header || v.CsumOffset != 6) {
				t.Errorf("virtio header %+v", v)
			}
			for i := range 4 {
				packet[12+i], packet[16+i] = packet[16+i], packet[12+i]
			}
			for i := range 2 {
				packet[20+i], packet[22+i] = packet[22+i], packet[20+i]
			}
			if err := s.Write(packet[:n], v); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1<<17)
			if n, err := s.socket.Read(got); err != nil || !bytes.Equal(got[:n], sent) {
				t.Errorf("got %d bytes back: %v", n, err)
			}
		})
	}
}

// The kernel acts on the offloads, even when they change.
func TestSwitchingUSO(t *testing.T) {
	s := newStation(t, Config{Offloads: exteth.CapAll, MTU: 1500})
	if s.Offloads()&exteth.CapUSO == 0 {
		t.Skip("this kernel has no USO (Linux 6.2)")
	}
	raw, err := s.socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) })
	if err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 1<<17)
	for _, whole := range []bool{true, false, true} {
		caps := exteth.CapChecksum
		if whole {
			caps = exteth.CapAll
		}
		if err := s.SetOffloads(caps); err != nil {
			t.Fatal(err)
		}
		if _, err := s.socket.Write(make([]byte, 3000)); err != nil {
			t.Fatal(err)
		}
		n, v := s.next(t, packet)
		if whole && (n != 3028 || v.GSO != exteth.GSOUDP || v.GSOSize != 1000) {
			t.Errorf("with USO: %d bytes, %+v", n, v)
		}
		for i := 0; !whole && i < 3; i++ {
			if n != 1028 || v.GSO != exteth.GSONone {
				t.Errorf("without USO: %d bytes, %+v", n, v)
			}
			if i < 2 {
				n, v = s.next(t, packet)
			}
		}
	}
}

func TestReadWriteErrors(t *testing.T) {
	s := newStation(t, Config{})
	packet := make([]byte, 2000)
	for err := error(nil); err != ErrEmpty; {
		if _, _, err = s.read(packet); err != nil && err != ErrEmpty {
			t.Fatal(err)
		}
	}
	s.socket.Write(make([]byte, 1000))
	for {
		_, _, err := s.read(packet[:1028]) // no room for one byte more than the packet
		if err == ErrRefused {
			break
		}
		if err != nil {
			t.Fatalf("a packet that may be cut: %v", err)
		}
	}
	for _, bad := range [][]byte{nil, {0}, {0xf0, 1, 2}} {
		if err := s.Write(bad, exteth.VNet{}); err != ErrRefused {
			t.Errorf("writing %x: %v", bad, err)
		}
	}
	if err := s.Write(packet[:28], exteth.VNet{Flags: exteth.NeedsChecksum, CsumStart: 5000}); err != ErrRefused {
		t.Errorf("an impossible virtio header: %v", err)
	}
	link, err := s.handle.LinkByIndex(s.index)
	if err == nil {
		err = s.handle.LinkSetDown(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	packet[0] = 0x45
	if err := s.Write(packet[:28], exteth.VNet{}); err != ErrDown {
		t.Errorf("writing to an interface that is down: %v", err)
	}
	if err := s.handle.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	_, _, readErr := s.read(packet)
	if writeErr := s.Write(packet[:28], exteth.VNet{}); readErr != ErrGone || writeErr != ErrGone {
		t.Errorf("an interface that was removed: %v, %v", readErr, writeErr)
	}
	if _, err := s.Status(); err == nil {
		t.Error("an interface that was removed has a status")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadWriteAlloc(t *testing.T) {
	s := newStation(t, Config{Offloads: exteth.CapAll})
	packet := make([]byte, 1<<17)
	if n := testing.AllocsPerRun(100, func() {
		s.Read(packet)
		s.Write(packet[:0], exteth.VNet{})
		s.Write(packet[:100], exteth.VNet{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
