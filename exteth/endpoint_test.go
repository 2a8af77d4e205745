package exteth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	netarp "gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"exnet/arp"
	"exnet/fabric"
	"exnet/fabric/emu"
	"exnet/fabric/shm"
	"exnet/mtu"
)

// A host is netstack on a node of a fabric.
type host struct {
	*stack.Stack
	node fabric.Node
	ep   *Endpoint
	ip4  tcpip.Address
	ip6  tcpip.Address
}

const nic = 1

// newHost starts netstack with 10.0.0.n and the link-local address of the node. TCP does not work
// in a synctest bubble: its goroutines sleep in a way that synctest does not recognize.
func newHost(t testing.TB, node fabric.Node, cfg EndpointConfig, withTCP bool) *host {
	t.Helper()
	ep, err := NewEndpoint(node, cfg)
	if err != nil {
		t.Fatal(err)
	}
	v6 := ipv6.Options{MLD: ipv6.MLDOptions{Enabled: cfg.Snoop}}
	if !withTCP { // in virtual time this costs nothing
		v6.DADConfigs = stack.DefaultDADConfigurations()
	}
	opts := stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			netarp.NewProtocol,
			ipv4.NewProtocolWithOptions(ipv4.Options{IGMP: ipv4.IGMPOptions{Enabled: cfg.Snoop}}),
			ipv6.NewProtocolWithOptions(v6),
		},
		TransportProtocols: []stack.TransportProtocolFactory{udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	}
	if withTCP {
		opts.TransportProtocols = append(opts.TransportProtocols, tcp.NewProtocol)
	}
	h := &host{Stack: stack.New(opts), node: node, ep: ep}
	if err := h.CreateNIC(nic, ep); err != nil {
		t.Fatal(err)
	}
	h.ip4 = tcpip.AddrFrom4([4]byte{10, 0, 0, byte(node.ID())})
	h.ip6 = tcpip.AddrFrom16(arp.LinkLocal(ep.MAC()).As16())
	for _, a := range []tcpip.ProtocolAddress{
		{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: h.ip4, PrefixLen: 24}},
		{Protocol: ipv6.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: h.ip6, PrefixLen: 64}},
	} {
		if err := h.AddProtocolAddress(nic, a, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	h.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return h
}

func (h *host) address(v6 bool) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	if v6 {
		return tcpip.FullAddress{NIC: nic, Addr: h.ip6, Port: 80}, ipv6.ProtocolNumber
	}
	return tcpip.FullAddress{NIC: nic, Addr: h.ip4, Port: 80}, ipv4.ProtocolNumber
}

// transfer moves n bytes each way over one TCP connection and compares them.
func transfer(t *testing.T, a, b *host, v6 bool, n int) {
	t.Helper()
	to, proto := b.address(v6)
	l, err := gonet.ListenTCP(b.Stack, to, proto)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type conn interface {
		io.ReadWriter
		CloseWrite() error
		Close() error
	}
	both := func(c conn, seed uint64) error {
		defer c.Close()
		var wg sync.WaitGroup
		var writeErr error
		wg.Go(func() {
			r := rand.NewChaCha8([32]byte{byte(seed)})
			buf := make([]byte, 256<<10)
			for left := n; left > 0 && writeErr == nil; {
				k := min(left, len(buf))
				_, _ = r.Read(buf[:k])
				_, writeErr = c.Write(buf[:k])
				left -= k
			}
			writeErr = errors.Join(writeErr, c.CloseWrite())
		})
		got, want := sha256.New(), sha256.New()
		m, err := io.Copy(got, c)
		_, _ = io.CopyN(want, rand.NewChaCha8([32]byte{byte(seed ^ 1)}), int64(n))
		wg.Wait()
		if err = errors.Join(err, writeErr); err != nil {
			return err
		}
		if m != int64(n) || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
			return fmt.Errorf("%d of %d bytes arrived, or they differ", m, n)
		}
		return nil
	}
	server := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = both(c.(conn), 0)
		}
		server <- err
	}()
	c, err := gonet.DialContextTCP(context.Background(), a.Stack, to, proto)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if err := both(c, 1); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := <-server; err != nil {
		t.Errorf("server: %v", err)
	}
}

