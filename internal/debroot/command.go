package debroot

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed enter.sh
var enter string

// programDirs are searched for programs, in the packages and on the machine.
// /usr/local and what else PATH holds are not: a test that asks for Debian's
// python3 shall get it.
var programDirs = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// killDelay is how long a killed command's output is waited for when a process
// that left its group still has it.
const killDelay = 5 * time.Second

// Command returns a command that runs a program of the packages, or one of the
// machine. It becomes the program itself: its process ID is the program's.
// To change its environment, run it by env(1): what is set in Env holds for the
// shell that prepares the namespace, too.
//
// The command leads a process group, which is killed when ctx ends; the command
// alone is killed when this process dies before it.
func (r *Root) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	var cmd *exec.Cmd
	if r.obstacle == nil {
		prepare := []string{"--mount", "/bin/sh", "-c", enter, "enter.sh", r.dir, r.memory, program}
		cmd = exec.CommandContext(ctx, "unshare", append(prepare, args...)...)
		cmd.Env = setPath(os.Environ(), programDirs)
	} else {
		cmd = exec.CommandContext(ctx, r.find(program), args...)
		cmd.Env = append(setPath(os.Environ(), r.programDirs()), "LD_LIBRARY_PATH="+strings.Join(r.libraryDirs(), ":"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	return cmd
}

func setPath(env, dirs []string) []string {
	return append(env, "PATH="+strings.Join(dirs, ":")) // the last of equal names counts
}

// find returns the path of a program, or its name for os/exec to complain of.
func (r *Root) find(program string) string {
	if strings.Contains(program, "/") {
		return r.Path(program)
	}
	for _, dir := range r.programDirs() {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	return program
}

func (r *Root) programDirs() []string {
	var own []string
	for _, dir := range programDirs {
		own = append(own, filepath.Join(r.dir, dir))
	}
	return append(own, programDirs...)
}

func (r *Root) libraryDirs() []string {
	multiarch, _ := filepath.Glob(filepath.Join(r.dir, "usr/lib/*-linux-gnu*")) // the pattern is good
	return slices.Concat(multiarch, []string{filepath.Join(r.dir, "usr/lib")})
}
