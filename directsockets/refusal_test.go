package directsockets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/status"
)

// Only a refusal with the inode of the socket at the other end and the number of a reason is
// believed. Whatever it is, it is removed.
func TestRefusalIsJudged(t *testing.T) {
	out, in := pipe(t, Options{Fabric: fabric(t)})
	r := out.home
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	if a, b := r.identify(out), r.identify(in); a != reasonNone || b != reasonNone {
		t.Fatal(a, b)
	}
	name := home.View{Net: in.netns, Local: in.tuple.local, Remote: in.tuple.remote}.Offer()
	leave := func(target string) {
		t.Helper()
		if err := unix.Symlinkat(target, r.dir.fd, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{
		"no:", "no:1:25", "no:0:25", "no:%d", "no:%d:", "no:%d:0", "no:%d:31", "no:%d:25x", "no:-%d:25", "no:%d:4294967321", "no: %d:25",
	} {
		text := target
		if len(target) > len("no:") && target != "no:1:25" && target != "no:0:25" {
			text = fmt.Sprintf(target, in.inode)
		}
		leave(text)
		if r.refusedBy(out) || out.State() != status.Counting {
			t.Errorf("%s is believed", text)
		}
		if _, err := r.dir.readlink(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", text, err)
		}
	}
	leave(fmt.Sprintf("no:%d:%d", in.inode, reasonPolicy))
	if os.Getuid() == 0 { // somebody else's
		if err := unix.Fchownat(r.dir.fd, name, 12345, -1, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
		if r.refusedBy(out) {
			t.Error("one of another user is believed")
		}
		if err := unix.Fchownat(r.dir.fd, name, 0, -1, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatalf("another user's was removed: %v", err)
		}
	}
	if !r.refusedBy(out) || out.State() != status.TCP || out.refusal != reasonPolicy || status.Reason(out.reason.Load()) != reasonRefused {
		t.Errorf("a good one is not believed: %v, %v", out.State(), out.refusal)
	}
}
