package programs

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/test/exn"
)

// A listener is a socket bound to a port, for broadcasts and for datagrams to a group.
type listener struct {
	node *exn.Node
	conn *net.UDPConn
}

const groupPort = 7777

func listen(t *testing.T, n *exn.Node, network string) *listener {
	t.Helper()
	l := &listener{node: n}
	n.NS.Do(t, func() {
		var err error
		if l.conn, err = net.ListenUDP(network, &net.UDPAddr{Port: groupPort}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { l.conn.Close() })
	return l
}

// option sets an option of the socket, in the namespace that has its interfaces.
func (l *listener) option(t *testing.T, set func(fd, link int) error) {
	t.Helper()
	raw, err := l.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	l.node.NS.Do(t, func() {
		link, err := net.InterfaceByName(exn.Link)
		if err == nil {
			if cerr := raw.Control(func(fd uintptr) { err = set(int(fd), link.Index) }); cerr != nil {
				err = cerr
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func (l *listener) join(t *testing.T, group net.IP) { t.Helper(); l.member(t, group, true) }

func (l *listener) leave(t *testing.T, group net.IP) { t.Helper(); l.member(t, group, false) }

func (l *listener) member(t *testing.T, group net.IP, joins bool) {
	t.Helper()
	l.option(t, func(fd, link int) error {
		if v4 := group.To4(); v4 != nil {
			how := unix.IP_DROP_MEMBERSHIP
			if joins {
				how = unix.IP_ADD_MEMBERSHIP
			}
			return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, how, &unix.IPMreqn{Multiaddr: [4]byte(v4), Ifindex: int32(link)})
		}
		how := unix.IPV6_LEAVE_GROUP
		if joins {
			how = unix.IPV6_JOIN_GROUP
		}
		return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, how, &unix.IPv6Mreq{Multiaddr: [16]byte(group), Interface: uint32(link)})
	})
}

// send sends a datagram to a group or to all.
func (l *listener) send(t *testing.T, to net.IP, text string) {
	t.Helper()
	l.option(t, func(fd, link int) error {
		if to.To4() == nil {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, link)
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
			unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(link)}))
	})
	// Until duplicate address detection has ended, there is no link-local address to send from.
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := l.conn.WriteTo([]byte(text), &net.UDPAddr{IP: to, Port: groupPort})
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) || time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
}

// hears reports whether a text arrives soon. It skips what came before.
func (l *listener) hears(t *testing.T, text string) bool {
	t.Helper()
	buf := make([]byte, 64<<10)
	for deadline := time.Now().Add(300 * time.Millisecond); ; {
		l.conn.SetReadDeadline(deadline)
		n, err := l.conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:n]) == text {
			return true
		}
	}
}

// eventually waits until a listener hears what another sends, or no longer hears it: until a change
// of membership has taken effect.
func eventually(t *testing.T, from, to *listener, group net.IP, want bool) {
	t.Helper()
	for begin := time.Now(); ; {
		text := time.Now().String()
		from.send(t, group, text)
		if to.hears(t, text) == want {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%v: what %v sends to %v arrives: %v", to.node, from.node, group, !want)
		}
	}
}

// MCS-1: broadcasts reach all nodes. Datagrams to a group reach its members until they leave.
func TestMulticast(t *testing.T) {
	for _, tap := range []bool{false, true} {
		if tap && testing.Short() {
			continue
		}
		f := exn.Up(t, exn.Options{Nodes: 3, TAP: tap, Capture: true})
		for _, c := range []struct {
			network string
			group   net.IP
		}{
			{"udp4", net.IPv4(239, 1, 2, 3)},
			{"udp6", net.ParseIP("ff02::4:5")},
		} {
			a, b, other := listen(t, f.Nodes[0], c.network), listen(t, f.Nodes[1], c.network), listen(t, f.Nodes[2], c.network)
			b.join(t, c.group)
			eventually(t, a, b, c.group, true)
			text := "for members only"
			a.send(t, c.group, text)
			if !b.hears(t, text) || other.hears(t, text) {
				t.Errorf("%v: not heard by the member, or by another", c.group)
			}
			other.join(t, c.group)
			eventually(t, a, other, c.group, true)
			long := string(make([]byte, 20_000)) // by rendezvous to each member
			a.send(t, c.group, long)
			if !b.hears(t, long) || !other.hears(t, long) {
				t.Errorf("%v: a long datagram does not reach all members", c.group)
			}
			b.leave(t, c.group)
			eventually(t, a, b, c.group, false)
			eventually(t, a, other, c.group, true)
			for _, l := range []*listener{a, b, other} {
				l.conn.Close()
			}
		}
		a, b, other := listen(t, f.Nodes[0], "udp4"), listen(t, f.Nodes[1], "udp4"), listen(t, f.Nodes[2], "udp4")
		for _, all := range []net.IP{net.IPv4(255, 255, 255, 255), net.IPv4(10, 87, 0, 255)} {
			if all.Equal(net.IPv4bcast) {
				a.option(t, func(fd, _ int) error {
					return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, exn.Link)
				})
			}
			eventually(t, a, b, all, true)
			eventually(t, a, other, all, true)
		}
		for _, l := range []*listener{a, b, other} {
			l.conn.Close()
		}
	}
}
