package ds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Object is the library in one object file, for programs that link it and call its
// parts, compiled with flags of a sanitizer or none. Programs of several packages share it.
func Object(t testing.TB, flags ...string) string {
	t.Helper()
	return Build(t, "libextds.o", append([]string{"-r", "-nostdlib"}, flags...), Sources(t)...) // never slow: its parts are tried one by one
}

// Sources are the C files of the library. Without any the test is skipped.
func Sources(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(), "directsockets", "preload", "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no library: directsockets/preload has no C files")
	}
	return files
}

// Headers is where the library's headers are, for programs that call its parts.
func Headers() string { return filepath.Join(root(), "directsockets", "preload") }

// Library gives the path of libextds.so: the one that EXN_LIBEXTDS names, else
// built from directsockets/preload. Without either the test is skipped. With
// EXN_SLOW_WAKES=1 it is one that wakes late, as on a machine whose CPUs are far apart.
func Library(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("EXN_LIBEXTDS"); path != "" && !SlowWakes() {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("EXN_LIBEXTDS: %v", err)
		}
		return path
	}
	// As its own Makefile does; Build's flags for the tests' programs come first.
	return buildLibrary(t, "libextds.so", []string{"-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic-functions"})
}

// LaterLibrary gives a library of the next version of lanes, which takes none of ours.
func LaterLibrary(t testing.TB) string {
	t.Helper()
	return buildLibrary(t, "libextds-later.so", []string{"-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic-functions", "-DLANE_VERSION_TESTED=4"})
}

// SlowWakes says whether what the library wakes is woken late, and its yields take long:
// EXN_SLOW_WAKES=1 (slowwake.c).
func SlowWakes() bool { return os.Getenv("EXN_SLOW_WAKES") == "1" }

func buildLibrary(t testing.TB, name string, flags []string, more ...string) string {
	t.Helper()
	if SlowWakes() {
		flags = append(slices.Clone(flags), "-include", "slowwake.h", "-I", Headers())
		more = append(slices.Clone(more), "slowwake.c")
	}
	return Build(t, name, flags, append(more, Sources(t)...)...)
}

// Delayed gives a library the functions of which are late at random (delays.c), so that
// what depends on the order of two processes or threads shows. It is not for programs
// that cancel threads.
func Delayed(t testing.TB) string {
	t.Helper()
	return instrumented(t, "libextds-delayed.so", "delays.c")
}

// Tardy gives a library in which the first thread takes connections back to TCP late, or other threads
// do other things, as TARDY in the environment says (tardy.c).
func Tardy(t testing.TB) string {
	t.Helper()
	return instrumented(t, "libextds-tardy.so", "tardy.c")
}

func instrumented(t testing.TB, name, by string) string {
	t.Helper()
	return buildLibrary(t, name, []string{"-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic-functions", "-finstrument-functions"}, by)
}

// Fabric makes a fabric directory for one test.
func Fabric(t testing.TB) string {
	t.Helper()
	// Not t.TempDir: the names of UNIX sockets must stay below 108 bytes.
	dir, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir // MkdirTemp has made it 0700
}

// Preload is the environment of a program that uses the library in a fabric.
// Settings of the library that this process has been given do not reach it.
func Preload(library, fabric string, settings ...string) []string {
	env := []string{"LD_PRELOAD=" + library, "EXN_FABRIC=" + fabric}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "EXN_DS") && name != "EXN_DS_VERBOSE" {
			env = append(env, name+"=")
		}
	}
	return append(env, settings...)
}
