package exn

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/shm"
	"exnet/mtu"
	"exnet/test/netns"
)

// DRV-1: what crosses exn0 equals what crosses a pair of veth interfaces, byte by byte and with the
// same virtio header: every TTL, fragments, options, extension headers, partial checksums,
// super-packets. Neighbour discovery is left out, because there the two differ by design.
func TestLikeVeth(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for _, size := range []int{1500, 9000, int(mtu.MaxTUN)} {
		t.Run(fmt.Sprint("MTU ", size), func(t *testing.T) {
			a, b, c, d := netns.New(t), netns.New(t), netns.New(t), netns.New(t)
			lost := fabricPair(t, a, b, size)
			netns.Veth(t, netns.End{NS: c, Link: "veth0", MTU: size, Addr: []string{"10.2.0.1/24", "fd00::1/64"}},
				netns.End{NS: d, Link: "veth0", MTU: size, Addr: []string{"10.2.0.2/24", "fd00::2/64"}})
			ours := wire{newTap(t, a, "exn0", 0), newTap(t, b, "exn0", 0)}
			veth := wire{newTap(t, c, "veth0", mtu.MACHeader), newTap(t, d, "veth0", mtu.MACHeader)}
			// First make the neighbours known, so that nothing waits and the order is
			// kept.
			first := packet{data: udp(addr6(0), addr6(1), 8, 0)}
			for len(ours.cross(t, []packet{first})) == 0 {
			}
			// Other packets like it, which waited, may come a little later.
			late := func(p packet) bool { return string(p.data) == string(first.data) }
			for round := range rounds {
				random := rand.New(rand.NewPCG(uint64(size), uint64(round)))
				var batch []packet
				for range 50 {
					batch = append(batch, randomPacket(random, size))
				}
				want := veth.cross(t, batch)
				if len(want) < len(batch)/2 {
					t.Fatalf("round %d: %d packets over veth, of %d", round, len(want), len(batch))
				}
				// A node that does not get its CPU for long loses packets and
				// counts them.
				const attempts = 10
				for attempt := 1; ; attempt++ {
					before := lost()
					wrong := compare(slices.DeleteFunc(ours.cross(t, batch), late), want)
					if wrong == "" {
						break
					}
					if attempt == attempts || lost() == before {
						t.Fatalf("round %d: %s", round, wrong)
					}
				}
			}
		})
	}
}

// compare describes what is wrong with what came over exn0, given what came over veth.
func compare(got, want []packet) string {
	// A member without room loses its copy of a multicast packet. The rest must be there, in
	// order.
	left := slices.DeleteFunc(slices.Clone(want), func(p packet) bool { return !toGroup(p) })
	for _, p := range got {
		for toGroup(p) && len(left) > 0 && !equal(p, left[0]) {
			left = left[1:]
		}
		if !toGroup(p) {
			continue
		}
		if len(left) == 0 {
			return fmt.Sprintf("a packet to a group that veth has not: %+v %x", p.vnet, p.data)
		}
		left = left[1:]
	}
	got, want = slices.DeleteFunc(got, toGroup), slices.DeleteFunc(slices.Clone(want), toGroup)
	for k := range min(len(got), len(want)) {
		if !equal(got[k], want[k]) {
			return fmt.Sprintf("packet %d:\n exn %+v %x\nveth %+v %x", k, got[k].vnet, got[k].data, want[k].vnet, want[k].data)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d packets over exn0, %d over veth", len(got), len(want))
	}
	return ""
}

func equal(a, b packet) bool { return string(a.data) == string(b.data) && a.vnet == b.vnet }

// toGroup reports whether a packet is broadcast or multicast.
func toGroup(p packet) bool {
	if p.data[0]>>4 == 6 {
		return p.data[24] == 0xff
	}
	return p.data[19] == 0xff || p.data[16]>>4 == 0xe
}

// fabricPair brings up exn0 in two namespaces. lost returns how many packets both have lost, for
// whatever reason.
func fabricPair(t *testing.T, a, b *netns.NetNS, size int) (lost func() uint64) {
	t.Helper()
	both := fabricInterfaces(t, a, b, size)
	return func() (sum uint64) {
		for _, i := range both {
			s := i.Snapshot().Statistics
			sum += s.RXErrors + s.RXDropped + s.RXOverruns + s.RXFrame + s.TXErrors + s.TXDropped + s.TXOverruns + s.TXCarrier
		}
		return sum
	}
}

func fabricInterfaces(t *testing.T, a, b *netns.NetNS, size int) (both []*Interface) {
	t.Helper()
	dir := t.TempDir() + "/fabric"
	for k, ns := range []*netns.NetNS{a, b} {
		node, err := shm.Attach(shm.Config{Dir: dir, Node: fabric.NodeID(k + 1)})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := device.Open(device.Config{Namespace: ns.String(), MAC: macOf(node.ID()), MTU: size, Addresses: prefixes(k), Offloads: exteth.CapAll})
		if err != nil {
			t.Fatal(err)
		}
		i, err := Open(Config{Node: node, Addresses: prefixes(k)}, dev)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- i.Run(ctx) }()
		t.Cleanup(func() {
			end()
			<-over
			_ = i.Close()
			_ = dev.Close()
			_ = node.Close()
		})
		<-i.Ready()
		both = append(both, i)
	}
	return both
}

