package debroot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const findMirror = "indextargets --format"

// release is another release that the same mirror serves.
func (a archive) release(t *testing.T, name string) archive {
	t.Helper()
	other := archive{filepath.Join(a.dir, name)}
	if err := os.MkdirAll(filepath.Join(other.dir, "served"), 0o755); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestReleaseHasItsOwnListsAndRoots(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	next := a.release(t, "next")
	a.serve(t, "greet", "1.0", "lib/greeting", "hello")
	next.serve(t, "greet", "2.0", "lib/greeting", "welcome")
	ours, err := unpack(t, cache, "greet")
	if err != nil {
		t.Fatal(err)
	}
	wantCalls(t, a, update, simulate, download)

	root, err := open(t.Context(), cache, "next", []string{"greet"})
	if errors.Is(err, ErrUnavailable) && root == nil && strings.Contains(err.Error(), "overlays") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantCalls(t, a, findMirror, update, simulate, download)
	if got := read(t, filepath.Join(root.dir, "usr/lib/greeting")); got != "welcome" {
		t.Errorf("the other release has %q", got)
	}
	if want := filepath.Join(cache, "next/roots"); filepath.Dir(root.dir) != want {
		t.Errorf("the root is %s, want it in %s", root.dir, want)
	}
	if got := read(t, filepath.Join(cache, "next/apt/status")); got != "" {
		t.Errorf("the other release has packages installed: %s", got)
	}

	// Neither is renewed for the other.
	if again, err := open(t.Context(), cache, "next", []string{"greet"}); err != nil || again.dir != root.dir {
		t.Fatalf("opened again: %v, %v, want %s", again, err, root.dir)
	}
	wantCalls(t, a, findMirror, simulate)
	if again, err := unpack(t, cache, "greet"); err != nil || again.dir != ours.dir {
		t.Fatalf("the machine's own again: %v, %v, want %s", again, err, ours.dir)
	}
	wantCalls(t, a, simulate)
}

func TestReleasesThatCannotBeHad(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	get := func(release string) error {
		_, err := open(t.Context(), cache, release, []string{"greet"})
		return err
	}
	if err := get("never"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "never Release") {
		t.Errorf("the mirror does not have it: %v, want ErrUnavailable with apt's words", err)
	}
	write(t, filepath.Join(a.dir, "derived"), "", 0o644)
	if err := get("next"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no Debian") {
		t.Errorf("the machine is not Debian: %v, want ErrUnavailable that says so", err)
	}
	write(t, filepath.Join(a.dir, "offline"), "", 0o644)
	cache = t.TempDir()
	if err := get("next"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Temporary failure") {
		t.Errorf("without network and lists: %v, want ErrUnavailable with apt's words", err)
	}
	for _, name := range []string{"../next", "next/main", "next main", "Next"} {
		if _, err := OpenRelease(t.Context(), name, "greet"); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("release %q: %v, want an error", name, err)
		}
	}
}

// TestNextRelease runs programs of the next release on its C library, and those of
// the machine, which find the same one.
func TestNextRelease(t *testing.T) {
	root, err := OpenRelease(t.Context(), "trixie", "iperf3", "redis-server")
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"iperf3", "redis-server"} {
		if out := run(t, root, program, "--version"); out == "" {
			t.Errorf("%s --version says nothing", program)
		}
	}
	if got, want := run(t, root, "env", "A=b", "sh", "-c", "echo $A; command -v redis-server; id -u nobody"), "b\n/usr/bin/redis-server\n65534\n"; got != want {
		t.Errorf("programs of the machine say %q, want %q", got, want)
	}
	if exists("/usr/bin/getconf") {
		if got := run(t, root, "getconf", "GNU_LIBC_VERSION"); got != "glibc 2.41\n" {
			t.Errorf("the C library is %q, want that of trixie", got)
		}
	}
}
