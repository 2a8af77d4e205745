package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"exnet/test/netns"
)

func TestBridge(t *testing.T) {
	host, container := netns.New(t), netns.New(t)
	at := netns.End{NS: host, Link: "bridge0", Addr: []string{"10.9.0.1/24"}}
	netns.Bridge(t, at)
	netns.Plug(t, at, "port2", netns.End{NS: container, Link: "eth0", Addr: []string{"10.9.0.2/24"}})
	inhabitant := command(plain, "bridge", "--fabric", newFabric(t), "none") // something that waits
	if err := container.Start(inhabitant); err != nil {
		t.Fatal(err)
	}
	defer func() {
		inhabitant.Process.Kill()
		inhabitant.Wait()
	}()
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		fabric := newFabric(t)
		p := startIn(t, host, "bridge", "--fabric", fabric, "--verbose", "bridge0")
		if ready := <-p.ready; ready != "exn-tun: ready: bridge0: addresses in "+fabric+": 2\n" {
			t.Errorf("it said %q; %s", ready, p.log.String())
		}
		const name = "00000000000000000000ffff0a090002"
		if _, err := os.Readlink(filepath.Join(fabric, "addresses", name)); err != nil {
			t.Error(err)
		}
		if code := p.end(end); code != exitDone || !strings.Contains(p.log.String(), "address=10.9.0.2") {
			t.Errorf("exit code %d; %s", code, p.log.String())
		}
		if left := leftovers(t, fabric); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestBridgeRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		how, fabric string
		code        int
		want        string
	}{
		{noRoot, newFabric(t), exitImpossible, "run as root"},
		{plain, filepath.Join(t.TempDir(), "a", "b"), exitFailed, "fabric directory"},
		{plain, file, exitUsage, "not a directory"},
	} {
		if code, out, errs := call(t, c.how, "bridge", "--fabric", c.fabric, "none"); code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s, %s: exit code %d, printed %q, said %q", c.how, c.fabric, code, out, errs)
		}
	}
}
