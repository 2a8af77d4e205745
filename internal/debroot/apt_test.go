package debroot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeApt stands for apt-get. It serves the packages of the directory SERVED,
// knows of those in LISTED since the last update, and notes its calls. Each release
// with sources of its own has a directory of them.
const fakeApt = `#!/bin/sh
config=$2
shift 3 # --config-file FILE --quiet
echo "$1 $2" >>"$FAKE/calls"
sources=$(sed -n 's/^Dir::Etc::sourcelist "\(.*\)";/\1/p' "$config")
if [ -n "$sources" ]; then
	set -- $(cat "$sources") -- "$@"
	FAKE=$FAKE/$4 # deb [signed-by=KEYS] MIRROR RELEASE main
	[ "$3" = http://mirror.test/debian/ -a -d "$FAKE" ] || { echo "E: The repository '$3 $4 Release' does not have a Release file." >&2; exit 100; }
	shift 6
fi
case "$1 $2" in
"update "*)
	[ ! -e "$FAKE/offline" ] || { echo "E: Temporary failure resolving" >&2; exit 100; }
	ls "$FAKE/served" >"$FAKE/listed" ;;
"indextargets "*)
	[ ! -e "$FAKE/derived" ] || exit 0
	echo http://mirror.test/debian/
	echo http://other.test/debian/ ;;
"install --simulate")
	shift 2
	for p in "$@"; do
		deb=$(grep "^${p}_" "$FAKE/listed") || { echo "E: Unable to locate package $p" >&2; exit 100; }
		version=${deb#*_}
		echo "Inst $p [0.9] (${version%%_*} Debian:12/stable [all])"
	done ;;
"install --download-only")
	archives=${4#Dir::Cache::archives=}
	shift 4
	for p in "$@"; do
		deb=$(grep "^${p}_" "$FAKE/listed")
		cp "$FAKE/served/$deb" "$archives/" || { echo "E: 404 Not Found" >&2; exit 100; }
	done ;;
*) exit 99 ;;
esac
`

// archive is a pretended Debian archive, whose apt-get is the one in PATH.
type archive struct{ dir string }

