package shm

import (
	"net"
	"path/filepath"
	"testing"
)

// pair returns both ends of a connection between nodes.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.DialUnix("unixpacket", nil, ln.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if b, err = ln.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

// A node's last words before it closed are read even if it left messages unread, which the kernel
// reports first.
func TestLastWords(t *testing.T) {
	a, b := pair(t)
	if err := writeMessage(a, message{kind: msgRing}, -1); err != nil { // never read
		t.Fatal(err)
	}
	if err := writeMessage(b, message{kind: msgBye}, -1); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if m, _, err := readMessage(a); err != nil || m.kind != msgBye {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, _, err := readMessage(a); err == nil {
		t.Errorf("got %+v after the end", m)
	}
}

// A peer that first finds that it cannot write to a node does not take it for crashed, if the node
// said goodbye.
func TestLastWordsAfterWriting(t *testing.T) {
	a, b := pair(t)
	if err := writeMessage(b, message{kind: msgBye}, -1); err != nil {
		t.Fatal(err)
	}
	b.Close()
	p := &peer{conn: a, more: make(chan struct{}, 1)}
	p.send(message{kind: msgRing}, -1)
	close(p.more)
	p.write()
	p.read()
	if !p.bye {
		t.Error("its farewell was not read")
	}
}

// A node is given up if it cannot be written to and says nothing.
func TestReadEndsWhenWritingFails(t *testing.T) {
	a, b := pair(t)
	if err := b.CloseRead(); err != nil {
		t.Fatal(err)
	}
	p := &peer{conn: a, more: make(chan struct{}, 1)}
	p.send(message{kind: msgRing}, -1)
	close(p.more)
	p.write()
	p.read()
	if p.bye {
		t.Error("it said goodbye")
	}
}