// What one kernel sends to another by TCP crosses in trains and arrives as it was sent.
func TestTrainsBetweenKernels(t *testing.T) {
	for _, size := range []int{1500, 9000, int(mtu.MaxTUN)} {
		t.Run(fmt.Sprint("MTU ", size), func(t *testing.T) {
			a, b := netns.New(t), netns.New(t)
			both := fabricInterfaces(t, a, b, size)
			if both[1].dev.Offloads()&exteth.CapBig == 0 {
				t.Skip("this kernel has no BIG TCP over IPv4 (Linux 6.3)")
			}
			var l net.Listener
			var c net.Conn
			var err error
			b.Do(t, func() { l, err = net.Listen("tcp4", netip.AddrPortFrom(addr4(1), 0).String()) })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			sent := make([]byte, 64<<20)
			rand.NewChaCha8([32]byte{1}).Read(sent)
			var got []byte
			var over sync.WaitGroup
			over.Go(func() {
				if c, err := l.Accept(); err == nil {
					got, _ = io.ReadAll(c)
					c.Close()
				}
			})
			a.Do(t, func() {
				fd, fault := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err = fault; err != nil {
					return
				}
				if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: addr4(1).As4(), Port: l.Addr().(*net.TCPAddr).Port}); err != nil {
					return
				}
				f := os.NewFile(uintptr(fd), "socket")
				c, err = net.FileConn(f)
				f.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			c.Close()
			over.Wait()
			if !bytes.Equal(got, sent) {
				t.Errorf("%d bytes arrived of %d, or others", len(got), len(sent))
			}
			if n := both[0].Snapshot().Counters["tx_coupled"]; n == 0 {
				t.Error("no packet was sent as a part of another")
			}
			if s := both[1].Snapshot(); s.Counters["rx_refused_kernel"] > 0 {
				t.Errorf("the kernel refused packets: %v", s.Counters)
			}
		})
	}
}

// A wire is two packet sockets, one at each end of the path under test.
type wire [2]*tap

type tap struct {
	fd    int
	index int
	base  int // bytes of a MAC header
	lasts int // how many end-of-batch packets were sent
}

