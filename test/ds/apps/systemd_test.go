package apps_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// Debian's redis as a service by the drop-in of docs/operations.md, which has to undo what its unit takes away, a
// client of another user in the group, exn0 and who is on bridges by their units: systemd is the first process of namespaces of
// its own.
func TestSystemd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for systemd")
	}
	if text, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(text), "\tcgroup2\n") {
		t.Skipf("needs cgroups of version 2: %v", err)
	}
	if link, err := os.Readlink("/bin"); err != nil || link != "usr/bin" {
		t.Skip("needs a machine whose programs are all below /usr")
	}
	root := debroot.Need(t, "systemd", "redis-server", "redis-tools")
	const may = `mount -t cgroup2 exnet /mnt && mount -t tmpfs exnet /run && mknod /run/null c 1 3 && : >/run/null && test -c /dev/net/tun && { test -w /sys/fs/cgroup/cgroup.procs || test -w /sys/fs/cgroup/unified/cgroup.procs; } && test -e /lib/systemd/system/redis-server.service`
	if out, err := root.Command(t.Context(), "unshare", "--mount", "--cgroup", "sh", "-c", may).CombinedOutput(); err != nil {
		t.Skipf("needs mounts, devices, a TUN and cgroups that may be written: %v: %s", err, out)
	}
	dir, err := os.MkdirTemp("", "exnet-systemd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeWithGroup(t, dir) })
	for _, name := range []string{"out", "last"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	tun := built.Path(t, "exn-tun")
	said, err := root.Command(ctx, "sh", testdata(t, "systemd.sh"), "begin", dir, ds.Library(t), tun, filepath.Dir(filepath.Dir(tun))).CombinedOutput()
	out, _ := os.ReadFile(filepath.Join(dir, "out"))
	last, _ := os.ReadFile(filepath.Join(dir, "last"))
	for _, want := range []string{"lanes\n", "lanes again\n", "nothing left\n", "exn0 is up\n", "exn0 was left by a crash and is up again\n", "gone\n", "all bridges and routes\n", "nobody is on a bridge\n"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("not seen: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%v\n%.2000s\nthe service said:\n%.4000s\nthe sockets at last:\n%s", err, said, out, last)
	}
}

// removeWithGroup removes a directory, and the cgroups that systemd.sh made by its name and are empty now.
func removeWithGroup(t *testing.T, dir string) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var groups []string
		_ = filepath.WalkDir(filepath.Join(top, filepath.Base(dir)), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- {
			if err := os.Remove(groups[i]); err != nil {
				t.Error(err)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
