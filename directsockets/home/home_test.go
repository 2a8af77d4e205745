package home

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func wantFound(t *testing.T, dir string, want map[string]uint64) {
	t.Helper()
	for a, cookie := range want {
		got, err := Find(dir, addr(a))
		if cookie == 0 && errors.Is(err, ErrUnknown) {
			continue
		}
		if err != nil || got != cookie {
			t.Errorf("%s: %d, %v, want %d", a, got, err, cookie)
		}
	}
}

func TestAddressesComeAndGo(t *testing.T) {
	dir := t.TempDir()
	a, err := Register(dir, 0x1001)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Register(dir, 1<<63)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Hold([]netip.Addr{addr("10.2.0.7"), addr("fd00::7"), addr("fe80::7")}), b.Hold([]netip.Addr{addr("10.2.0.8")})); err != nil {
		t.Fatal(err)
	}
	wantFound(t, dir, map[string]uint64{"10.2.0.7": 0x1001, "::ffff:10.2.0.7": 0x1001, "fd00::7": 0x1001, "fe80::7": 0, "10.2.0.8": 1 << 63, "10.2.0.9": 0})
	if err := a.Hold([]netip.Addr{addr("10.2.0.9"), addr("fd00::7")}); err != nil {
		t.Fatal(err)
	}
	wantFound(t, dir, map[string]uint64{"10.2.0.7": 0, "10.2.0.9": 0x1001, "fd00::7": 0x1001})
	// An address that has moved belongs to the newer namespace, whichever ends first.
	if err := b.Hold([]netip.Addr{addr("10.2.0.8"), addr("10.2.0.9")}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	wantFound(t, dir, map[string]uint64{"10.2.0.9": 1 << 63, "fd00::7": 0})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Another process that ends may remove the subdirectory.
func TestOthersEnd(t *testing.T) {
	dir := t.TempDir()
	a, err := Register(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Register(dir, 8)
	if err == nil {
		err = errors.Join(b.Close(), a.Hold([]netip.Addr{addr("10.2.0.7")}))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantFound(t, dir, map[string]uint64{"10.2.0.7": 7})
	// A failed registration is tried again.
	sub := filepath.Join(dir, subdirectory)
	more := []netip.Addr{addr("10.2.0.7"), addr("10.2.0.8")}
	if err := errors.Join(os.Rename(sub, sub+"-"), os.WriteFile(sub, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if a.Hold(more) == nil {
		t.Error("registered where there is no directory")
	}
	if err := errors.Join(os.Remove(sub), os.Rename(sub+"-", sub), a.Hold(more)); err != nil {
		t.Fatal(err)
	}
	wantFound(t, dir, map[string]uint64{"10.2.0.7": 7, "10.2.0.8": 7})
}

// A directory in which others may write is not believed.
func TestOnlyTheOwnerRegisters(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, subdirectory)
	r, err := Register(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Hold([]netip.Addr{addr("10.2.0.7")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(sub, 0o775); err != nil {
		t.Fatal(err)
	}
	if _, err := Register(dir, 8); err == nil {
		t.Error("a directory that a group may write in was taken")
	}
	if _, err := Find(dir, addr("10.2.0.7")); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("an address was believed: %v", err)
	}
	if err := os.RemoveAll(sub); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), sub); err != nil {
		t.Fatal(err)
	}
	if _, err := Register(dir, 8); err == nil {
		t.Error("a symbolic link was taken for the directory")
	}
}

// FuzzFind: the target of a link is a cookie, or an error.
func FuzzFind(f *testing.F) {
	f.Add("1001")
	f.Add("")
	f.Add("-1")
	f.Add("11111111111111111")
	f.Fuzz(func(t *testing.T, to string) {
		dir := t.TempDir()
		if os.Mkdir(filepath.Join(dir, subdirectory), 0o755) != nil || os.Symlink(to, filepath.Join(dir, subdirectory, name(addr("10.2.0.7")))) != nil {
			t.Skip("no file system takes such a link")
		}
		if cookie, err := Find(dir, addr("10.2.0.7")); err != nil && cookie != 0 {
			t.Errorf("%q: %d, %v", to, cookie, err)
		}
	})
}