func newArchive(t *testing.T) archive {
	t.Helper()
	for _, program := range []string{"dpkg-deb", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	a := archive{t.TempDir()}
	for _, dir := range []string{"served", "bin"} {
		if err := os.Mkdir(filepath.Join(a.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(a.dir, "bin/apt-get"), fakeApt, 0o755)
	t.Setenv("FAKE", a.dir)
	t.Setenv("PATH", filepath.Join(a.dir, "bin")+":"+os.Getenv("PATH"))
	return a
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// serve replaces all versions of a package by one that has the given file.
func (a archive) serve(t *testing.T, name, version, file, text string) {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(a.dir, "served", name+"_*"))
	for _, deb := range old {
		os.Remove(deb)
	}
	tree := t.TempDir()
	write(t, filepath.Join(tree, "DEBIAN/control"), fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: a test\n", name, version), 0o644)
	write(t, filepath.Join(tree, file), text, 0o644)
	deb := filepath.Join(a.dir, "served", name+"_"+version+"_all.deb")
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", tree, deb).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
}

// calls returns what apt-get was called for since the last time.
func (a archive) calls(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(a.dir, "calls")
	text, _ := os.ReadFile(path)
	os.Remove(path)
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// unpack does what Open does, less what it remembers.
func unpack(t *testing.T, cache string, packages ...string) (*Root, error) {
	t.Helper()
	return open(t.Context(), cache, "", packages)
}

const (
	update   = "update --error-on=any"
	simulate = "install --simulate"
	download = "install --download-only"
)

func wantCalls(t *testing.T, a archive, want ...string) {
	t.Helper()
	if got := a.calls(t); !slices.Equal(got, want) {
		t.Errorf("apt-get was called for %q, want %q", got, want)
	}
}

func TestCacheLife(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "greet", "1.0", "lib/greeting", "hello")
	root, err := unpack(t, cache, "greet")
	if err != nil {
		t.Fatal(err)
	}
	wantCalls(t, a, update, simulate, download)
	// The package has the file in /lib, which is a link into /usr.
	if got := read(t, filepath.Join(root.dir, "usr/lib/greeting")); got != "hello" {
		t.Errorf("unpacked %q", got)
	}

	if again, err := unpack(t, cache, "greet"); err != nil || again.dir != root.dir {
		t.Fatalf("opened again: %v, %v, want %s", again, err, root.dir)
	}
	wantCalls(t, a, simulate)

	// A new version is served: the lists name one that is gone, but it is here.
	a.serve(t, "greet", "1.1", "lib/greeting", "welcome")
	if again, err := unpack(t, cache, "greet"); err != nil || again.dir != root.dir {
		t.Fatalf("with a new version served: %v, %v, want %s", again, err, root.dir)
	}
	wantCalls(t, a, simulate)

	// Lists that are too old are renewed, and the new version is another root.
	old := time.Now().Add(-listsLife - time.Hour)
	if err := os.Chtimes(filepath.Join(cache, "apt/updated"), old, old); err != nil {
		t.Fatal(err)
	}
	newer, err := unpack(t, cache, "greet")
	if err != nil || newer.dir == root.dir {
		t.Fatalf("after a week: %v, %v, want another root", newer, err)
	}
	wantCalls(t, a, update, simulate, download)
	if got := read(t, filepath.Join(newer.dir, "lib/greeting")); got != "welcome" {
		t.Errorf("the newer root has %q", got)
	}
}

func TestListsThatNameLostVersionsAreRenewed(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "first", "1", "etc/first", "")
	a.serve(t, "second", "1", "etc/second", "")
	if _, err := unpack(t, cache, "first"); err != nil {
		t.Fatal(err)
	}
	a.serve(t, "second", "2", "etc/second", "")
	a.calls(t)
	if _, err := unpack(t, cache, "second"); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, a, simulate, download, update, simulate, download)
}

func TestOffline(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	offline := filepath.Join(a.dir, "offline")
	write(t, offline, "", 0o644)
	if _, err := unpack(t, cache, "greet"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Temporary failure") {
		t.Errorf("without network and lists: %v, want ErrUnavailable with apt's words", err)
	}

	os.Remove(offline)
	if _, err := unpack(t, cache, "greet"); err != nil {
		t.Fatal(err)
	}
	write(t, offline, "", 0o644)
	old := time.Now().Add(-listsLife - time.Hour)
	if err := os.Chtimes(filepath.Join(cache, "apt/updated"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(t, cache, "greet"); err != nil {
		t.Errorf("without network but with old lists: %v", err)
	}
}

func TestUnknownPackageIsNotUnavailable(t *testing.T) {
	a := newArchive(t)
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	_, err := unpack(t, t.TempDir(), "greeet")
	if err == nil || errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Unable to locate package greeet") {
		t.Errorf("a misspelt package: %v, want an error that says so", err)
	}
	if _, err := Open(t.Context()); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("no package: %v, want an error", err)
	}
}

func TestOpenAsksOnce(t *testing.T) {
	a := newArchive(t)
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	t.Setenv(cacheVariable, t.TempDir())
	for _, name := range []string{"greet", "greeet"} {
		_, first := Open(t.Context(), name)
		a.calls(t)
		if _, again := Open(t.Context(), name); again != first {
			t.Errorf("%s: first %v, then %v", name, first, again)
		}
		wantCalls(t, a)
	}
}

func TestNoApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := unpack(t, t.TempDir(), "greet"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without apt-get: %v, want ErrUnavailable", err)
	}
}

func TestHalfUnpackedRootIsNotUsed(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	write(t, filepath.Join(cache, "roots/partial/root/etc/greeting"), "he", 0o644)
	root, err := unpack(t, cache, "greet")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(root.dir, "etc/greeting")); got != "hello" {
		t.Errorf("unpacked %q", got)
	}
	if exists(filepath.Join(cache, "roots/partial")) {
		t.Error("the partial root is still there")
	}
	// A package that cannot be unpacked leaves no root either.
	write(t, filepath.Join(a.dir, "served/bad_1_all.deb"), "not a package", 0o644)
	os.Remove(filepath.Join(cache, "apt/updated"))
	for range 2 {
		if _, err := unpack(t, cache, "bad"); err == nil || !strings.Contains(err.Error(), "cannot unpack bad_1_all.deb") {
			t.Errorf("a broken package: %v", err)
		}
	}
}

func TestConcurrentOpensUnpackOnce(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	a.serve(t, "greet", "1.0", "etc/greeting", "hello")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := unpack(t, cache, "greet"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	downloads := 0
	for _, call := range a.calls(t) {
		if call == download {
			downloads++
		}
	}
	if downloads != 1 {
		t.Errorf("%d downloads, want 1", downloads)
	}
}

func TestInstallations(t *testing.T) {
	plan := `NOTE: whatever
Inst libc6 [2.36-9+deb12u10] (2.36-9+deb12u13 Debian:12/stable, Debian-Security:12/stable [amd64]) [libc6-dev:amd64 ]
Inst redis-server (5:7.0.15-1~deb12u10 Debian-Security:12/oldstable-security [amd64])
Inst adduser (3.134 Debian:12/stable [all]) []
Conf redis-server (5:7.0.15-1~deb12u10 Debian-Security:12/oldstable-security [amd64])
`
	want := []string{"libc6_2.36-9+deb12u13_amd64", "redis-server_5:7.0.15-1~deb12u10_amd64", "adduser_3.134_all"}
	if got := installations([]byte(plan)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
