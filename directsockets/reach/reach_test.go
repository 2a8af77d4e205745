package reach

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
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
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		peer   status.Process
		fabric string
		why    string // empty: it upgrades
	}{
		"good":            {status.Process{Fabric: ours}, ours, ""},
		"by another name": {status.Process{Fabric: ours}, ours + "/./open/..", ""},
		"none yet":        {status.Process{Fabric: ours + "/later"}, ours + "/later/", ""},
		"another":         {status.Process{Fabric: t.TempDir()}, ours, "peer not in this fabric directory"},
		"not there":       {status.Process{Fabric: ours}, ours + "/later", "peer not in this fabric directory"},
		"no directory":    {status.Process{}, ours, "no fabric directory"},
		"open to all":     {status.Process{Fabric: open}, open, "lets everyone in"},
		"a file":          {status.Process{Fabric: file}, file, "not a directory"},
		"version":         {status.Process{Err: status.ErrVersion}, ours, "another version"},
	} {
		c.peer.PID, c.peer.Program = os.Getpid(), "peer"
		v, err := judge(Verdict{PID: c.peer.PID, Program: "peer"}, c.peer, true, c.fabric)
		if err != nil || v.Upgrade != (c.why == "") || !strings.Contains(v.Why, c.why) || !v.Upgrade && v.Remedy == "" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}
