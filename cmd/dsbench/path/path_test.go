package path

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/exn/netns"
	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/leak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == RelayCommand {
		if err := ServeRelay(); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
	}
	if len(os.Args) == 5 && os.Args[1] == "1" && os.Args[2] == "0" {
		err := foreign(os.Args[3], os.Args[4])
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	leak.Main(m)
}

// foreign is what a foreign relay does.
func foreign(names ...string) error {
	var tuns []*os.File
	for i, name := range names {
		ns, err := netns.Open("/var/run/netns/" + name)
		if err != nil {
			return err
		}
		err = ns.Do(func() error {
			tun, err := openTUN([]string{"tunA", "tunB"}[i], unix.TUN_F_CSUM)
			tuns = append(tuns, tun)
			return err
		})
		if err != nil {
			return err
		}
	}
	a, b := int(tuns[0].Fd()), int(tuns[1].Fd())
	go pump(a, b)
	err := pump(b, a)
	runtime.KeepAlive(tuns)
	return err
}

// need gets a path, or skips where none can be made.
func need(t *testing.T, make func() (*Path, error)) *Path {
	t.Helper()
	p, err := make()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs root to make network namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Both references carry a stream unchanged, at the MTUs they are used with.
func TestReferencesCarryData(t *testing.T) {
	for name, make := range map[string]func() (*Path, error){
		"veth":         func() (*Path, error) { return Veth(1500) },
		"relay":        func() (*Path, error) { return Relay(wholeMTU) },
		"wireguard-go": func() (*Path, error) { return WireGuard(context.Background()) },
		"bridge":       func() (*Path, error) { return Bridge(built.Path(t, "exn-tun"), os.Getgid()) },
		"relay 1500":   func() (*Path, error) { return Relay(1500) },
		"foreign":      func() (*Path, error) { return ForeignRelay("/proc/self/exe") },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(namespaces); err != nil && name == "foreign" {
				t.Skip("needs the directory /run/netns, where a foreign relay looks for namespaces")
			}
			if name == "wireguard-go" {
				debroot.Need(t, name)
			}
			p := need(t, make)
			const amount = 8 << 20
			var ln net.Listener
			err := p.ns[1].Do(func() (err error) {
				ln, err = net.Listen("tcp", net.JoinHostPort(p.Ends[1].Addr.String(), "0"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			sent := bytesOf(amount)
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return // the reader sees no connection
				}
				conn.Write(sent) // the reader sees what arrived
				conn.Close()
			}()
			var conn net.Conn
			err = p.ns[0].Do(func() (err error) { conn, err = net.Dial("tcp", ln.Addr().String()); return err })
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			got, err := io.ReadAll(conn)
			if err != nil || string(got) != string(sent) {
				t.Errorf("%d of %d bytes arrived, equal: %v, %v", len(got), amount, string(got) == string(sent), err)
			}
			if err := p.Broken(); err != nil {
				t.Error(err)
			}
		})
	}
}

func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7919 >> 8)
	}
	return b
}

// A path leaves neither processes nor namespaces nor interfaces.
func TestCloseLeavesNothing(t *testing.T) {
	p := need(t, func() (*Path, error) { return Relay(wholeMTU) })
	pid := p.Daemons[0]
	ns, err := netns.Open(p.Ends[0].NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p.ns, p.programs = nil, nil // for the clean-up
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the relay is still there: %v", err)
	}
	err = ns.Do(func() error {
		if _, err := net.InterfaceByName(link(0)); err == nil {
			t.Errorf("%s is still there", link(0))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A daemon that does not come up, or dies, is an error that says what it said.
func TestBrokenDaemon(t *testing.T) {
	need(t, func() (*Path, error) { return Veth(1500) }) // to skip
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("EXN_FABRIC", filepath.Join(tmp, "fabric"))
	script := tmp + "/daemon"
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no such luck >&2; exit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Exn(script, "exn0")
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("a daemon that fails: %v", err)
	}
	if _, err := os.Stat(namespaces); err != nil {
		t.Logf("no foreign relay: %v", err)
	} else if _, err := ForeignRelay(script); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("a relay that fails: %v", err)
	}
	if _, err = Exn(tmp+"/nothing", "exn0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a daemon that is not there: %v", err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	p := need(t, func() (*Path, error) { return Relay(wholeMTU) })
	syscall.Kill(p.Daemons[0], syscall.SIGKILL)
	<-p.programs[0].ended
	if err := p.Broken(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a relay that was killed: %v", err)
	}
}

func TestRelayIsNotStartedByHand(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", RelayCommand).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "started by dsbench itself") {
		t.Errorf("%v: %s", err, out)
	}
}
