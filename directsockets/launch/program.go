package launch

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Program is what an exec would run: a file and, if it is a script, the interpreters that really
// run.
type Program struct {
	Path  string // as given to execve
	chain []file // the file, then each interpreter; the last is not a script
}

// A file holds what matters about a program file to the dynamic linker.
type file struct {
	path         string
	mode         fs.FileMode
	owner, group uint32
	capabilities bool   // has file capabilities, for which the linker ignores LD_PRELOAD
	script       bool   // begins with #!
	problem      string // why the library cannot work in it; may be empty
	sanitizer    string // the address sanitizer that it needs; may be empty
}

// mostInterpreters is how many scripts may be chained by their interpreters. Linux refuses after
// four.
const mostInterpreters = 5

func open(path string) (*Program, error) {
	p := &Program{Path: path}
	for next := path; next != ""; {
		if len(p.chain) > mostInterpreters {
			return nil, fmt.Errorf("%s: its interpreters lead in a circle", path)
		}
		f, interpreter, err := look(next)
		if err != nil {
			if len(p.chain) > 0 {
				return nil, fmt.Errorf("interpreter of %s: %w", p.chain[len(p.chain)-1].path, err)
			}
			return nil, err
		}
		p.chain = append(p.chain, f)
		next = interpreter
	}
	return p, nil
}

// look reads the beginning of a program.
func look(path string) (f file, interpreter string, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, "", fmt.Errorf("%s: %w", path, ErrNotFound)
	case err != nil:
		return f, "", err // a *PathError names the path
	case !info.Mode().IsRegular():
		return f, "", fmt.Errorf("%s is not a program: %v", path, info.Mode().Type())
	case unix.Access(path, unix.X_OK) != nil:
		return f, "", fmt.Errorf("%s may not be executed: see its mode (ls -l)", path)
	}
	f = file{path: path, mode: info.Mode()}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil {
		f.owner, f.group = st.Uid, st.Gid
	}
	var attribute [64]byte
	if n, err := unix.Getxattr(path, "security.capability", attribute[:]); err == nil && n > 0 {
		f.capabilities = true
	}
	opened, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return f, "", nil // executable but not readable: assume that it works
	}
	if err != nil {
		return f, "", err
	}
	defer opened.Close()
	// Linux reads this much of a script.
	first, err := bufio.NewReaderSize(opened, 256).Peek(256)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, "", fmt.Errorf("read %s: %w", path, err)
	}
	if line, is := bytes.CutPrefix(first, []byte("#!")); is {
		f.script = true
		line, _, _ = bytes.Cut(line, []byte("\n"))
		return f, interpreterOf(strings.Fields(string(line))), nil
	}
	if program, err := elf.NewFile(opened); err == nil { // otherwise binfmt_misc or execve decide
		f.problem, f.sanitizer = problem(program, opened), sanitizer(program)
	}
	return f, "", nil
}

// interpreterOf returns the program that a #! line runs. If that is env, it returns what env runs.
func interpreterOf(words []string) string {
	if len(words) == 0 {
		return "" // execve will refuse it
	}
	if filepath.Base(words[0]) != "env" {
		return words[0]
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
			continue
		}
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if path := filepath.Join(dir, w); unix.Access(path, unix.X_OK) == nil {
				return path
			}
		}
		break
	}
	return words[0]
}

// machines are the ELF machines of programs for this architecture.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// problem returns why the library cannot work in a program file; may be empty.
func problem(f *elf.File, r io.ReaderAt) string {
	if m, known := machines[runtime.GOARCH]; f.Class != elf.ELFCLASS64 || known && f.Machine != m {
		return fmt.Sprintf("is of another architecture (%v, %v) than the library", f.Machine, f.Class)
	}
	if _, err := buildinfo.Read(r); err == nil {
		return "is written in Go, whose programs make their system calls themselves: use the Go package instead"
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		linker, err := io.ReadAll(io.LimitReader(p.Open(), 256))
		name := filepath.Base(strings.TrimRight(string(linker), "\x00"))
		if err != nil || !strings.HasPrefix(name, "ld-linux") && !strings.HasPrefix(name, "ld-musl") {
			return fmt.Sprintf("is neither of glibc nor of musl: its dynamic linker is %s", name)
		}
		return ""
	}
	return "is linked statically, so nothing can be preloaded into it"
}

// sanitizer returns the address sanitizer that a program file needs; may be empty.
func sanitizer(f *elf.File) string {
	needed, _ := f.ImportedLibraries() // without imported libraries it needs none
	if i := slices.IndexFunc(needed, isSanitizer); i >= 0 {
		return needed[i]
	}
	return ""
}

// Sanitizer returns the address sanitizer that the program needs; may be empty.
func (p *Program) Sanitizer() string { return p.chain[len(p.chain)-1].sanitizer }

// Obstacles returns why connections of the program itself will stay on TCP when it is run with this
// effective user and group ID. Programs that it starts may not be affected.
func (p *Program) Obstacles(uid, gid int) (all []string) {
	for i, f := range p.chain {
		name := f.path
		if i > 0 {
			name = "its interpreter " + name
		}
		if !f.script && f.problem != "" {
			all = append(all, name+" "+f.problem)
		}
		// Linux ignores these modes of scripts.
		const secure = ", and the system ignores LD_PRELOAD for such programs"
		switch {
		case f.script:
		case f.mode&fs.ModeSetuid != 0 && int(f.owner) != uid:
			all = append(all, fmt.Sprintf("%s runs as user %d (setuid)%s", name, f.owner, secure))
		case f.mode&fs.ModeSetgid != 0 && int(f.group) != gid:
			all = append(all, fmt.Sprintf("%s runs as group %d (setgid)%s", name, f.group, secure))
		case f.capabilities && uid != 0:
			all = append(all, name+" has file capabilities"+secure)
		}
	}
	return all
}
