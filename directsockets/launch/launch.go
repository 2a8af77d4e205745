// Package launch prepares programs to use libextds.so.
//
//	library, err := launch.Library()
//	p, err := launch.Find("redis-server", os.Environ())
//	for _, obstacle := range p.Obstacles(os.Geteuid(), os.Getegid()) { … }
//	err = unix.Exec(p.Path, args, launch.Options{}.Environment(library, os.Environ()))
//
// It starts nothing itself and knows no fabric: the library finds everything in its environment and
// in the memory of its peers.
package launch

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"exnet/directsockets/policy"
)

const (
	libraryName = "libextds.so"

	// LibraryVariable names the environment variable with the path of the library.
	LibraryVariable = "EXN_LIBRARY"

	preloadVariable = "LD_PRELOAD"
)

// Library finds the library: the one that EXN_LIBRARY names, else the one beside this program, else
// the one in the lib directory beside the program's bin directory.
func Library() (string, error) {
	if path := os.Getenv(LibraryVariable); path != "" {
		path, err := filepath.Abs(path)
		if err == nil {
			err = usable(path)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", LibraryVariable, err)
		}
		return path, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w; set %s to its path", libraryName, err, LibraryVariable)
	}
	bin := filepath.Dir(program)
	for _, dir := range []string{bin, filepath.Join(filepath.Dir(bin), "lib")} {
		path := filepath.Join(dir, libraryName)
		if _, err := os.Stat(path); err == nil {
			return path, usable(path)
		}
	}
	return "", fmt.Errorf("no %s beside %s nor in ../lib: set %s to its path, or build it with make", libraryName, program, LibraryVariable)
}

// usable returns why the dynamic linker would not load a library.
func usable(path string) error {
	if strings.ContainsAny(path, " :") {
		return fmt.Errorf("%q has a space or a colon in its path, at which %s is divided: put it elsewhere", path, preloadVariable)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a library: %w", path, err)
	}
	defer f.Close()
	if f.Type != elf.ET_DYN {
		return fmt.Errorf("%s is not a library but %v", path, f.Type)
	}
	return nil
}

// Options are settings of the library.
type Options struct {
	Fabric  string // the fabric directory; empty: from the environment, or the default
	Require bool   // busy connections that stay on TCP are reset
	Verbose bool   // the library reports on standard error what happens to connections

	// Policy holds an administrator's decisions; nil: as the environment says.
	Policy *policy.Policy

	// Sanitizer is the address sanitizer that the program needs ([Program.Sanitizer]); may be
	// empty.
	Sanitizer string
}

// Environment returns env with the options, and with the library preloaded before everything else
// but an address sanitizer.
func (o Options) Environment(library string, env []string) []string {
	env = slices.Clone(env)
	preload := strings.FieldsFunc(value(env, preloadVariable), func(r rune) bool { return r == ':' || r == ' ' })
	first := slices.IndexFunc(preload, func(s string) bool { return !isSanitizer(s) })
	if first < 0 {
		first = len(preload)
	}
	if o.Sanitizer != "" && first == 0 {
		preload, first = slices.Insert(preload, 0, o.Sanitizer), 1
	}
	// for a run inside of a run
	others := slices.DeleteFunc(preload[first:], func(s string) bool { return s == library })
	env = set(env, preloadVariable, strings.Join(slices.Concat(preload[:first], []string{library}, others), ":"))
	if o.Fabric != "" {
		env = set(env, "EXN_FABRIC", o.Fabric)
	}
	if o.Require {
		env = set(env, "EXN_DS_REQUIRE", "1")
	}
	if o.Verbose {
		env = set(env, "EXN_DS_VERBOSE", "1")
	}
	if o.Policy != nil {
		env = set(env, policy.Variable, o.Policy.String())
	}
	return env
}

// isSanitizer reports whether a library is the shared run-time of gcc's or clang's address
// sanitizer. A program ends if anything was loaded before its sanitizer.
func isSanitizer(library string) bool {
	name := filepath.Base(library)
	return strings.HasPrefix(name, "libasan.so") || strings.HasPrefix(name, "libclang_rt.asan")
}

// ErrNotFound means that [Find] found no such program.
var ErrNotFound = errors.New("no such program")

// Find finds a program like a shell.
func Find(name string, env []string) (*Program, error) {
	if strings.Contains(name, "/") {
		return open(name)
	}
	var found error
	for _, dir := range filepath.SplitList(value(env, "PATH")) {
		if dir == "" {
			dir = "."
		}
		p, err := open(filepath.Join(dir, name))
		if err == nil {
			return p, nil
		}
		if found == nil && !errors.Is(err, ErrNotFound) {
			found = err // it exists but cannot be run; perhaps another one can
		}
	}
	if found != nil {
		return nil, found
	}
	return nil, fmt.Errorf("%s: %w in PATH", name, ErrNotFound)
}

// value returns the last value of a variable in env.
func value(env []string, name string) (v string) {
	for _, e := range env {
		if n, text, _ := strings.Cut(e, "="); n == name {
			v = text
		}
	}
	return v
}

func set(env []string, name, v string) []string {
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+v)
}
