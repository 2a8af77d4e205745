package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a directory of one's own that nobody else can enter is used, unless a group's was asked for.
func TestJudge(t *testing.T) {
	const strange = 54321
	for _, c := range []struct {
		mode      os.FileMode
		uid       int
		own, many bool // used by default, and with a group
	}{
		{0o700, -1, true, true}, {0o750, -1, false, true}, {0o770, -1, false, true}, {0o710, -1, false, true},
		{0o2770, -1, false, true}, {0o701, -1, false, false}, {0o755, -1, false, false}, {0o777, -1, false, false},
		{0o1777, -1, false, false}, {0o700, strange, false, false}, {0o770, strange, false, true}, {0o750, strange, false, false},
	} {
		if c.uid >= 0 && os.Geteuid() != 0 {
			continue
		}
		path := filepath.Join(t.TempDir(), "fabric")
		for _, err := range []error{os.Mkdir(path, 0o700), os.Chown(path, c.uid, -1), os.Chmod(path, fs.FileMode(c.mode&0o777)|sticky(c.mode))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for peers, want := range map[Peers]bool{SameUser: c.own, Group: c.many} {
			err := Judge(path, peers)
			if (err == nil) != want || err != nil && !errors.Is(err, ErrUntrusted) {
				t.Errorf("%04o of %d, %v: %v", c.mode, c.uid, peers, err)
			}
			f, err := Open(path, peers)
			if (err == nil) != want {
				t.Errorf("%04o of %d, %v: opened: %v", c.mode, c.uid, peers, err)
			}
			f.Close() // of nil: an error, and nothing else
		}
	}
}

func sticky(mode os.FileMode) (m os.FileMode) {
	if mode&0o2000 != 0 {
		m |= os.ModeSetgid
	}
	if mode&0o1000 != 0 {
		m |= os.ModeSticky
	}
	return m
}

// The last part of the path is no symbolic link, with a slash behind it or not, and no file.
func TestJudgeKind(t *testing.T) {
	top := t.TempDir()
	own, link, file := filepath.Join(top, "own"), filepath.Join(top, "link"), filepath.Join(top, "file")
	for _, err := range []error{os.Mkdir(own, 0o700), os.Symlink(own, link), os.WriteFile(file, nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, word := range map[string]string{link: "symbolic link", link + "/": "symbolic link", file: "not a directory"} {
		if err := Judge(path, SameUser); !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := Open(path, SameUser); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
	if err := Judge(filepath.Join(top, "none"), SameUser); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	f, err := Open(filepath.Join(top, "none/"), SameUser)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := Judge(own+"/", SameUser); err != nil {
		t.Error(err)
	}
}

func TestDefault(t *testing.T) {
	t.Setenv("EXN_FABRIC", "/somewhere")
	if d, err := Default(); d != "/somewhere" || err != nil {
		t.Error(d, err)
	}
	t.Setenv("EXN_FABRIC", "")
	if os.Geteuid() == 0 {
		if d, err := Default(); d != "/run/exn" || err != nil {
			t.Error(d, err)
		}
		return
	}
	for _, c := range []struct{ runtime, home, want string }{
		{"/run/user/7", "/srv/x", "/run/user/7/exn"}, {"", "/srv/x", "/srv/x/.exn"}, {"run", "/srv/x", "/srv/x/.exn"}, {"", "", ""},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		t.Setenv("HOME", c.home)
		if d, err := Default(); d != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %s, %v", c, d, err)
		}
	}
}
