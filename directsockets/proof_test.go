package directsockets

import (
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/diag"
)

// Whoever hands a sock_diag socket may have used it: only the kernel's answer to our
// own question counts.
func TestAnswersOfOthersDoNotCount(t *testing.T) {
	a, b := pipe(t, Options{Off: true})
	c, _ := pipe(t, Options{Off: true})
	s, err := diag.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	want := uint64(0)
	b.control(func(fd int) {
		var st unix.Stat_t
		unix.Fstat(fd, &st)
		want = st.Ino
	})
	inode, uid, found := lookup(s, a.tuple.turned())
	if !found || inode != want || int(uid) != unix.Geteuid() {
		t.Fatalf("found %v: %d of %d, want %d", found, inode, uid, want)
	}
	// Asked before us, about this connection or another: those answers come first.
	for _, asked := range []tuple{a.tuple, c.tuple} {
		s, err := diag.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(s)
		if err := unix.Sendto(s, diag.Question(unix.IPPROTO_TCP, asked.remote, asked.local), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		if inode, _, found := lookup(s, a.tuple.turned()); found {
			t.Errorf("the answer to another question counts: %d", inode)
		}
	}
}

// What is handed has to be a sock_diag socket, and of the right namespace.
func TestDiagOf(t *testing.T) {
	socket := func(domain, kind, protocol int) int {
		s, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(s) })
		return s
	}
	diag := socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG)
	cookie, err := unix.GetsockoptUint64(diag, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		t.Skip("this kernel has no cookies of network namespaces, which came with 5.14")
	}
	for _, c := range []struct {
		what string
		fd   int
		net  uint64
		want bool
	}{
		{"the right one", diag, cookie, true},
		{"of another namespace", diag, cookie + 1, false},
		{"another netlink socket", socket(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE), cookie, false},
		{"a socket of its own", socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0), cookie, false},
		{"nothing", -1, cookie, false},
	} {
		if got := isDiagOf(c.fd, c.net); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if s, err := openDiag(cookie); err != nil {
		t.Errorf("our own namespace cannot be asked: %v", err)
	} else {
		unix.Close(s)
	}
	if s, err := openDiag(cookie + 1); err == nil {
		unix.Close(s)
		t.Error("another namespace is asked")
	}
	a, _ := pipe(t, Options{Off: true})
	fds, err := makeProof(diag, false)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fds)
	for _, handed := range [][]int{nil, fds, {fds[0], -1}} {
		if checkProof(a.tuple.turned(), cookie, cookie, 1, uint32(unix.Geteuid()), handed) {
			t.Errorf("%d descriptors prove that the other end is abroad", len(handed))
		}
	}
}
