package shm

import (
	"net"
	"path/filepath"
	"testing"
)

// What a node said before it closed is read although it left messages unread,
// which the kernel reports first.
func TestLastWords(t *testing.T) {
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.DialUnix("unixpacket", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
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
