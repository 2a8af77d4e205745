package directsockets

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/status"
)

// A connection whose peer is of package net says so, and with EXN_DS_VERBOSE in a line that
// names the program at the other end.
func TestPeerOfPackageNet(t *testing.T) {
	if os.Getenv("EXN_DS_VERBOSE") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "EXN_DS_VERBOSE=1")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for lines := bufio.NewScanner(stderr); lines.Scan(); { // until it ends
			if strings.Contains(lines.Text(), " is on TCP: no peer in this fabric directory") {
				told = true
				stdin.Close()
			}
		}
		if err := cmd.Wait(); err != nil || !told {
			t.Errorf("told %v, %v", told, err)
		}
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := Dialer{Lanes: Options{Fabric: fabric(t)}}
	c, err := dial.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ours := c.(*Conn)
	b := make([]byte, 1)
	for i := 0; ours.Status().State != status.TCP; i++ {
		if s := ours.Status(); s.Reason != status.None || s.State != status.Counting {
			t.Fatalf("after %d calls: %+v", i, s)
		}
		for _, pair := range [][2]net.Conn{{c, s}, {s, c}} {
			if _, err := pair[0].Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := pair[1].Read(b); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond)
	}
	if why := ours.Status().Reason; why != status.NoPeer {
		t.Errorf("reason %v", why)
	}
	if _, err := io.ReadAll(os.Stdin); err != nil { // closed when the line was read
		t.Error(err)
	}
}