// stop ends hosts and their nodes.
func stop(hosts ...*host) {
	for _, h := range hosts {
		h.Destroy()
		<-h.ep.Done()
		_ = h.node.Close()
	}
}

// losses formats the counters of a node that are not zero.
func losses(e *Endpoint) string {
	var s strings.Builder
	for c := range Counters {
		if n := e.Statistics().Get(c); n > 0 {
			fmt.Fprintf(&s, " %v=%d", c, n)
		}
	}
	return s.String()
}

// TCP of netstack works end to end in shared memory, both with frames read from the peer's memory
// and with a copying GET.
func TestEndpointTCPOverShm(t *testing.T) {
	for _, c := range []struct {
		name string
		v6   bool
		a, b Config
	}{
		{"IPv4", false, Config{}, Config{}},
		{"IPv6", true, Config{}, Config{}},
		{"copy", false, Config{Copy: true}, Config{Copy: true}},
		{"MTU 1500", false, Config{MTU: 1500}, Config{MTU: 1500}},
		{"MTU 1500 and 65536", false, Config{MTU: 1500}, Config{}},
		{"few buffers", false, Config{Buffers: 4}, Config{Buffers: 4, Copy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir() + "/fabric"
			var hosts [2]*host
			for i, cfg := range []Config{c.a, c.b} {
				node, err := shm.Attach(shm.Config{Dir: dir, Node: fabric.NodeID(i + 1)})
				if err != nil {
					t.Fatal(err)
				}
				hosts[i] = newHost(t, node, EndpointConfig{Engine: cfg}, true)
			}
			defer stop(hosts[:]...)
			transfer(t, hosts[0], hosts[1], c.v6, 8<<20)
			for _, h := range hosts {
				t.Log(losses(h.ep))
				if h.ep.Statistics().Get(TXSegmented) != 0 {
					t.Error("a super-packet was cut for a receiver that takes it")
				}
			}
		})
	}
}

// TCP of netstack works end to end over a network with faults: all bytes arrive.
func TestEndpointTCPOverEmu(t *testing.T) {
	for name, c := range map[string]struct {
		v6       bool
		scenario string
	}{
		"perfect":      {false, ""},
		"perfect IPv6": {true, ""},
		"slow": {false, `
			link * -> * latency 50us jitter 20us bandwidth 2G`},
		"errors": {false, `
			link * -> * latency 5us errors 2e-6 retries 3 1us`},
		"stalls": {false, `
			link * -> * latency 5us bandwidth 1G
			at 20ms link 1 -> 2 stall 30ms
			at 60ms link 2 -> 1 stall 300ms`},
		"down and up": {false, `
			link * -> * latency 5us bandwidth 1G
			at 20ms link 1 <-> 2 down
			at 320ms link 1 <-> 2 up`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net := emu.New(emu.Config{Seed: 1})
			defer net.Close()
			var lines []string
			for _, l := range strings.Split(c.scenario, "\n") {
				lines = append(lines, strings.TrimSpace(l))
			}
			s, err := emu.ParseScenario(strings.NewReader(strings.Join(lines, "\n")))
			if err != nil {
				t.Fatal(err)
			}
			var hosts [2]*host
			for i := range hosts {
				node, err := net.Attach(fabric.NodeID(i + 1))
				if err != nil {
					t.Fatal(err)
				}
				hosts[i] = newHost(t, node, EndpointConfig{}, true)
			}
			defer stop(hosts[:]...)
			net.Play(s)
			transfer(t, hosts[0], hosts[1], c.v6, 4<<20)
			for _, h := range hosts {
				t.Log(losses(h.ep))
			}
		})
	}
}

