package bridge

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/test/netns"
)

func ends(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// record makes a namespace's table say that packets between these ends go out as others. No packet
// is needed for that.
func record(t *testing.T, ns *netns.NetNS, in, out packet) {
	t.Helper()
	tuple := func(p packet) netlink.IPTuple {
		return netlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: p.src.Addr().AsSlice(), SrcPort: p.src.Port(), DstIP: p.dst.Addr().AsSlice(), DstPort: p.dst.Port()}
	}
	family := uint8(unix.AF_INET)
	if in.src.Addr().Is6() {
		family = unix.AF_INET6
	}
	flow := &netlink.ConntrackFlow{FamilyType: family, Forward: tuple(in), Reverse: tuple(packet{out.dst, out.src}), TimeOut: 60,
		ProtoInfo: &netlink.ProtoInfoTCP{State: 3}} // established
	ns.Do(t, func() {
		if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(family), flow); err != nil {
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
				t.Skipf("no table of connections here: %v", err)
			}
			t.Fatal(err)
		}
	})
}

// connected makes a connection from one namespace to a listener in another.
func connected(t *testing.T, from, to *netns.NetNS, address string) (client, server netip.AddrPort) {
	t.Helper()
	var l net.Listener
	to.Do(t, func() {
		var err error
		if l, err = net.Listen("tcp", net.JoinHostPort(address, "0")); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	from.Do(t, func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		client, server = c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	})
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return client, server
}

// The other end of a connection is found through the tables of all namespaces on the way.
func TestFollow(t *testing.T) {
	h := newHost(t)
	a, b := h.container("a", true, "10.9.0.2/24", "fd00:9::2/64"), h.container("b", true, "10.9.0.3/24", "fd00:9::3/64")
	cookie := func(ns *netns.NetNS) (cookie uint64) {
		ns.Do(t, func() {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				cookie, err = unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
				unix.Close(s)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		return cookie
	}
	inHost, inA, inB := cookie(h.ns), cookie(a), cookie(b)
	tr := &translator{mine: inHost, log: slog.New(slog.DiscardHandler)}
	h.ns.Do(t, func() {
		found, err := members(nil, inHost)
		if err != nil {
			t.Fatal(err)
		}
		owner, paths := map[netip.Addr]uint64{}, map[uint64]string{}
		for _, m := range found.all {
			paths[m.cookie] = m.path
			for _, a := range m.addresses {
				owner[a] = m.cookie
			}
		}
		tr.know(owner, paths)
	})
	toHost, host := connected(t, b, h.ns, "10.9.0.1")
	toA, server := connected(t, h.ns, a, "10.9.0.2")
	toHost2, host2 := connected(t, b, h.ns, "10.9.0.1")
	six, host6 := connected(t, b, h.ns, "fd00:9::1")
	between, server2 := connected(t, b, a, "10.9.0.2")
	service, inside, service2 := ends("10.96.0.1:80"), ends("10.9.0.2:1"), ends("10.96.0.2:80")
	own, stolen := ends("10.9.0.3:1"), ends("10.9.0.2:2")
	record(t, h.ns, packet{toHost, service}, packet{toHost, host})   // a service
	record(t, h.ns, packet{stolen, service}, packet{toHost2, host2}) // and its client's address
	record(t, b, packet{own, service}, packet{toHost, host})         // in the client's container
	record(t, a, packet{toA, inside}, packet{toA, server})           // in the server's container
	// with another container's address
	record(t, a, packet{stolen, ends("10.9.0.1:9")}, packet{toHost, host})
	record(t, h.ns, packet{between, service2}, packet{between, server2})
	record(t, b, packet{six, ends("[fd00:96::1]:80")}, packet{six, host6})
	for _, c := range []struct {
		what string
		from home.View
		to   home.View // zero: nowhere
	}{
		{"nothing is translated", home.View{Net: inB, Local: toHost, Remote: host}, home.View{Net: inHost, Local: host, Remote: toHost}},
		{"from here", home.View{Net: inHost, Local: toA, Remote: server}, home.View{Net: inA, Local: server, Remote: toA}},
		{"a service", home.View{Net: inB, Local: toHost, Remote: service}, home.View{Net: inHost, Local: host, Remote: toHost}},
		{"here also the source", home.View{Net: inA, Local: stolen, Remote: service}, home.View{Net: inHost, Local: host2, Remote: toHost2}},
		{"in the client's", home.View{Net: inB, Local: own, Remote: service}, home.View{Net: inHost, Local: host, Remote: toHost}},
		{"in the server's", home.View{Net: inHost, Local: toA, Remote: inside}, home.View{Net: inA, Local: server, Remote: toA}},
		{"through here", home.View{Net: inB, Local: between, Remote: service2}, home.View{Net: inA, Local: server2, Remote: between}},
		{"IPv6", home.View{Net: inB, Local: six, Remote: ends("[fd00:96::1]:80")}, home.View{Net: inHost, Local: host6, Remote: six}},
		{"found anew", home.View{Net: inHost, Local: toA, Remote: server}, home.View{Net: inA, Local: server, Remote: toA}},
		{"another's address", home.View{Net: inA, Local: stolen, Remote: ends("10.9.0.1:9")}, home.View{}},
		{"a listener", home.View{Net: inB, Local: own, Remote: host}, home.View{}},
		{"another host", home.View{Net: inB, Local: toHost, Remote: ends("192.0.2.1:80")}, home.View{}},
		{"an unknown namespace", home.View{Net: ^uint64(0), Local: toHost, Remote: host}, home.View{}},
	} {
		if c.what == "found anew" {
			tr.paths[inA] = "/proc/0/ns/net" // has ended
		}
		h.ns.Do(t, func() {
			got, err := tr.follow(c.from)
			if got != c.to || (err != nil) != (c.to == home.View{}) || err != nil && !errors.Is(err, errNowhere) {
				t.Errorf("%s: %v, %v", c.what, got, err)
			}
		})
	}
}

// Processes that look at the board are told whenever there is one, and nothing else is written to.
func TestBoardIsMarked(t *testing.T) {
	const at = 49152
	h := newHost(t)
	end := h.register(nothing)
	ds := filepath.Join(h.fabric, "ds")
	elsewhere, foreign := filepath.Join(h.fabric, "file"), filepath.Join(h.fabric, "foreign")
	content := strings.Repeat("x", at+4)
	for _, path := range []string{elsewhere, foreign} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(foreign, 12345, -1); err != nil {
		t.Fatal(err)
	}
	wait := func(what string, is func() bool) {
		t.Helper()
		for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > patience {
				t.Fatal(what)
			}
		}
	}
	flag := func() uint32 {
		b, _ := os.ReadFile(filepath.Join(ds, "board-1"))
		if len(b) < at+4 {
			return 0
		}
		return binary.NativeEndian.Uint32(b[at:])
	}
	for range 2 { // even when the directory is made anew
		if err := errors.Join(os.Mkdir(ds+"-", 0o700), os.Rename(ds+"-", ds)); err != nil {
			t.Fatal(err)
		}
		trick := errors.Join(os.Symlink(elsewhere, ds+"/s"), os.Rename(ds+"/s", ds+"/board-1"),
			os.Link(foreign, ds+"/l"), os.Rename(ds+"/l", ds+"/board-1"))
		if trick != nil {
			t.Fatal(trick)
		}
		if err := errors.Join(os.Remove(ds+"/board-1"), os.WriteFile(ds+"/board-1", make([]byte, 100), 0o600)); err != nil {
			t.Fatal(err)
		}
		wait("the board is not marked", func() bool { return flag() == 1 })
		for _, path := range []string{elsewhere, foreign} {
			if b, err := os.ReadFile(path); err != nil || string(b) != content {
				t.Errorf("%s was written to: %v", path, err)
			}
		}
		if err := os.RemoveAll(ds); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(ds, 0o700), os.WriteFile(ds+"/board-1", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	wait("the board is not marked", func() bool { return flag() == 1 })
	// Another registrar that ends removes the announcement, and it is made again.
	second, err := home.Translate(h.fabric)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	wait("nobody tells of translations any more", func() bool { return home.Translates(h.fabric) })
	end()
	if flag() != 0 || home.Translates(h.fabric) {
		t.Error("it has ended, and says nothing of that")
	}
}
