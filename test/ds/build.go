package ds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// root is the directory of the module.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Build compiles sources of ccode into a program, or a shared object when flags
// say so, and returns its path. What was built of the same sources with the
// same flags is used again. EXN_LIBC=musl has it build with musl what can be.
func Build(t testing.TB, name string, flags []string, sources ...string) string {
	t.Helper()
	if os.Getenv("EXN_LIBC") == "musl" && muslCan(flags, sources) {
		return BuildMusl(t, name, flags, sources...)
	}
	return compile(t, name, flags, sources)
}

func compile(t testing.TB, name string, flags, sources []string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the programs of this test are in C (install gcc and libc6-dev)")
	}
	dir := filepath.Join(root(), "test", "ds", "ccode")
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-pthread", "-I", dir}
	if os.Getenv("CI") != "" { // what other compilers warn of is no failure, as in the Makefile
		args = append(args, "-Werror")
	}
	args = append(args, flags...)

	key := sha256.New()
	fmt.Fprintln(key, args)
	var paths, headers []string
	for _, s := range sources {
		if !filepath.IsAbs(s) {
			s = filepath.Join(dir, s)
		}
		paths = append(paths, s)
	}
	directories := map[string]bool{dir: true}
	for i, flag := range flags {
		if flag == "-I" {
			directories[flags[i+1]] = true
		}
	}
	for _, path := range paths {
		directories[filepath.Dir(path)] = true
	}
	for _, d := range slices.Sorted(maps.Keys(directories)) {
		found, _ := filepath.Glob(filepath.Join(d, "*.h")) // the pattern is good
		headers = append(headers, found...)
	}
	for _, path := range append(headers, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(key, path, len(text))
		key.Write(text)
	}
	out := filepath.Join(cache(t), name+"-"+hex.EncodeToString(key.Sum(nil)[:8]))
	if _, err := os.Stat(out); err == nil {
		return out
	}
	lock := building(t, out+".lock")
	defer lock.Close()
	if _, err := os.Stat(out); err == nil {
		return out
	}
	temp := out + ".new" // one that was interrupted leaves no half a program
	cmd := exec.Command(gcc, append(append(args, paths...), "-o", temp)...)
	cmd.ExtraFiles = []*os.File{lock} // held until it has ended, though this process may be killed
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, text)
	}
	if err := os.Rename(temp, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// building keeps others from compiling the same, also those of other packages, until
// what it returns is closed.
func building(t testing.TB, lock string) *os.File {
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatalf("locking %s: %v", lock, err)
	}
	return f
}

// cache is where built programs are kept between runs.
func cache(t testing.TB) string {
	dir := filepath.Join(root(), ".cache", "ds")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