// bubble runs a test with n hosts in virtual time.
func bubble(t *testing.T, n int, cfg EndpointConfig, f func(t *testing.T, net *emu.Network, hosts []*host)) {
	synctest.Test(t, func(t *testing.T) {
		net := emu.New(emu.Config{Seed: 7})
		defer net.Close()
		net.Link(fabric.NodeAny, fabric.NodeAny).Set(emu.Latency(2 * time.Microsecond))
		hosts := make([]*host, n)
		for i := range hosts {
			node, err := net.Attach(fabric.NodeID(i + 1))
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = newHost(t, node, cfg, false)
		}
		defer stop(hosts...)
		time.Sleep(2 * time.Second) // NDP-1: wait until duplicate address detection has passed
		f(t, net, hosts)
	})
}

func listenUDP(t *testing.T, h *host, v6 bool) *gonet.UDPConn {
	t.Helper()
	a, proto := h.address(v6)
	c, err := gonet.DialUDP(h.Stack, &a, nil, proto)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dialUDP(t *testing.T, from, to *host, v6 bool) *gonet.UDPConn {
	t.Helper()
	a, proto := to.address(v6)
	c, err := gonet.DialUDP(from.Stack, nil, &a, proto)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RDV-4, ARP-1, NDP-1: datagrams of all sizes arrive in order, over IPv4 and IPv6, in virtual time.
// Between them lie 24 hours, in which neighbour entries expire.
func TestRDV4EndpointUDP(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		bubble(t, 2, EndpointConfig{Snoop: true}, func(t *testing.T, net *emu.Network, hosts []*host) {
			in := listenUDP(t, hosts[1], v6)
			defer in.Close()
			out := dialUDP(t, hosts[0], hosts[1], v6)
			defer out.Close()
			net.Link(fabric.NodeAny, fabric.NodeAny).Set(emu.Jitter(3*time.Microsecond), emu.Bandwidth(100e9))
			r := rand.New(rand.NewPCG(1, 2))
			buf := make([]byte, 65536)
			for round := range 24 {
				for k := range 20 {
					n := r.IntN(65000) + 8
					if k%2 == 0 {
						n = r.IntN(600) + 8
					}
					b := make([]byte, n)
					binary.BigEndian.PutUint64(b, uint64(round*20+k))
					if _, err := out.Write(b); err != nil {
						t.Fatalf("datagram of %d bytes: %v", n, err)
					}
				}
				for k := range 20 {
					_ = in.SetReadDeadline(time.Now().Add(time.Second))
					n, err := in.Read(buf)
					if err != nil || n < 8 || binary.BigEndian.Uint64(buf) != uint64(round*20+k) {
						t.Fatalf("round %d: datagram %d: %d bytes, number %d, %v;%s;%s", round, k, n, binary.BigEndian.Uint64(buf), err, losses(hosts[0].ep), losses(hosts[1].ep))
					}
				}
				time.Sleep(time.Hour)
			}
			for i, h := range hosts {
				if s := h.ep.Statistics().Interface(); s.RXErrors+s.RXDropped+s.RXOverruns+s.RXFrame+s.TXErrors+s.TXDropped+s.TXOverruns+s.TXCarrier != 0 {
					t.Errorf("host %d lost something:%s", i, losses(h.ep))
				}
			}
		})
	}
}

// A node that crashes loses its own frames, which are counted. It works again as soon as it is
// back.
func TestEndpointNodeCrash(t *testing.T) {
	bubble(t, 3, EndpointConfig{}, func(t *testing.T, net *emu.Network, hosts []*host) {
		out := dialUDP(t, hosts[0], hosts[1], false)
		defer out.Close()
		other := dialUDP(t, hosts[0], hosts[2], false)
		defer other.Close()
		in := listenUDP(t, hosts[2], false)
		defer in.Close()
		listener := listenUDP(t, hosts[1], false) // otherwise ICMP reports a closed port
		big := make([]byte, 9000)
		for range 3 {
			_, _ = out.Write(big)
			_, _ = other.Write(big)
		}
		time.Sleep(time.Second)
		net.Crash(2)
		for range 10 {
			if _, err := out.Write(big); err != nil {
				t.Error(err)
			}
			if _, err := other.Write(big); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if hosts[0].ep.engine.peers.get(2) != nil {
			t.Error("the engine was not told that the node is gone")
		}
		listener.Close()
		stop(hosts[1])
		node, err := net.Attach(2)
		if err != nil {
			t.Fatal(err)
		}
		hosts[1] = newHost(t, node, EndpointConfig{}, false)
		time.Sleep(2 * time.Second)
		in1 := listenUDP(t, hosts[1], false)
		defer in1.Close()
		_, _ = out.Write(big)
		buf := make([]byte, 65536)
		_ = in1.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := in1.Read(buf); err != nil || n != len(big) {
			t.Errorf("the node is back, but got %d bytes, %v", n, err)
		}
		for i := range 13 {
			_ = in.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := in.Read(buf); err != nil || n != len(big) {
				t.Fatalf("the other node lost datagram %d: %v", i, err)
			}
		}
		time.Sleep(time.Second)
		if s := hosts[0].ep.Statistics(); s.Get(TXNoNode)+s.Get(TXNodeLeft) != 10 {
			t.Errorf("10 frames were lost, counted:%s", losses(hosts[0].ep))
		}
	})
}

// RDV-3 in virtual time: if the network loses the GET, the transfer ends by its time-out.
func TestRDV3EndpointStall(t *testing.T) {
	bubble(t, 2, EndpointConfig{}, func(t *testing.T, net *emu.Network, hosts []*host) {
		out := dialUDP(t, hosts[0], hosts[1], false)
		defer out.Close()
		in := listenUDP(t, hosts[1], false)
		defer in.Close()
		buf := make([]byte, 65536)
		_, _ = out.Write(make([]byte, 9000))
		if n, err := in.Read(buf); err != nil || n != 9000 {
			t.Fatal(n, err)
		}
		net.Link(2, 1).Set(emu.Stall(500 * time.Millisecond))
		_, _ = out.Write(make([]byte, 9001))
		time.Sleep(DefaultTimeout + time.Millisecond)
		if n := hosts[0].ep.Statistics().Get(TXTimeout); n != 1 {
			t.Errorf("%d time-outs:%s", n, losses(hosts[0].ep))
		}
		time.Sleep(time.Second)
		_, _ = out.Write(make([]byte, 9002))
		_ = in.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := in.Read(buf); err != nil || n != 9002 {
			t.Errorf("after the stall: %d bytes, %v;%s", n, err, losses(hosts[1].ep))
		}
	})
}

// MCS-1: members of a group get its datagrams, other nodes do not.
func TestMCS1Endpoint(t *testing.T) {
	bubble(t, 3, EndpointConfig{Snoop: true}, func(t *testing.T, net *emu.Network, hosts []*host) {
		group := tcpip.AddrFrom4([4]byte{239, 1, 2, 3})
		if err := hosts[1].JoinGroup(ipv4.ProtocolNumber, nic, group); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		to := tcpip.FullAddress{NIC: nic, Addr: group, Port: 80}
		out, err := gonet.DialUDP(hosts[0].Stack, nil, &to, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		any := tcpip.FullAddress{NIC: nic, Port: 80}
		in, err := gonet.DialUDP(hosts[1].Stack, &any, nil, ipv4.ProtocolNumber)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		buf := make([]byte, 65536)
		before := hosts[2].ep.Statistics().Get(RXMulticast)
		for _, n := range []int{10, 1000, 5000, 60000} {
			_, _ = out.Write(make([]byte, n))
			_ = in.SetReadDeadline(time.Now().Add(time.Second))
			if got, err := in.Read(buf); err != nil || got != n {
				t.Errorf("%d bytes: got %d, %v;%s", n, got, err, losses(hosts[1].ep))
			}
		}
		if got := hosts[2].ep.Statistics().Get(RXMulticast) - before; got != 0 {
			t.Errorf("a node that did not join got %d frames", got)
		}
		if err := hosts[1].LeaveGroup(ipv4.ProtocolNumber, nic, group); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := len(hosts[0].node.Members(10)); n != 0 { // 239.1.2.3 is in fabric group 10
			t.Errorf("%d members of the fabric group after leaving", n)
		}
	})
}

// MTU-1: ICMP tells the sender of a smaller MTU.
func TestMTU1Endpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := emu.New(emu.Config{})
		defer net.Close()
		var hosts [2]*host
		for i, m := range []mtu.Link{9000, 1500} {
			node, err := net.Attach(fabric.NodeID(i + 1))
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = newHost(t, node, EndpointConfig{Engine: Config{MTU: m}}, false)
		}
		defer stop(hosts[:]...)
		time.Sleep(2 * time.Second)
		for _, v6 := range []bool{false, true} {
			out := dialUDP(t, hosts[0], hosts[1], v6)
			_, _ = out.Write(make([]byte, 4000))
			time.Sleep(time.Second)
			out.Close()
		}
		s := hosts[0].Stats().ICMP
		if n := s.V4.PacketsReceived.DstUnreachable.Value(); n != 1 {
			t.Errorf("%d ICMP errors", n)
		}
		if n := s.V6.PacketsReceived.PacketTooBig.Value(); n != 1 {
			t.Errorf("%d ICMPv6 errors", n)
		}
		if n := hosts[0].ep.Statistics().Get(TXTooBig); n != 2 {
			t.Errorf("counted %d", n)
		}
	})
}

