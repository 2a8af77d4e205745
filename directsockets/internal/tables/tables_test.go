package tables

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
		"":                                      "", "0100007F": "", "01000:1": "", "xx00007F:1": "", "0100007F:10000": "",
	} {
		got, err := Parse(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q: got %v", text, got)
			}
		} else if err != nil || got != netip.MustParseAddrPort(want) {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

// Both ends of a connection of ours are in the tables, and we hold them.
func TestEach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	local, remote := netip.MustParseAddrPort(a.LocalAddr().String()), netip.MustParseAddrPort(a.RemoteAddr().String())
	var found, other, listens Socket
	if err := Each("/proc/self/net", func(s Socket) bool {
		switch {
		case s.Local == local && s.Remote == remote:
			found = s
		case s.Local == remote && s.Remote == local:
			other = s
		case s.Local == remote && s.Listens:
			listens = s
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Socket{found, other, listens} {
		if s.Inode == 0 || s.UID != os.Getuid() {
			t.Errorf("%+v", s)
		}
		if held := Holders(s.Inode, 1)[s.Inode]; !slices.Contains(held, os.Getpid()) {
			t.Errorf("%+v is held by %v, not by us, %d", s, held, os.Getpid())
		}
	}
	raw, err := a.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if got := Inode(os.Getpid(), int(fd)); got != found.Inode {
				t.Errorf("inode %d, want %d", got, found.Inode)
			}
		})
	}
	if err != nil {
		t.Error(err)
	}
	if Inode(os.Getpid(), 1<<20) != 0 {
		t.Error("no descriptor has an inode")
	}
}
