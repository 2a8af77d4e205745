package directsockets

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/diag"
)

// The peer that passes a sock_diag socket may have used it before. Only the kernel's answer to our
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
	end, found := lookup(s, a.tuple.turned())
	if !found || end.Inode != want || int(end.UID) != unix.Geteuid() {
		t.Fatalf("found %v: %+v, want %d", found, end, want)
	}
	// Questions asked before ours, about this connection or another, are answered first.
	for _, asked := range []tuple{a.tuple, c.tuple} {
		s, err := diag.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(s)
		if err := unix.Sendto(s, diag.Question(unix.IPPROTO_TCP, asked.remote, asked.local), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			t.Fatal(err)
		}
		if end, found := lookup(s, a.tuple.turned()); found {
			t.Errorf("the answer to another question counts: %+v", end)
		}
	}
}

// The passed descriptor must be a sock_diag socket, and of the right namespace.
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
		a.other, a.netns, a.peerNet = a.tuple.turned(), cookie, cookie
		if a.checkProof(1, uint32(unix.Geteuid()), handed) == reasonNone {
			t.Errorf("%d descriptors prove that the other end is abroad", len(handed))
		}
	}
}

// Two ends belong to one connection only if that is possible by the bytes they have carried.
func TestFit(t *testing.T) {
	before := diag.End{Counts: true, Sent: 100, Acknowledged: 90, Received: 50}
	after := diag.End{Counts: true, Sent: 110, Acknowledged: 90, Received: 60}
	far := func(sent, acknowledged, received uint64) diag.End {
		return diag.End{Counts: true, Sent: sent, Acknowledged: acknowledged, Received: received}
	}
	unknown, repeats := far(50, 50, 100), far(50, 50, 100)
	unknown.Counts, repeats.Repeats = false, true
	for _, c := range []struct {
		far diag.End
		fit bool
	}{
		{far(50, 50, 100), true},
		{far(70, 40, 90), true}, // some is on its way
		{far(50, 50, 110), true},
		{far(60, 60, 100), true},
		{far(48, 48, 88), true}, // SYN and FIN
		{far(62, 62, 112), true},
		{far(50, 50, 87), false},
		{far(50, 50, 113), false},
		{far(47, 47, 100), false},
		{far(63, 63, 100), false},
		{unknown, false},
		{repeats, false},
	} {
		if fit(before, c.far, after) != c.fit {
			t.Errorf("%+v: %v", c.far, !c.fit)
		}
	}
	for _, ours := range []diag.End{unknown, repeats} {
		if fit(ours, far(50, 50, 50), ours) {
			t.Errorf("%+v: fits", ours)
		}
	}
}

// The kernel reports what an end has carried.
func TestTraffic(t *testing.T) {
	a, b := pipe(t, Options{Off: true})
	s, err := diag.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if _, err := a.Write(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write(make([]byte, 700)); err != nil { // has the acknowledgement with it
		t.Fatal(err)
	}
	near, _ := lookup(s, a.tuple)
	far, _ := lookup(s, b.tuple)
	within := func(n, bytes uint64) bool { return n >= bytes && n <= bytes+1 }
	if !near.Counts || near.Repeats || near.Sent != 5 || !within(near.Acknowledged, 5) || !within(near.Received, 700) {
		t.Errorf("one end has %+v", near)
	}
	if !far.Counts || far.Repeats || far.Sent != 700 || !within(far.Received, 5) {
		t.Errorf("the other has %+v", far)
	}
}
