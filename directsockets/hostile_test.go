package directsockets

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
)

// Any invalid message on a control socket ends that channel, which shows as a hang-up, and no
// other.
func TestHostileMessages(t *testing.T) {
	dir := fabric(t)
	a, b := pipe(t, Options{Fabric: dir})
	warm(t, a, b)
	r := meetingIn(dir)
	r.mu.Lock()
	address := r.dir.address(r.me)
	r.mu.Unlock()

	memory, file, err := lane.New(env.geometry, false)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Unmap()
	defer unix.Close(file)
	bell, err := unix.Eventfd(1, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	hello := message{kind: msgHello, version: lane.Version, geometry: env.geometry, size: env.geometry.Size(), name: "p-1-hostile"}
	with := func(change func(m *message)) []byte {
		m := hello
		change(&m)
		return m.encode()
	}
	good := []int{file, bell, bell, bell, bell, bell, bell, bell, bell}
	bells := append([]int{file}, repeat(int(null.Fd()), lane.Waiters)...)
	attach := message{kind: msgAttach, version: lane.Version, lane: 1 << 31, generation: 1, tuple: a.tuple}
	for name, c := range map[string]struct {
		text  []byte
		fds   []int
		after []byte // a good HELLO
	}{
		"nothing":           {text: []byte{}},
		"short":             {text: hello.encode()[:100], fds: good},
		"long":              {text: append(hello.encode(), 0), fds: good},
		"no descriptors":    {text: hello.encode()},
		"few descriptors":   {text: hello.encode(), fds: good[:8]},
		"many descriptors":  {text: hello.encode(), fds: append(good[:9:9], bell)},
		"no doorbells":      {text: hello.encode(), fds: bells},
		"no memory":         {text: hello.encode(), fds: append([]int{bell}, good[1:]...)},
		"another version":   {text: with(func(m *message) { m.version-- }), fds: good},
		"another geometry":  {text: with(func(m *message) { m.geometry.Slots *= 2; m.size = m.geometry.Size() }), fds: good},
		"a path for a name": {text: with(func(m *message) { m.name = "p-1/../x" }), fds: good},
		"a name that never ends": {text: append(append(hello.encode()[:96:96], bytes.Repeat([]byte{'p'}, nameSize)...), make([]byte, messageSize-96-nameSize)...),
			fds: good},
		"attach before hello": {text: attach.encode()},
		"unknown kind":        {text: hello.encode(), fds: good, after: with(func(m *message) { m.kind = 77 })},
		"second hello":        {text: hello.encode(), fds: good, after: hello.encode()},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(s)
			if err := unix.Connect(s, address); err != nil {
				t.Fatal(err)
			}
			var rights []byte
			if len(c.fds) > 0 {
				rights = unix.UnixRights(c.fds...)
			}
			if err := unix.Sendmsg(s, c.text, rights, nil, 0); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				if err := unix.Sendmsg(s, c.after, nil, nil, 0); err != nil {
					t.Fatal(err)
				}
			}
			for { // its HELLO, then the end
				oob := make([]byte, 256)
				n, on, _, _, err := unix.Recvmsg(s, make([]byte, messageSize), oob, unix.MSG_CMSG_CLOEXEC)
				for _, fd := range rightsOf(oob[:max(on, 0)]) {
					unix.Close(fd)
				}
				if n == 0 || err == unix.ECONNRESET {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			write(t, a, "still there")
			read(t, b, "still there")
		})
	}

	// An ATTACH for a connection of others is refused, and the channel stays.
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := unix.Connect(s, address); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		text []byte
		fds  []int
	}{{hello.encode(), good}, {attach.encode(), nil}, {attach.encode(), []int{bell}}} {
		var rights []byte
		if len(m.fds) > 0 {
			rights = unix.UnixRights(m.fds...)
		}
		if err := unix.Sendmsg(s, m.text, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for refusals := 0; refusals < 2; {
		var text [messageSize]byte
		oob := make([]byte, 256)
		n, on, _, _, err := unix.Recvmsg(s, text[:], oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil || n != messageSize {
			t.Fatalf("%d bytes, %v", n, err)
		}
		for _, fd := range rightsOf(oob[:on]) {
			unix.Close(fd)
		}
		var m message
		if m.decode(&text); m.kind == msgAttachNo {
			refusals++
		} else if m.kind != msgHello {
			t.Fatalf("%+v", m)
		}
	}
}

func repeat(fd, n int) (all []int) {
	for range n {
		all = append(all, fd)
	}
	return all
}
