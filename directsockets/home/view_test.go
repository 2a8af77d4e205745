package home

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func view(net uint64, local, remote string) View {
	return View{net, netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote)}
}

func TestViewsAreNamed(t *testing.T) {
	v := view(0x1001, "10.9.0.2:80", "10.9.0.3:258")
	const name = "1001-00000000000000000000ffff0a090002005000000000000000000000ffff0a0900030102"
	if v.String() != name {
		t.Errorf("%v", v)
	}
	for _, v := range []View{v, view(^uint64(0), "[fd00::1]:1", "[::1]:65535")} {
		if again, err := ParseView(v.String()); err != nil || again != v {
			t.Errorf("%v becomes %v, %v", v, again, err)
		}
	}
	for _, bad := range []string{"", "-", "0" + name[4:], name[4:], name + "0", name[:len(name)-2], strings.ToUpper(name), name + "\n",
		strings.Replace(name, "0050", "0000", 1), "+" + name, "x" + name} {
		if v, err := ParseView(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, v)
		}
	}
}

func FuzzParseView(f *testing.F) {
	f.Add(view(1, "10.9.0.2:80", "10.9.0.3:258").String())
	f.Add("1-00")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseView(text); err == nil && v.String() != text {
			t.Errorf("%q is taken for %v", text, v)
		}
	})
}

// A translation is believed for a while, and only where nobody else could have written it.
func TestTranslations(t *testing.T) {
	dir := t.TempDir()
	a, b := view(7, "10.9.0.3:1000", "10.96.0.1:80"), view(8, "10.9.0.2:8080", "10.9.0.1:2000")
	said := func(want bool) {
		t.Helper()
		for from, to := range map[View]View{a: b, b: a} {
			if got, ok := Translated(dir, from); ok != want || ok && got != to {
				t.Errorf("%v: %v, %v", from, got, ok)
			}
		}
	}
	if Translates(dir) {
		t.Error("somebody tells of translations in an empty directory")
	}
	leftover := filepath.Join(dir, subdirectory, prefix+b.String())
	if err := os.Mkdir(filepath.Dir(leftover), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(a.String(), leftover); err != nil {
		t.Fatal(err)
	}
	tell, err := Translate(dir)
	if err != nil {
		t.Fatal(err)
	}
	said(false)
	if err := tell.Say(a, b); err != nil {
		t.Fatal(err)
	}
	if said(true); !Translates(dir) {
		t.Error("nobody tells of translations")
	}
	if err := os.Chmod(tell.Dir(), 0o775); err != nil {
		t.Fatal(err)
	}
	if said(false); Translates(dir) {
		t.Error("believed where a group may write")
	}
	if err := os.Chmod(tell.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	old := []unix.Timespec{{Sec: time.Now().Unix() - 3}, {Sec: time.Now().Unix() - 3}}
	for _, v := range []View{a, b} {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(tell.Dir(), prefix+v.String()), old, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	said(false)
	if !tell.Expire() {
		t.Error("it forgot what it has just said")
	}
	for i := range tell.said {
		tell.said[i].at = time.Now().Add(-time.Minute)
	}
	if tell.Expire() {
		t.Error("it keeps what is old")
	}
	links := func() int {
		all, err := os.ReadDir(tell.Dir())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := links(); n != 1 {
		t.Errorf("%d links are there", n)
	}
	if err := tell.Say(a, b); err != nil {
		t.Fatal(err)
	}
	said(true)
	if err := tell.Close(); err != nil {
		t.Error(err)
	}
	if n := links(); n != 0 || Translates(dir) {
		t.Errorf("%d links are left", n)
	}
}
