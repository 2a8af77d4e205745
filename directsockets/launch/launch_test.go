package launch

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes a program file.
func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// obstacles finds a program and returns what prevents user and group 1000 from using the library in
// it.
func obstacles(t *testing.T, path string) []string {
	t.Helper()
	p, err := Find(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.Obstacles(1000, 1000)
}

func TestObstacles(t *testing.T) {
	dir := t.TempDir()
	true_, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip("no /bin/true to make variations of")
	}
	dynamic := write(t, dir, "dynamic", true_)
	if f, err := elf.Open(dynamic); err != nil || !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skipf("/bin/true is not a dynamic program here (%v)", err)
	}
	if got := obstacles(t, dynamic); got != nil {
		t.Errorf("of a dynamic program: %q", got)
	}

	foreign := slices.Clone(true_)
	binary.LittleEndian.PutUint16(foreign[18:], uint16(elf.EM_S390)) // e_machine
	other := slices.Clone(true_)
	copy(other[strings.Index(string(other), "ld-linux"):], "ld-other")
	musl := slices.Clone(true_)
	copy(musl[strings.Index(string(musl), "ld-linux"):], "ld-musl-")
	if got := obstacles(t, write(t, dir, "musl", musl)); got != nil {
		t.Errorf("of a program of musl: %q", got)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"foreign": {foreign, "another architecture"},
		"other":   {other, "neither of glibc nor of musl"},
	} {
		path := write(t, dir, name, c.text)
		if got := obstacles(t, path); len(got) != 1 || !strings.Contains(got[0], path+" ") || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		script := write(t, dir, name+".sh", []byte("#! "+path+" -x\n"))
		if got := obstacles(t, script); len(got) != 1 || !strings.Contains(got[0], "its interpreter "+path) {
			t.Errorf("script of %s: %q", name, got)
		}
		t.Setenv("PATH", dir)
		script = write(t, dir, name+".env", []byte("#!/usr/bin/env -S A=b "+name+"\n"))
		if got := obstacles(t, script); len(got) != 1 || !strings.Contains(got[0], "its interpreter "+path) {
			t.Errorf("script by env of %s: %q", name, got)
		}
	}

	script := write(t, dir, "setuid.sh", []byte("#!"+dynamic+"\n"))
	for path, mode := range map[string]os.FileMode{dynamic: 0o755 | os.ModeSetuid, script: 0o755 | os.ModeSetuid | os.ModeSetgid} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	owner := os.Getuid()
	p, err := Find(dynamic, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Obstacles(owner, 0); got != nil {
		t.Errorf("setuid to the user who runs it: %q", got)
	}
	if got := p.Obstacles(owner+1, 0); len(got) != 1 || !strings.Contains(got[0], "setuid") {
		t.Errorf("setuid: %q", got)
	}
	if p, err = Find(script, nil); err != nil {
		t.Fatal(err)
	}
	if got := p.Obstacles(owner+1, os.Getgid()+1); len(got) != 1 || !strings.Contains(got[0], "its interpreter") {
		t.Errorf("a script's own mode means nothing, its interpreter's does: %q", got)
	}
}

func TestStaticProgram(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to link a static program")
	}
	dir := t.TempDir()
	source := write(t, dir, "x.c", []byte("void _start(void) { for (;;) ; }\n"))
	path := filepath.Join(dir, "static")
	if out, err := exec.Command(gcc, "-static", "-nostdlib", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := obstacles(t, path); len(got) != 1 || !strings.Contains(got[0], "linked statically") {
		t.Errorf("got %q", got)
	}
	self, err := os.Executable() // a Go program
	if err != nil {
		t.Fatal(err)
	}
	if got := obstacles(t, self); len(got) != 1 || !strings.Contains(got[0], "written in Go") {
		t.Errorf("of this test: %q", got)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "b/x", []byte("#!/bin/sh\n"))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if p, err := Find("x", []string{"PATH=" + a + ":" + b}); err != nil || p.Path != filepath.Join(b, "x") {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := Find("x", []string{"PATH=" + a}); !errors.Is(err, ErrNotFound) {
		t.Errorf("not in PATH: %v", err)
	}
	circle := filepath.Join(dir, "circle")
	write(t, dir, "circle", []byte("#!"+circle+"\n"))
	if _, err := Find(circle, nil); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("an interpreter of itself: %v", err)
	}
	write(t, dir, "orphan", []byte("#!/no/such/interpreter\n"))
	if _, err := Find(filepath.Join(dir, "orphan"), nil); err == nil || !strings.Contains(err.Error(), "interpreter of") {
		t.Errorf("an interpreter that is not there: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	in := []string{"A=1", "LD_PRELOAD=/x.so /lib.so:/y.so", "EXN_FABRIC=/f"}
	got := Options{}.Environment("/lib.so", in)
	if value(got, "LD_PRELOAD") != "/lib.so:/x.so:/y.so" || value(got, "EXN_FABRIC") != "/f" || value(got, "A") != "1" {
		t.Errorf("got %q", got)
	}
	for in, want := range map[string]string{
		"":                              "libasan.so.8:/lib.so",
		"/x.so:libasan.so.8":            "libasan.so.8:/lib.so:/x.so:libasan.so.8",
		"/a/libasan.so.6 /lib.so /x.so": "/a/libasan.so.6:/lib.so:/x.so",
	} {
		got := Options{Sanitizer: "libasan.so.8"}.Environment("/lib.so", []string{"LD_PRELOAD=" + in})
		if got := value(got, "LD_PRELOAD"); got != want {
			t.Errorf("with a sanitizer and %q: %q, want %q", in, got, want)
		}
	}
	got = Options{Fabric: "/g", Require: true, Verbose: true}.Environment("/lib.so", in)
	if value(got, "EXN_FABRIC") != "/g" || value(got, "EXN_DS_REQUIRE") != "1" || value(got, "EXN_DS_VERBOSE") != "1" {
		t.Errorf("got %q", got)
	}
	if in[1] != "LD_PRELOAD=/x.so /lib.so:/y.so" {
		t.Error("the environment given was changed")
	}
}

func TestLibrary(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write(t, dir, "l.so", nil):           "a space or a colon",
		write(t, t.TempDir(), "l.so", nil):   "not a library",
		filepath.Join(t.TempDir(), "not.so"): "no such file",
	} {
		t.Setenv(LibraryVariable, path)
		if _, err := Library(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	t.Setenv(LibraryVariable, "")
	if _, err := Library(); err == nil || !strings.Contains(err.Error(), LibraryVariable) {
		t.Errorf("without one: %v", err)
	}
}
