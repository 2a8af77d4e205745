package reach

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/status"
	"exnet/fabric/directory"
)

// The listener is a Go program, which does not load the library.
func TestTryFindsTheListener(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "tcp"} {
		address := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "tcp": ":0"}[network]
		l, err := net.Listen(network, address)
		if err != nil {
			t.Skipf("cannot listen on %s: %v", address, err)
		}
		defer l.Close()
		v, err := Try(t.Context(), strings.Replace(l.Addr().String(), "[::]", "127.0.0.1", 1), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if v.Upgrade || v.PID != os.Getpid() || v.UID != os.Getuid() || !strings.Contains(v.Why, "does not use the library: it is written in Go") || !strings.Contains(v.Remedy, "the server behind it") {
			t.Errorf("%s: %+v", network, v)
		}
	}
}

// A kernel may lack the module that knows a protocol's sockets, as small ones do for TCP. Then the
// error says so.
func TestKernelWithoutAnswers(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:9")
	if err := answers(253, at, at); !errors.Is(err, unix.ENOENT) {
		t.Errorf("of a protocol that there is not: %v", err)
	}
}

func TestTryWithoutAListener(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if v, err := Try(t.Context(), address, "/run/exn"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %+v, %v", v, err)
	}
}

// Each obstacle to an upgrade, with this process as the peer.
func TestJudge(t *testing.T) {
	ours := t.TempDir()
	if err := os.Chmod(ours, 0o700); err != nil {
		t.Fatal(err)
	}
	open, file := filepath.Join(ours, "open"), filepath.Join(ours, "file")
	if err := errors.Join(os.Chmod(ours, 0o700), os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	user := directory.Self()
	another := user
	another.UID++
	for name, c := range map[string]struct {
		peer   status.Process
		uid    int
		fabric string
		why    string // empty: it upgrades
	}{
		"good":             {status.Process{Fabric: ours}, 0, ours, ""},
		"by another name":  {status.Process{Fabric: ours}, 0, ours + "/./open/..", ""},
		"none yet":         {status.Process{Fabric: ours + "/later"}, 0, ours + "/later/", ""},
		"none, two users":  {status.Process{Fabric: ours + "/later"}, 1, ours + "/later/", "only the user who makes it"},
		"no way":           {status.Process{Fabric: "/nonexistent/x"}, 0, "/nonexistent/x", "does not exist, and neither does /nonexistent"},
		"another":          {status.Process{Fabric: t.TempDir()}, 0, ours, "not in this fabric directory"},
		"not there":        {status.Process{Fabric: ours}, 0, ours + "/later", "not in this fabric directory"},
		"no directory":     {status.Process{}, 0, ours, "no fabric directory"},
		"open to all":      {status.Process{Fabric: open}, 0, open, "lets everyone in"},
		"a file":           {status.Process{Fabric: file}, 0, file, "not a directory"},
		"version":          {status.Process{Err: status.ErrVersion}, 0, ours, "another version"},
		"version of lanes": {status.Process{Fabric: ours, Lane: lane.Version + 1}, 0, ours, "another version"},
		"unknown version":  {status.Process{Fabric: ours, Lane: ^uint32(0)}, 0, ours, "another version"},
	} {
		c.peer.PID, c.peer.Program = os.Getpid(), "peer"
		if c.peer.Lane == 0 {
			c.peer.Lane = lane.Version
		}
		a := Acceptor{PID: c.peer.PID, Program: "peer", UID: os.Geteuid() + c.uid}
		got, err := a.judge(c.peer, true, user, nil, c.fabric)
		if err != nil || got.Upgrade != (c.why == "") || !strings.Contains(got.Why, c.why) || !got.Upgrade && got.Remedy == "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// One of several that accept is enough to say no, and it is named.
func TestOneOfSeveralRefuses(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := exec.Command("sleep", "1000") // a worker without the library
	other.ExtraFiles = []*os.File{f}
	other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	fabric := t.TempDir()
	if err := os.Chmod(fabric, 0o700); err != nil {
		t.Fatal(err)
	}
	v, err := Try(t.Context(), l.Addr().String(), fabric)
	if err != nil || v.Upgrade || len(v.Acceptors) != 2 || !strings.Contains(v.Why, "2 of the 2 processes that accept there") {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, a := range v.Acceptors {
		if a.PID == other.Process.Pid && (a.Upgrade || !strings.Contains(a.Why, "sleep (process") || !strings.Contains(a.Remedy, "exn-tun run -- sleep")) {
			t.Errorf("the worker: %+v", a)
		}
	}
}
