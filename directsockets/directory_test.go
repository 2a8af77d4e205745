package directsockets

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/fabric/dir"
)

// A directory that others may write is not used. What is made in a group's directory belongs to the
// group.
func TestDirectoryModes(t *testing.T) {
	const own, many = dir.SameUser, dir.Group
	for _, c := range []struct {
		peers      dir.Peers
		fabric, ds os.FileMode // as they are; ds 0: missing
		want       os.FileMode // of ds; 0: refused
	}{
		{own, 0o700, 0, 0o700}, {own, 0o770, 0, 0}, {own, 0o755, 0o700, 0}, {own, 0o700, 0o770, 0}, {own, 0o700, 0o777, 0},
		{many, 0o700, 0, 0o700}, {many, 0o770, 0, 0o770}, {many, os.ModeSetgid | 0o770, 0, os.ModeSetgid | 0o770},
		{many, 0o777, 0, 0}, {many, 0o702, 0, 0}, {many, 0o700, 0o777, 0}, {many, 0o750, 0o700, 0o700},
	} {
		peers := c.peers
		dir := t.TempDir()
		if err := os.Chmod(dir, c.fabric); err != nil {
			t.Fatal(err)
		}
		if c.ds != 0 {
			if err := os.Mkdir(dir+"/ds", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir+"/ds", c.ds); err != nil {
				t.Fatal(err)
			}
		}
		d, err := openDirectory(dir, peers)
		if (err == nil) != (c.want != 0) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		d.close()
		if st, err := os.Stat(dir + "/ds"); err != nil || st.Mode() != os.ModeDir|c.want {
			t.Errorf("%+v: %v, %v", c, st.Mode(), err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%+v: %v", c, left)
		}
	}
}

// Whoever finds an old or malformed offer removes it, and so it is with what crashed processes
// left. Living ones are left alone.
func TestLeftovers(t *testing.T) {
	top := fabric(t)
	r := meetingIn(top)
	r.mu.Lock()
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	if err := r.ready(); err != nil {
		t.Fatal(err)
	}
	d, me := r.dir, r.me
	r.mu.Unlock()
	old := unix.NsecToTimespec(time.Now().Add(-time.Minute).UnixNano())
	for name, target := range map[string]string{
		"o-good": me + ":17", "o-old": me + ":17", "o-number": me + ":x", "o-path": "p-1/../../x:1", "o-none": me, "o-dead": "p-1-gone:3",
		"o-refused": "no:17:25", "o-refused-old": "no:17:25",
	} {
		if err := unix.Symlinkat(target, d.fd, name); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "old") {
			if err := unix.UtimesNanoAt(d.fd, name, []unix.Timespec{old, old}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range map[string]bool{"o-good": true, "o-old": false, "o-number": false, "o-path": false, "o-none": false, "o-missing": false, "o-refused": false} {
		listener, inode, found := d.lookOffer(name)
		if found != want || found && (listener != me || inode != 17) {
			t.Errorf("%s: %q %d %v", name, listener, inode, found)
		}
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(s, d.address("p-1-crashed")); err != nil {
		t.Fatal(err)
	}
	unix.Close(s)
	// A file that is only named like ours stays, and so does another user's.
	kept := filepath.Join(top, "ds", "p-notes")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.sweep()
	if _, err := os.Lstat(kept); err != nil {
		t.Error("a file of the user's was removed")
	}
	os.Remove(kept)
	entries, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"board-1", "o-good", "o-refused", me}) {
		t.Errorf("left are %v", names)
	}
}

// The other end is abroad if both addresses are registered, ours in this namespace.
func TestTupleAbroad(t *testing.T) {
	const here, there = 7, 8
	dir := t.TempDir()
	a, b, c := netip.MustParseAddr("10.2.0.7"), netip.MustParseAddr("10.2.0.8"), netip.MustParseAddr("fd00::9")
	for cookie, addresses := range map[uint64][]netip.Addr{here: {a, c}, there: {b}} {
		r, err := home.Register(dir, cookie)
		if err == nil {
			err = r.Hold(addresses)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(local, remote netip.Addr) tuple {
		return tuple{netip.AddrPortFrom(local, 1), netip.AddrPortFrom(remote, 2)}
	}
	stranger := netip.MustParseAddr("10.2.0.9")
	for _, x := range []struct {
		tuple
		net, there uint64
		ok         bool
	}{
		{of(a, b), here, there, true},
		{of(b, a), there, here, true},
		{of(a, c), here, 0, true},   // both here
		{of(a, b), there, 0, false}, // ours is registered elsewhere
		{of(a, b), 0, 0, false},     // a kernel without cookies
		{of(stranger, b), here, 0, false},
		{of(a, stranger), here, 0, false},
	} {
		if got, ok := x.abroad(dir, x.net); got != x.there || ok != x.ok {
			t.Errorf("%v in %d: %d, %v", x.tuple, x.net, got, ok)
		}
	}
}

// The other side of a port counts if it was busy a moment ago, even by a clock that is slightly
// ahead: the clock of files, which the library reads, is some milliseconds behind.
func TestBoardMeets(t *testing.T) {
	for ago, want := range map[int64]bool{0: true, 1: true, 10: false, -1: true, -10: false, time.Now().Unix(): false} {
		var b board
		const port = 7
		b.accepted[port].Store(uint32(time.Now().Unix() - ago))
		if b.meet(port, true) != want {
			t.Errorf("%d s ago: %v", ago, !want)
		}
	}
}