func newTap(t *testing.T, ns *netns.NetNS, name string, base int) *tap {
	t.Helper()
	s := &tap{base: base}
	ns.Do(t, func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		request, _ := unix.NewIfreq(name)
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
			t.Fatal(err)
		}
		s.fd, s.index = fd, int(request.Uint32())
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: s.index}); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// cross sends packets at one end and returns those that arrive at the other. It appends an
// end-of-batch packet, and sends that again while nothing arrives.
func (w wire) cross(t *testing.T, batch []packet) (got []packet) {
	t.Helper()
	for _, p := range batch {
		w[0].send(t, p)
		time.Sleep(20 * time.Microsecond) // so that no queue overflows
	}
	w[0].lasts++
	last := lastPacket(w[0].lasts)
	for end := time.Now().Add(patience); ; {
		w[0].send(t, packet{data: last})
		for {
			p, err := w[1].receive(t)
			switch {
			case err == unix.EAGAIN:
			case string(p.data) == string(last):
				return got
			case p.data != nil && !w[0].wasLast(p.data):
				got = append(got, p)
				continue
			default:
				continue
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing has arrived for long, after %d packets", len(got))
		}
	}
}

func lastPacket(number int) []byte { return udp(addr4(0), addr4(1), 8, 10_000+number) }

// wasLast recognizes an end-of-batch packet of an earlier batch that was sent twice.
func (s *tap) wasLast(p []byte) bool {
	for k := range s.lasts {
		if string(p) == string(lastPacket(k)) {
			return true
		}
	}
	return false
}

func (s *tap) send(t *testing.T, p packet) {
	t.Helper()
	kind := uint16(unix.ETH_P_IP)
	if p.data[0]>>4 == 6 {
		kind = unix.ETH_P_IPV6
	}
	message := make([]byte, mtu.VNetHeader)
	p.vnet.Put(message, -s.base)
	if s.base > 0 {
		message = append(message, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1)
		message = binary.BigEndian.AppendUint16(message, kind)
	}
	message = append(message, p.data...)
	to := &unix.SockaddrLinklayer{Protocol: htons(kind), Ifindex: s.index}
	if err := unix.Sendto(s.fd, message, 0, to); err != nil {
		t.Fatalf("send %+v %d bytes %x: %v", p.vnet, len(p.data), p.data[:40], err)
	}
}

// receive returns the next packet. It is empty if the other end did not send it. The error is
// EAGAIN if none comes for some time.
func (s *tap) receive(t *testing.T) (p packet, err error) {
	t.Helper()
	b := make([]byte, 1<<17)
	n, from, err := unix.Recvfrom(s.fd, b, 0)
	if err == unix.EINTR {
		return p, nil
	}
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	if l, is := from.(*unix.SockaddrLinklayer); err != nil || !is || l.Pkttype == unix.PACKET_OUTGOING || n < mtu.VNetHeader+s.base+mtu.IPv4Header {
		return p, err
	}
	v, _ := exteth.ParseVNet(b, -s.base)
	v.HdrLen = 0 // depends on how much of the packet the kernel has in one piece
	data, ours := b[mtu.VNetHeader+s.base:n], false
	switch {
	case data[0]>>4 == 4:
		ours = netip.AddrFrom4([4]byte(data[12:16])) == addr4(0)
	case len(data) >= mtu.IPv6Header:
		ours = netip.AddrFrom16([16]byte(data[8:24])) == addr6(0) && !discovery(data)
	}
	if ours {
		p = packet{data, v}
	}
	return p, nil
}

// randomPacket makes a packet from the first node to the second, or to all.
func randomPacket(r *rand.Rand, size int) packet {
	proto := [...]byte{6, 17, 1, 58, 132, byte(r.Uint32())}[r.IntN(6)]
	if proto == 2 {
		proto = 3 // IGMP is snooped
	}
	var header []byte
	if six := r.IntN(2) == 1; six {
		to := addr6(1)
		if r.IntN(8) == 0 {
			to = netip.MustParseAddr("ff02::1")
		}
		extension := make([]byte, 8*r.IntN(4))
		next := proto
		for k := range extension {
			extension[k] = byte(r.Uint32())
		}
		if n := len(extension); n > 0 {
			next = [...]byte{60, 43, 44}[r.IntN(3)]
			if next == 44 {
				extension = extension[:8]
			}
			extension[0], extension[1] = proto, byte(len(extension)/8-1)
		}
		header = append(header, 0x60|byte(r.IntN(16)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), 0, 0, next, byte(r.Uint32()))
		header = append(append(append(header, addr6(0).AsSlice()...), to.AsSlice()...), extension...)
	} else {
		to := [...]netip.Addr{addr4(1), addr4(1), addr4(1), addr4(1), addr4(1), addr4(1), netip.MustParseAddr("224.0.0.9"), netip.MustParseAddr("10.2.0.255")}[r.IntN(8)]
		options := 4 * r.IntN(11)
		if r.IntN(2) == 0 {
			options = 0
		}
		header = append(header, 0x45+byte(options/4), byte(r.Uint32()), 0, 0, byte(r.Uint32()), byte(r.Uint32()), 0, 0, byte(r.Uint32()), proto, byte(r.Uint32()), byte(r.Uint32()))
		if r.IntN(3) == 0 { // a fragment
			header[6], header[7] = byte(r.IntN(256)), byte(r.Uint32())
		}
		header = append(append(header, addr4(0).AsSlice()...), to.AsSlice()...)
		for range options {
			header = append(header, byte(r.Uint32()))
		}
	}
	var v exteth.VNet
	payload := r.IntN(size - len(header) + 1)
	if r.IntN(3) == 0 {
		payload = min(payload, r.IntN(600))
	}
	start := len(header)
	plain := start == mtu.IPv4Header && header[6]|header[7] == 0 || start == mtu.IPv6Header
	if group := header[16]>>4 == 14 || header[19] == 255; header[0]>>4 == 4 && group || header[0]>>4 == 6 && header[24] == 0xff {
		plain = false // a packet to all is completed, since receivers differ
	}
	transport := []byte(nil)
	if plain {
		switch proto {
		case 6:
			transport = make([]byte, mtu.TCPHeader)
			transport[12] = 0x50
			v = exteth.VNet{Flags: exteth.NeedsChecksum, CsumStart: uint16(start), CsumOffset: 16}
			if r.IntN(2) == 0 {
				v.GSO, v.GSOSize, v.HdrLen = exteth.GSOTCPv4, uint16(100+r.IntN(min(size, 1<<15)-200)), uint16(start+mtu.TCPHeader)
				if header[0]>>4 == 6 {
					v.GSO = exteth.GSOTCPv6
				}
				payload = int(v.GSOSize) + 1 + r.IntN(60000-int(v.GSOSize))
			}
		case 17:
			transport = make([]byte, mtu.UDPHeader)
			v = exteth.VNet{Flags: exteth.NeedsChecksum, CsumStart: uint16(start), CsumOffset: 6}
		}
		if v.GSO == exteth.GSONone {
			payload = max(0, min(payload, size-start-len(transport)))
		}
	}
	p := append(header, transport...)
	for range payload / 8 {
		p = binary.BigEndian.AppendUint64(p, r.Uint64())
	}
	for range payload % 8 {
		p = append(p, byte(r.Uint32()))
	}
	if proto == 17 && len(transport) > 0 {
		binary.BigEndian.PutUint16(p[start+4:], uint16(len(p)-start))
	}
	if p[0]>>4 == 4 {
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	} else {
		binary.BigEndian.PutUint16(p[4:], uint16(len(p)-mtu.IPv6Header))
	}
	return packet{p, v}
}
