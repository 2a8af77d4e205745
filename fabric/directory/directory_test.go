package directory

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric/dir"
)

// made makes a directory with a mode, whatever the umask.
func made(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// What this process itself may use.
func TestSelf(t *testing.T) {
	top := made(t, filepath.Join(t.TempDir(), "top"), 0o700)
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(top, link); err != nil {
		t.Fatal(err)
	}
	spoilt := made(t, filepath.Join(top, "spoilt"), 0o700)
	made(t, filepath.Join(spoilt, Sockets), 0o777)
	for name, c := range map[string]struct{ path, why string }{
		"good":            {made(t, filepath.Join(top, "good"), 0o700), ""},
		"readable by all": {made(t, filepath.Join(top, "readable"), 0o755), "lets everyone in"},
		"a group's":       {made(t, filepath.Join(top, "group"), os.ModeSetgid|0o770), "lets others in"},
		"a link":          {link, "symbolic link"},
		"to be made":      {filepath.Join(top, "later"), ""},
		"open to all":     {made(t, filepath.Join(top, "open"), 0o777), "lets everyone in"},
		"a file":          {file, "is not a directory"},
		"below a file":    {file + "/x", "not a directory"},
		"without parent":  {filepath.Join(top, "no", "where"), "neither does"},
		"nameless":        {"", "has no name"},
		"long":            {"/" + strings.Repeat("x", 5000), "5001 bytes"},
		"spoilt ds":       {spoilt, "lets everyone in"},
	} {
		err := Check(c.path, Self())
		var e *Error
		if (err == nil) != (c.why == "") || err != nil && (!errors.As(err, &e) || !strings.Contains(e.Why, c.why) || e.Remedy == "" || len(err.Error()) > 600) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
	if _, err := os.Stat(filepath.Join(top, "later")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking has made the directory: %v", err)
	}
}

// another runs a process as another user until the test ends.
func another(t *testing.T, uid, gid uint32, groups ...uint32) User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	u, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if u.UID != uid || u.GID != gid || len(u.Groups) != len(groups) || u.Override {
		t.Fatalf("the process of user %d is %+v", uid, u)
	}
	u.Peers = dir.Policy()
	return u
}

// Other processes are judged by their users, their groups and the lists of the directory.
func TestOthers(t *testing.T) {
	t.Setenv(dir.PeersVariable, "group")
	stranger, member := another(t, 4001, 4001), another(t, 4002, 4002, 4711)
	top := made(t, filepath.Join(t.TempDir(), "top"), 0o755)
	for p := top; p != "/"; p = filepath.Dir(p) { // others have to get there
		if err := os.Chmod(p, 0o755); err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
		if filepath.Dir(p) == os.TempDir() {
			break
		}
	}
	private, group := made(t, filepath.Join(top, "private"), 0o700), made(t, filepath.Join(top, "group"), 0o2770)
	if err := errors.Join(os.Chown(group, 0, 4711), os.Chmod(group, os.ModeSetgid|0o770)); err != nil {
		t.Fatal(err)
	}
	listed := made(t, filepath.Join(top, "listed"), 0o770)
	// user 4001 may do all: a list of owner, that user, group, mask and others.
	list := []byte{2, 0, 0, 0,
		1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
		2, 0, 7, 0, 0xa1, 0x0f, 0, 0,
		4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
		16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
		32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	lists := unix.Setxattr(listed, "system.posix_acl_access", list, 0) == nil
	for name, c := range map[string]struct {
		path string
		user User
		may  bool
	}{
		"root's to a stranger":    {private, stranger, false},
		"below root's":            {filepath.Join(private, "x"), stranger, false},
		"a group's to a stranger": {group, stranger, false},
		"a group's to a member":   {group, member, true},
		"listed":                  {listed, stranger, lists},
		"not listed":              {listed, member, false},
		"to be made in root's":    {filepath.Join(top, "new"), stranger, false},
		"root's to root":          {private, Self(), true},
	} {
		if err := Check(c.path, c.user); (err == nil) != c.may {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What EXT-DS has made there while it was root's alone shuts the group out.
	made(t, filepath.Join(group, Sockets), 0o700)
	if err := Check(group, member); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("with a subdirectory of root's: %v", err)
	}
}

func TestNobody(t *testing.T) {
	if _, err := Of(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that there is not: %v", err)
	}
}