// RFC 1122, RFC 4443: packets that must not be answered are not. Answers quote the packet
// correctly.
func TestAppendTooBig(t *testing.T) {
	f4 := super{payload: 3000, completeOnly: true, to: node(1)}.reference()[0]
	f6 := super{v6: true, payload: 3000, completeOnly: true, to: node(1)}.reference()[0]
	for name, c := range map[string]struct {
		frame []byte
		quote int
	}{"IPv4": {f4, 548}, "IPv6": {f6, 1232}} {
		got, ok := AppendTooBig(nil, c.frame, 1500)
		if !ok || !bytes.Equal(got[:6], c.frame[6:12]) || !bytes.HasSuffix(got, c.frame[14:14+c.quote]) {
			t.Fatalf("%s: % x", name, got[:min(80, len(got))])
		}
		if name == "IPv4" {
			ip := header.IPv4(got[14:])
			msg := header.ICMPv4(ip.Payload())
			if !ip.IsValid(len(got)-14) || !ip.IsChecksumValid() || header.ICMPv4Checksum(msg, 0) != msg.Checksum() || msg.MTU() != 1500 {
				t.Errorf("bad answer % x", got[:60])
			}
		} else {
			ip := header.IPv6(got[14:])
			msg := header.ICMPv6(ip.Payload())
			want := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: msg, Src: ip.SourceAddress(), Dst: ip.DestinationAddress()})
			if !ip.IsValid(len(got)-14) || want != msg.Checksum() || msg.MTU() != 1500 {
				t.Errorf("bad answer % x", got[:80])
			}
		}
	}
	// A packet to an IPv6 group is answered, as from its sender (RFC 4443, 2.4 e.3).
	group := bytes.Clone(f6)
	group[0], group[14+24] = 0x33, 0xff
	if got, ok := AppendTooBig(nil, group, 1500); !ok || !bytes.Equal(got[14+8:14+24], f6[14+8:14+24]) || !bytes.Equal(got[6:12], f6[6:12]) {
		t.Errorf("to a group: %v, % x", ok, got[:min(60, len(got))])
	}
	for name, change := range map[string]func(f []byte) []byte{
		"group":            func(f []byte) []byte { f[0] |= 1; return f },
		"from a group":     func(f []byte) []byte { f[6] |= 1; return f },
		"ICMP error":       func(f []byte) []byte { f[14+9], f[34] = 1, 3; return f },
		"later fragment":   func(f []byte) []byte { f[14+7] = 5; return f },
		"no source":        func(f []byte) []byte { copy(f[14+12:], []byte{0, 0, 0, 0}); return f },
		"not IP":           func(f []byte) []byte { f[12] = 9; return f },
		"cut":              func(f []byte) []byte { return f[:40] },
		"multicast source": func(f []byte) []byte { f[14+12] = 224; return f },
	} {
		if got, ok := AppendTooBig(nil, change(bytes.Clone(f4)), 1500); ok || got != nil {
			t.Errorf("%s is answered", name)
		}
	}
}
