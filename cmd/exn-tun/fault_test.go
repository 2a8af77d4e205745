package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/test/netns"
)

// A daemon whose interface somebody removes has nothing left to do.
func TestInterfaceRemoved(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	p, _ := up(t, ns, dir, "--addr", "10.2.0.7/24")
	ns.Do(t, func() {
		link, err := netlink.LinkByName("exn0")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if code := p.wait(); code != exitFailed || !strings.Contains(p.log.String(), "the interface was removed") {
		t.Errorf("exit code %d: %s", code, p.log.String())
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Who has met goes on without the directory, and ends in order.
func TestFabricDirectoryRemoved(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	p, _ := up(t, ns, dir, "--addr", "10.2.0.7/24")
	err := os.RemoveAll(dir)
	for tries := 0; errors.Is(err, syscall.ENOTEMPTY) && tries < 100; tries++ { // the daemon has just made a file there
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(p.said(), "the fabric directory was removed") {
		select {
		case <-p.over:
			t.Fatalf("it ended: %s", p.said())
		case <-t.Context().Done():
			t.Fatal("it says nothing")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if code := p.end(syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.log.String())
	}
	if left := interfaces(t, ns); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// That nobody reads the log any more ends nothing.
func TestLogReaderGone(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(plain, "up", "--netns", ns.String(), "--fabric", dir, "--verbose")
	cmd.Stderr = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, readErr := bufio.NewReader(r).ReadString('\n') // that it is ready
	r.Close()
	p, _ := up(t, netns.New(t), dir) // of which the other one logs
	p.end(syscall.SIGTERM)
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || readErr != nil {
		t.Errorf("%v, %v", err, readErr)
	}
	if left := interfaces(t, ns); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A node that is attached but does not talk to us, as one of another version, is
// named. Here its claim is held by the test.
func TestStranger(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	p, _ := up(t, ns, dir, "--node", "7")
	p.end(syscall.SIGTERM)
	f, err := os.OpenFile(filepath.Join(dir, "node-9.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString(`{"node":9,"pid":4711,"program":"exn-tun"}`)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	p, _ = up(t, ns, dir, "--node", "7")
	if code := p.end(syscall.SIGTERM); code != exitDone || !strings.Contains(p.log.String(), "use the same version of exnet everywhere") ||
		!strings.Contains(p.log.String(), "node=9") {
		t.Errorf("exit code %d: %s", code, p.log.String())
	}
}
