package directsockets

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
)

// refused plays ping-pong until the connection has given up, and returns the reason.
func refused(t *testing.T, a, b *Conn) status.Reason {
	t.Helper()
	for a.State() != status.TCP && b.State() != status.TCP {
		write(t, a, "x")
		read(t, b, "x")
		write(t, b, "x")
		read(t, a, "x")
		if a.State() == status.Lane && b.State() == status.Lane {
			t.Fatal("it has a lane")
		}
	}
	reason := a.Status().Reason
	if a.State() != status.TCP || reason == reasonRefused {
		reason = b.Status().Reason
	}
	write(t, a, "goes on")
	read(t, b, "goes on")
	return reason
}

func TestNoLaneLeft(t *testing.T) {
	was := env.geometry
	defer func() { env.geometry = was }()
	env.geometry.Lanes = 2
	o := Options{Fabric: fabric(t)}
	a, b := pipe(t, o)
	warm(t, a, b)
	// Each side of a channel picks from its half of the lanes, which is one here. So there are
	// more connections than lanes.
	for range 2 * channelsMost {
		c, d := pipe(t, o)
		for !(c.engaged() && d.engaged()) && c.State() != status.TCP && d.State() != status.TCP {
			write(t, c, "x")
			read(t, d, "x")
			write(t, d, "x")
			read(t, c, "x")
		}
		if c.engaged() {
			continue
		}
		if got := refused(t, c, d); got != reasonLanes {
			t.Errorf("reason %v", got)
		}
		a.Close()
		b.Close()
		e, f := pipe(t, o) // on the lane that is free again
		warm(t, e, f)
		return
	}
	t.Error("more connections than lanes")
}

func TestNoMemoryLeft(t *testing.T) {
	budget.take(0, forAll) // so that it knows its limit
	budget.mu.Lock()
	for end := time.Now().Add(10 * time.Second); budget.used > 0; budget.mu.Lock() {
		// by channels of earlier tests
		budget.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the channels of earlier tests do not end")
		}
		time.Sleep(time.Millisecond)
	}
	was := budget.most
	budget.most = budget.used + 3
	budget.mu.Unlock()
	defer func() {
		budget.mu.Lock()
		budget.most = was
		budget.mu.Unlock()
	}()
	a, b := pipe(t, Options{Fabric: fabric(t)})
	if got := refused(t, a, b); got != reasonMemory {
		t.Errorf("reason %v", got)
	}
}

// A fabric directory that somebody removes is made again; connections with a lane keep it.
func TestDirectoryVanishes(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	a, b := pipe(t, o)
	warm(t, a, b)
	if err := os.RemoveAll(o.Fabric); err != nil {
		t.Fatal(err)
	}
	write(t, a, "still there")
	read(t, b, "still there")
	c, d := pipe(t, o)
	warm(t, c, d)
}

// Without free descriptors, connections stay on TCP and give that reason; later connections get
// lanes again.
func TestNoDescriptorsLeft(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	a, b := pipe(t, o)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 3 // what is open stays so
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	got := refused(t, a, b)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if got != reasonFiles {
		t.Errorf("reason %v", got)
	}
	c, d := pipe(t, o)
	warm(t, c, d)
}

// A Multipath TCP connection gets no lane.
func TestMultipathStaysOnTCP(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := Dialer{Lanes: o}
	dial.SetMultipathTCP(true)
	c, err := dial.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	out, in := c.(*Conn), newConn(s.(*net.TCPConn), false, o)
	defer in.Close()
	if multipath, err := out.MultipathTCP(); err != nil || !multipath {
		t.Skip("this kernel has no multipath TCP, or does not use it")
	}
	if got := refused(t, out, in); got != reasonOption {
		t.Errorf("reason %v", got)
	}
}

// An end is elsewhere if its address is neither here nor registered by exn0.
func TestStrangeAddressStaysOnTCP(t *testing.T) {
	a, b := pipe(t, Options{Fabric: fabric(t)})
	// as if
	a.tuple.remote = netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), a.tuple.remote.Port())
	if got := refused(t, a, b); got != reasonAddress {
		t.Errorf("reason %v", got)
	}
}
